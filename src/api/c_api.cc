// The C ABI: errors, checkpoints, packed weights in host memory, and products.
#include <string>
#include <vector>

#include "api/handles.h"

using namespace swordfish;
using namespace swordfish::api;

namespace swordfish::api {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

Result<DType> dtype(sf_dtype type) {
  switch (type) {
    case SF_BF16: return DType::bf16;
    case SF_F16: return DType::f16;
    case SF_F32: return DType::f32;
    case SF_F8_E4M3: return DType::f8_e4m3;
    case SF_F8_E8M0: return DType::f8_e8m0;
    case SF_U8: return DType::u8;
    case SF_I16: return DType::i16;
  }
  return invalid_argument("dtype {} is none of SF_BF16 to SF_I16", static_cast<int>(type));
}

Status host_data(const sf_weight& weight) {
  if (weight.described) return invalid_argument("the weight has a shape but no data");
  if (weight.gpu)
    return invalid_argument("the weight is on {}: this call needs it in host memory", to_string(weight.gpu->device()));
  return {};
}

}  // namespace swordfish::api

namespace {

Result<Device> device(sf_device_kind kind, int index) {
  if (kind != SF_CPU && kind != SF_CUDA)
    return invalid_argument("device kind {} is none of SF_CPU, SF_CUDA", static_cast<int>(kind));
  return Device{kind == SF_CPU ? Device::Kind::cpu : Device::Kind::cuda, index};
}

Status layer_in_range(const Checkpoint& checkpoint, std::size_t layer) {
  if (layer >= checkpoint.layers().size())
    return invalid_argument("layer {} of {}: the checkpoint has {} layers", layer, checkpoint.path(), checkpoint.layers().size());
  return {};
}

Result<Problem> problem_of(const sf_weight& weight, const sf_problem& p) {
  Problem out;
  out.weight = &weight.view();
  out.m = p.m;
  SF_ASSIGN(out.x_type, dtype(p.x_type));
  SF_ASSIGN(out.y_type, dtype(p.y_type));
  out.has_bias = p.has_bias != 0;
  SF_ASSIGN(out.device, device(p.device, p.device_index));
  out.threads = std::max(1, p.threads);
  return out;
}

sf_problem problem_in(const sf_plan& plan) {
  sf_problem p{};
  p.struct_size = sizeof p;
  p.m = plan.m;
  p.x_type = plan.x_type;
  p.y_type = plan.y_type;
  p.has_bias = plan.has_bias;
  p.device = plan.device;
  p.device_index = plan.device_index;
  p.threads = plan.threads;
  return p;
}

// The library's plan is made again from what the struct says: a plan is a pure function of the problem, and nothing in a struct
// that passed through foreign memory is trusted.
Result<Plan> plan_again(const sf_plan& from, const Problem& problem) {
  if (from.kernel_index < 0) return invalid_argument("kernel_index {}: the plan was not made by sf_plan_make", from.kernel_index);
  return plan(problem, {{}, from.kernel_index});
}

}  // namespace

extern "C" {

const char* sf_version(void) { return SWORDFISH_VERSION; }
const char* sf_status_name(sf_status status) { return name(static_cast<Code>(status)).data(); }
const char* sf_last_error(void) { return last_error().c_str(); }

sf_status sf_checkpoint_open(const char* path, const sf_open_options* options, sf_checkpoint** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("path, out", path, out));
    sf_open_options o;
    SF_TRY(read_struct(options, o));
    if (o.gptq_v1_zeros < SF_V1_REFUSE || o.gptq_v1_zeros > SF_V1_WORD)
      return invalid_argument("gptq_v1_zeros is {}", static_cast<int>(o.gptq_v1_zeros));
    SF_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, {static_cast<GptqV1Zeros>(o.gptq_v1_zeros)}));
    *out = new sf_checkpoint{std::move(checkpoint)};
    return {};
  });
}
void sf_checkpoint_free(sf_checkpoint* checkpoint) { delete checkpoint; }
size_t sf_checkpoint_layer_count(const sf_checkpoint* checkpoint) { return checkpoint ? checkpoint->value.layers().size() : 0; }

sf_status sf_checkpoint_layer(const sf_checkpoint* checkpoint, size_t layer, sf_layer_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, out", checkpoint, out));
    SF_TRY(layer_in_range(checkpoint->value, layer));
    const LayerInfo& info = checkpoint->value.layers()[layer];
    sf_layer_info o{};
    o.name = info.name.c_str();
    o.scheme = info.scheme.c_str();
    o.code = static_cast<sf_code_type>(info.code);
    o.n = info.n;
    o.k = info.k;
    o.experts = info.experts;
    o.group_size = info.group_size;
    o.has_bias = !info.bias.empty();
    o.bytes = info.bytes;
    return write_struct(o, out);
  });
}

sf_status sf_checkpoint_find(const sf_checkpoint* checkpoint, const char* layer_name, size_t* layer) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, name, layer", checkpoint, layer_name, layer));
    const auto& layers = checkpoint->value.layers();
    const auto it = std::find_if(layers.begin(), layers.end(), [&](const LayerInfo& l) { return l.name == layer_name; });
    if (it == layers.end()) return invalid_argument("{} has no quantized layer named {}", checkpoint->value.path(), layer_name);
    *layer = static_cast<std::size_t>(it - layers.begin());
    return {};
  });
}

sf_status sf_checkpoint_dequantize(const sf_checkpoint* checkpoint, size_t layer, int64_t expert, float* out, int64_t ld) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, out", checkpoint, out));
    SF_TRY(layer_in_range(checkpoint->value, layer));
    SF_ASSIGN(const QuantTensor tensor, checkpoint->value.load(layer, expert));
    if (ld < tensor.k) return invalid_argument("ld {} is less than k {}", ld, tensor.k);
    dequantize(tensor, 0, tensor.n, out, ld);
    return {};
  });
}

sf_status sf_checkpoint_bias(const sf_checkpoint* checkpoint, size_t layer, int64_t expert, float* bias, int* has_bias) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, bias, has_bias", checkpoint, bias, has_bias));
    SF_TRY(layer_in_range(checkpoint->value, layer));
    SF_ASSIGN(const auto values, checkpoint->value.load_bias(layer, expert));
    *has_bias = values.has_value();
    if (values) std::copy(values->begin(), values->end(), bias);
    return {};
  });
}

sf_status sf_weight_pack(const sf_checkpoint* checkpoint, const size_t* layers, size_t count, int64_t expert, int threads,
                         sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, layers, out", checkpoint, layers, out));
    if (count == 0) return invalid_argument("no layer was given to pack");
    SF_TRY(thread_count(threads));
    std::vector<QuantTensor> parts;
    std::string packed_name;
    for (std::size_t i = 0; i < count; ++i) {
      SF_TRY(layer_in_range(checkpoint->value, layers[i]));
      SF_ASSIGN(QuantTensor tensor, checkpoint->value.load(layers[i], expert));
      packed_name += (i ? "|" : "") + tensor.name;
      parts.push_back(std::move(tensor));
    }
    SF_ASSIGN(PackedWeight weight, pack(parts, std::move(packed_name), threads));
    *out = new sf_weight{std::move(weight), false, {}};
    return {};
  });
}
void sf_weight_free(sf_weight* weight) { delete weight; }

sf_status sf_weight_get_info(const sf_weight* weight, sf_weight_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, out", weight, out));
    const PackedView& v = weight->view();
    sf_weight_info o{};
    o.name = weight->value.name.c_str();
    o.layout = name(v.layout).data();
    o.code = static_cast<sf_code_type>(v.code);
    o.n = v.n;
    o.k = v.k;
    o.parts = v.n_parts;
    o.bytes = weight->gpu ? DeviceWeight::bytes(v) : weight->value.bytes();
    o.device = weight->gpu ? SF_CUDA : SF_CPU;
    o.device_index = weight->gpu ? weight->gpu->device().index : 0;
    return write_struct(o, out);
  });
}

sf_status sf_weight_describe(sf_code_type code, int64_t n, int64_t k, int64_t group_size, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    if (code < SF_INT4 || code > SF_FP4)
      return invalid_argument("code type {} is none of SF_INT4, SF_INT8, SF_FP4", static_cast<int>(code));
    SF_ASSIGN(PackedWeight weight, describe(static_cast<CodeType>(code), n, k, group_size));
    *out = new sf_weight{std::move(weight), true, {}};
    return {};
  });
}

sf_status sf_weight_dequantize(const sf_weight* weight, float* out, int64_t ld) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, out", weight, out));
    SF_TRY(host_data(*weight));
    const PackedView& v = weight->value.view;
    if (ld < v.k) return invalid_argument("ld {} is less than k {}", ld, v.k);
    for (std::int64_t part = 0; part < v.n_parts; ++part) {
      SF_ASSIGN(const QuantTensor tensor, unpack(v, part));
      dequantize(tensor, 0, tensor.n, out + v.parts[part].n0 * ld, ld);
    }
    return {};
  });
}

sf_status sf_pack_file(const sf_checkpoint* checkpoint, const char* out, const sf_pack_options* options) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("checkpoint, out", checkpoint, out));
    sf_pack_options o;
    SF_TRY(read_struct(options, o));
    SF_TRY(thread_count(o.threads));
    PackOptions pack_options;
    if (o.layers) pack_options.layers = o.layers;
    pack_options.fuse = o.fuse != 0;
    pack_options.force = o.force != 0;
    pack_options.threads = o.threads;
    const auto progress = [](std::uint64_t done, std::uint64_t total, void* user) {
      const auto& caller = *static_cast<const sf_pack_options*>(user);
      return caller.progress(done, total, caller.user) != 0;
    };
    SF_ASSIGN([[maybe_unused]] const PackReport done,
              pack_checkpoint(checkpoint->value, out, pack_options, o.progress ? +progress : nullptr, &o));
    return {};
  });
}

sf_status sf_packed_file_open(const char* path, sf_packed_file** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("path, out", path, out));
    SF_ASSIGN(PackedFile file, PackedFile::open(path));
    *out = new sf_packed_file{std::move(file)};
    return {};
  });
}
void sf_packed_file_free(sf_packed_file* file) { delete file; }
size_t sf_packed_file_layer_count(const sf_packed_file* file) { return file ? file->value.layers().size() : 0; }
const char* sf_packed_file_layer_name(const sf_packed_file* file, size_t layer) {
  return file && layer < file->value.layers().size() ? file->value.layers()[layer].name.c_str() : nullptr;
}
sf_status sf_packed_file_load(const sf_packed_file* file, size_t layer, int64_t expert, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("file, out", file, out));
    if (layer >= file->value.layers().size())
      return invalid_argument("layer {} of {}: the file has {} layers", layer, file->value.path(), file->value.layers().size());
    SF_ASSIGN(PackedWeight weight, file->value.load(layer, expert));
    *out = new sf_weight{std::move(weight), false, {}};
    return {};
  });
}

sf_status sf_plan_make(const sf_weight* weight, const sf_problem* problem, sf_plan* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, problem, out", weight, problem, out));
    sf_problem p;
    SF_TRY(read_struct(problem, p));
    SF_ASSIGN(const Problem full, problem_of(*weight, p));
    SF_ASSIGN(const Plan chosen, plan(full, {p.kernel ? std::string_view(p.kernel) : std::string_view(), -1}));
    sf_plan o{};
    o.kernel = chosen.kernel_name.data();
    o.kernel_index = chosen.kernel;
    o.tile_m = chosen.tile_m;
    o.tile_n = chosen.tile_n;
    o.tasks = chosen.tasks;
    o.split_k = chosen.split_k;
    o.workspace = chosen.workspace;
    o.m = p.m;
    o.x_type = p.x_type;
    o.y_type = p.y_type;
    o.has_bias = p.has_bias;
    o.device = p.device;
    o.device_index = p.device_index;
    o.threads = full.threads;
    return write_struct(o, out);
  });
}

sf_status sf_explain(const sf_weight* weight, const sf_problem* problem, void (*visit)(void*, const char*, int, const char*),
                     void* user) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, problem, visit", weight, problem, visit));
    sf_problem p;
    SF_TRY(read_struct(problem, p));
    SF_ASSIGN(const Problem full, problem_of(*weight, p));
    for (const Explanation& e : explain(full, {p.kernel ? std::string_view(p.kernel) : std::string_view(), -1}))
      visit(user, std::string(e.kernel).c_str(), e.chosen, e.reason.c_str());
    return {};
  });
}

sf_status sf_context_create(int threads, sf_context** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    SF_TRY(thread_count(threads));
    *out = new sf_context(threads);
    return {};
  });
}
void sf_context_free(sf_context* context) { delete context; }
int sf_context_threads(const sf_context* context) { return context ? context->value.threads() : 0; }

sf_status sf_workspace_init(const sf_plan* made, void* workspace, size_t size, void* stream) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("plan", made));
    sf_plan p;
    SF_TRY(read_struct(made, p));
    SF_ASSIGN(const Device where, device(p.device, p.device_index));
    Plan plan_for_init;
    plan_for_init.kernel = p.kernel_index;
    plan_for_init.workspace = p.workspace;
    return workspace_init(plan_for_init, where, workspace, size, stream);
  });
}

sf_status sf_run(sf_context* context, const sf_weight* weight, const sf_plan* made, const sf_run_args* args) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("context, weight, plan, args", context, weight, made, args));
    if (weight->described) return invalid_argument("the weight has a shape but no data");
    sf_plan p;
    SF_TRY(read_struct(made, p));
    sf_run_args a;
    SF_TRY(read_struct(args, a));
    SF_ASSIGN(const Problem problem, problem_of(*weight, problem_in(p)));
    SF_ASSIGN(const Plan chosen, plan_again(p, problem));
    RunArgs run_args;
    run_args.x = a.x;
    run_args.ldx = a.ldx;
    run_args.y = a.y;
    run_args.ldy = a.ldy;
    run_args.bias = a.bias;
    run_args.workspace = a.workspace;
    run_args.workspace_size = a.workspace_size;
    run_args.stream = a.stream;
    run_args.dependent = a.no_dependent == 0;
    return run(context->value, problem, chosen, run_args);
  });
}

}  // extern "C"
