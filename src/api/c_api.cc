// The C ABI: translates handles, versioned structs and Status between swordfish.h and the C++ library, and stops exceptions.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "swordfish/checkpoint.h"
#include "swordfish/device.h"
#include "swordfish/gemm.h"
#include "swordfish/pack.h"
#include "swordfish/swordfish.h"

using namespace swordfish;

struct sf_checkpoint {
  Checkpoint value;
};
struct sf_packed_file {
  PackedFile value;
};
struct sf_weight {
  PackedWeight value;               // on a GPU: the name alone
  bool described = false;           // shape only: can be planned for, not run
  std::optional<DeviceWeight> gpu;  // set: the weight is on a GPU
  const PackedView& view() const { return gpu ? gpu->view() : value.view; }
};
struct sf_context {
  explicit sf_context(int threads) : value(threads) {}
  Context value;
};

namespace {

thread_local std::string last_error;

sf_status report(const Status& status) {
  if (status.ok()) return SF_OK;
  last_error = status.message();
  return static_cast<sf_status>(status.code());
}

// Runs a call that returns Status; no exception passes.
template <class F>
sf_status guarded(F&& call) noexcept {
  try {
    return report(call());
  } catch (const std::bad_alloc&) {
    try {
      last_error = "out of memory";
    } catch (...) {
      last_error.clear();
    }
    return SF_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    try {
      last_error = e.what();
    } catch (...) {
      last_error.clear();
    }
    return SF_INTERNAL;
  } catch (...) {
    last_error.clear();
    return SF_INTERNAL;
  }
}

// Copies a caller's versioned struct into the library's version of it: fields the caller does not know are zero.
template <class T>
Status read_struct(const T* from, T& to) {
  std::memset(static_cast<void*>(&to), 0, sizeof to);
  if (from == nullptr) return {};
  const std::size_t size = from->struct_size;
  if (size < sizeof(std::size_t)) return invalid_argument("struct_size is {}: set it to sizeof the struct", size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof to && std::any_of(bytes + sizeof to, bytes + size, [](unsigned char b) { return b != 0; }))
    return invalid_argument("struct_size is {} and fields past {} are set: the program needs a newer library", size, sizeof to);
  std::memcpy(static_cast<void*>(&to), from, std::min(size, sizeof to));
  return {};
}

// Writes the library's struct into the caller's, as far as the caller's version goes.
template <class T>
Status write_struct(T from, T* to) {
  if (to == nullptr) return invalid_argument("the output struct is NULL");
  const std::size_t size = to->struct_size;
  if (size < sizeof(std::size_t)) return invalid_argument("struct_size is {}: set it to sizeof the struct", size);
  from.struct_size = size;
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof from));
  return {};
}

template <class... P>
Status not_null(const char* names, P... pointers) {
  const bool all_set = (... && (pointers != nullptr));
  if (!all_set) return invalid_argument("a required pointer is NULL (one of: {})", names);
  return {};
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

Device gpu_device(int index) { return {Device::Kind::cuda, index}; }

Status host_data(const sf_weight& weight) {
  if (weight.described) return invalid_argument("the weight has a shape but no data");
  if (weight.gpu)
    return invalid_argument("the weight is on {}: this call needs it in host memory", to_string(weight.gpu->device()));
  return {};
}

sf_weight* on_gpu(const std::string& weight_name, DeviceWeight gpu) {
  PackedWeight named;
  named.name = weight_name;
  return new sf_weight{std::move(named), false, std::move(gpu)};
}

// Codes in a caller's array, read while the call lasts.
class CallersCodes : public CodeSource {
 public:
  CallersCodes(const std::uint8_t* codes, std::int64_t row_stride) : codes_(codes), row_stride_(row_stride) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + static_cast<std::size_t>(i) * stride, codes_ + (n0 + i) * row_stride_ + k0, static_cast<std::size_t>(k));
  }

 private:
  const std::uint8_t* codes_;
  std::int64_t row_stride_;
};

Result<Plane> plane_of(const void* data, sf_dtype type, std::int64_t stride_n, std::int64_t stride_row,
                       std::initializer_list<sf_dtype> allowed, const char* what) {
  if (std::find(allowed.begin(), allowed.end(), type) == allowed.end())
    return invalid_argument("{} of a tensor cannot have dtype {}", what, static_cast<int>(type));
  SF_ASSIGN(const DType element, dtype(type));
  const std::int64_t bytes = bits(element) / 8;
  return Plane{element, static_cast<const std::byte*>(data), stride_n * bytes, stride_row * bytes};
}

Result<QuantTensor> tensor_of(const sf_tensor& t) {
  constexpr std::int64_t limit = std::int64_t{1} << 40;
  if (t.code < SF_INT4 || t.code > SF_FP4)
    return invalid_argument("code type {} is none of SF_INT4, SF_INT8, SF_FP4", static_cast<int>(t.code));
  if (t.n < 1 || t.k < 1 || t.n > limit || t.k > limit || t.rows < 1 || t.rows > t.k || t.group_size < 1)
    return invalid_argument("a tensor of {} x {} with {} scale rows and groups of {}: N and K must be 1 to 2^40, rows 1 to K", t.n,
                            t.k, t.rows, t.group_size);
  SF_TRY(not_null("codes, scales of a tensor", t.codes, t.scales));
  if (t.codes_stride < t.k) return invalid_argument("codes_stride {} is less than k {}", t.codes_stride, t.k);
  if (t.zeros && t.offsets) return invalid_argument("a tensor has zeros and offsets: it may have one of the two");
  if (!t.row_of_k && (t.k - 1) / t.group_size >= t.rows)
    return invalid_argument("{} scale rows are too few for k = {} in groups of {}", t.rows, t.k, t.group_size);
  QuantTensor q;
  q.name = t.name ? t.name : "";
  q.n = t.n;
  q.k = t.k;
  q.code = static_cast<CodeType>(t.code);
  if (t.code != SF_INT8)
    for (std::int64_t n = 0; n < t.n; ++n)
      if (const std::uint8_t* row = t.codes + n * t.codes_stride; *std::max_element(row, row + t.k) > 15)
        return invalid_argument("row {} of the codes holds a value above 15: a 4-bit code takes a byte, and no more of it", n);
  q.codes = std::make_shared<CallersCodes>(t.codes, t.codes_stride);
  q.group_size = t.group_size;
  q.rows = t.rows;
  if (t.row_of_k) {
    q.row_of_k.assign(t.row_of_k, t.row_of_k + t.k);
    if (const auto [least, most] = std::minmax_element(q.row_of_k.begin(), q.row_of_k.end()); *least < 0 || *most >= t.rows)
      return invalid_argument("row_of_k goes from {} to {}, and there are {} scale rows", *least, *most, t.rows);
  }
  SF_ASSIGN(q.scales, plane_of(t.scales, t.scale_type, t.scale_stride_n, t.scale_stride_row,
                               {SF_BF16, SF_F16, SF_F32, SF_F8_E4M3, SF_F8_E8M0}, "scales"));
  q.zero = t.offsets ? 0 : default_zero(q.code);
  if (t.zeros) {
    SF_ASSIGN(q.zeros, plane_of(t.zeros, t.zero_type, t.zero_stride_n, t.zero_stride_row, {SF_U8, SF_I16}, "zeros"));
  }
  if (t.offsets) {
    SF_ASSIGN(q.offsets,
              plane_of(t.offsets, t.offset_type, t.offset_stride_n, t.offset_stride_row, {SF_BF16, SF_F16, SF_F32}, "offsets"));
  }
  q.global.value = t.global == 0 ? 1.0f : t.global;
  q.global.op = t.global_divides ? Global::Op::divide : Global::Op::multiply;
  return q;
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
const char* sf_last_error(void) { return last_error.c_str(); }

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

sf_status sf_weight_pack_tensors(const sf_tensor* tensors, size_t count, int threads, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("tensors, out", tensors, out));
    if (count == 0) return invalid_argument("no tensor was given to pack");
    std::vector<QuantTensor> parts;
    std::string packed_name;
    const std::size_t step = tensors->struct_size;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* at = reinterpret_cast<const sf_tensor*>(reinterpret_cast<const unsigned char*>(tensors) + i * step);
      if (at->struct_size != step)
        return invalid_argument("tensor {} has struct_size {}, tensor 0 has {}", i, at->struct_size, step);
      sf_tensor t;
      SF_TRY(read_struct(at, t));
      SF_ASSIGN(QuantTensor part, tensor_of(t));
      packed_name += (i ? "|" : "") + part.name;
      parts.push_back(std::move(part));
    }
    SF_ASSIGN(PackedWeight weight, pack(parts, std::move(packed_name), threads));
    *out = new sf_weight{std::move(weight), false, {}};
    return {};
  });
}

sf_status sf_gpus(sf_gpus_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    const Gpus& all = gpus();
    sf_gpus_info o{};
    o.count = static_cast<int>(all.found.size());
    o.driver = all.driver;
    o.runtime = all.runtime;
    o.machine_code = all.machine_code.empty() ? "" : all.machine_code.data();
    o.none = all.none.empty() ? nullptr : all.none.c_str();
    return write_struct(o, out);
  });
}

sf_status sf_gpu(int index, sf_gpu_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    const Gpus& all = gpus();
    if (index < 0 || static_cast<std::size_t>(index) >= all.found.size()) return usable_gpu(gpu_device(index)).status();
    const GpuInfo& gpu = all.found[static_cast<std::size_t>(index)];
    sf_gpu_info o{};
    o.name = gpu.name.c_str();
    o.compute_capability = gpu.arch;
    o.sms = gpu.sms;
    o.memory = static_cast<std::uint64_t>(gpu.memory);
    o.l2 = static_cast<std::uint64_t>(gpu.l2);
    o.unusable = gpu.unusable.empty() ? nullptr : gpu.unusable.c_str();
    return write_struct(o, out);
  });
}

sf_status sf_gpu_alloc(int index, size_t size, void** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    SF_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(gpu_device(index), size));
    *out = buffer.release();
    return {};
  });
}
sf_status sf_gpu_free(int index, void* memory) {
  return guarded([&]() -> Status {
    if (!memory) return {};
    SF_TRY(usable_gpu(gpu_device(index)).status());
    DeviceBuffer::adopt(gpu_device(index), memory);
    return {};
  });
}
sf_status sf_gpu_copy(int index, void* to, const void* from, size_t size, void* stream) {
  return guarded([&] { return copy(gpu_device(index), to, from, size, stream); });
}
sf_status sf_gpu_fill(int index, void* to, int byte, size_t size, void* stream) {
  return guarded([&] { return fill(gpu_device(index), to, byte, size, stream); });
}
sf_status sf_gpu_stream_create(int index, void** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    SF_ASSIGN(Stream stream, Stream::create(gpu_device(index)));
    *out = stream.release();
    return {};
  });
}
sf_status sf_gpu_stream_free(int index, void* stream) {
  return guarded([&]() -> Status {
    if (!stream) return {};
    SF_TRY(usable_gpu(gpu_device(index)).status());
    Stream::adopt(gpu_device(index), stream);
    return {};
  });
}
sf_status sf_gpu_synchronize(int index, void* stream) {
  return guarded([&] { return synchronize(gpu_device(index), stream); });
}

sf_status sf_weight_gpu_bytes(const sf_weight* weight, size_t* bytes) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, bytes", weight, bytes));
    *bytes = DeviceWeight::bytes(weight->view());
    return {};
  });
}
sf_status sf_weight_upload(const sf_weight* weight, int index, void* memory, size_t size, void* stream, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, out", weight, out));
    SF_TRY(host_data(*weight));
    SF_ASSIGN(DeviceWeight gpu, memory ? DeviceWeight::upload(weight->value, gpu_device(index), memory, size, stream)
                                       : DeviceWeight::upload(weight->value, gpu_device(index), stream));
    *out = on_gpu(weight->value.name, std::move(gpu));
    return {};
  });
}
sf_status sf_weight_borrow(const sf_weight* like, int index, void* memory, size_t size, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("like, out", like, out));
    if (like->described) return invalid_argument("the weight has a shape but no data");
    SF_ASSIGN(DeviceWeight gpu, DeviceWeight::at(like->view(), gpu_device(index), memory, size));
    *out = on_gpu(like->value.name, std::move(gpu));
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
    if (threads < 0) return invalid_argument("threads is {}: give a count, or 0 for all cores", threads);
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
