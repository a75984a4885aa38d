// quantize_checkpoint(): plans the output file from the headers of the input, then reads, quantizes and writes one tensor at a
// time.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"
#include "formats/format.h"
#include "formats/fused.h"
#include "formats/patterns.h"
#include "io/atomic_file.h"
#include "quant/output_folder.h"
#include "quant/quantize.h"
#include "swordfish/quantize.h"

namespace swordfish {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::uint64_t kCopyBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;

struct Output {
  std::string name;
  DType type = DType::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the data section
};

// One tensor of the input and what becomes of it.
struct Job {
  const Tensor* source = nullptr;
  std::string module;                // set when it is quantized
  std::vector<std::size_t> outputs;  // in the order in which quantize() makes them; one for a copy
  float global = 1;                  // NVFP4
};

bool is_dense(DType type) { return type == DType::bf16 || type == DType::f16 || type == DType::f32; }

bool is_integer(QuantizeScheme scheme) { return scheme == QuantizeScheme::int4 || scheme == QuantizeScheme::int8; }

int code_bits(QuantizeScheme scheme) { return scheme == QuantizeScheme::int8 ? 8 : 4; }

std::string json_text(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user)
      : options_(options), progress_(progress), user_(user), pool_(options.threads) {}

  Result<QuantizeReport> run(const std::string& path, const std::string& out);

 private:
  Status check_options() const;
  Status open(const std::string& path);
  Status plan();
  Status plan_quantized(Job& job);
  void add_output(Job& job, std::string name, DType type, std::vector<std::int64_t> shape);
  Status find_globals();
  Result<Buffer> read_dense(const Tensor& tensor) const;
  Status write_model(const std::string& path);
  Status copy(const Job& job, io::AtomicFile& file);
  Status quantize(const Job& job, io::AtomicFile& file);
  Status write_text(const std::string& path, const std::string& text) const;
  OrderedJson quantization_config() const;
  Status report(std::uint64_t bytes);

  std::int64_t group_of(std::int64_t k) const {
    if (options_.scheme == QuantizeScheme::nvfp4) return 16;
    if (options_.scheme == QuantizeScheme::mxfp4) return 32;
    return options_.group_size == -1 ? k : options_.group_size;
  }

  const QuantizeOptions& options_;
  bool (*progress_)(std::uint64_t, std::uint64_t, void*);
  void* user_;
  ThreadPool pool_;
  Container container_;
  OrderedJson config_ = OrderedJson::object();  // of the input
  std::vector<Job> jobs_;
  std::vector<Output> outputs_;
  std::vector<std::string> ignored_;  // modules that stay dense
  std::uint64_t data_start_ = 0, done_bytes_ = 0, total_bytes_ = 0;
  QuantizeReport report_;
};

Status Quantizer::check_options() const {
  if (!is_integer(options_.scheme)) return {};
  if (options_.group_size != -1 && (options_.group_size < 16 || options_.group_size % 16 != 0)) {
    return invalid_argument("group size {}; expected a multiple of 16, or -1 for one scale a row", options_.group_size);
  }
  if (!is_dense(options_.scale_type))
    return invalid_argument("scales of type {}; expected BF16, F16 or F32", name(options_.scale_type));
  return {};
}

Status Quantizer::open(const std::string& path) {
  const bool folder = io::is_directory(path);
  if (folder) {
    SF_ASSIGN(container_, open_safetensors_folder(path, "", ""));
  } else {
    SF_ASSIGN(container_, open_safetensors_file(path));
  }
  const std::filesystem::path config =
      (folder ? std::filesystem::path(path) : std::filesystem::path(path).parent_path()) / "config.json";
  if (!io::exists(config)) return {};
  SF_ASSIGN(const std::string text, io::read_text(config, kMaxConfigBytes));
  SF_ASSIGN(const Json json, Json::parse(text, config));
  SF_TRY(check_no_duplicate_keys(json.root(), config.string()));
  SF_ASSIGN(const auto quantized, get_value(json.root(), "quantization_config", config.string()));
  if (quantized) return unsupported("{}: key 'quantization_config' is there: the checkpoint is quantized already", config.string());
  config_ = OrderedJson::parse(simdjson::minify(json.root()), nullptr, false);
  if (!config_.is_object()) return malformed("{}: expected a JSON object", config.string());
  return {};
}

void Quantizer::add_output(Job& job, std::string name, DType type, std::vector<std::int64_t> shape) {
  std::uint64_t bytes = static_cast<std::uint64_t>(bits(type)) / 8;
  for (const std::int64_t dim : shape)
    bytes *= static_cast<std::uint64_t>(dim);  // no larger than the input's tensor, but for 4-byte padding
  job.outputs.push_back(outputs_.size());
  outputs_.push_back({std::move(name), type, std::move(shape), bytes, 0});
}

Status Quantizer::plan_quantized(Job& job) {
  const std::int64_t n = job.source->shape[0], k = job.source->shape[1], group = group_of(k);
  if (n == 0 || k == 0 || k % group != 0) {
    return invalid_argument(
        "{}: module '{}' has shape {}: K = {} is not a positive multiple of the group size {}; choose another or leave it "
        "out by its name",
        container_.path_of(*job.source), printable(job.module), shape_text(job.source->shape), k, group);
  }
  const std::int64_t groups = k / group, per_word = 32 / code_bits(options_.scheme);
  switch (options_.scheme) {
    case QuantizeScheme::nvfp4:
      add_output(job, job.module + ".weight", DType::u8, {n, k / 2});
      add_output(job, job.module + ".weight_scale", DType::f8_e4m3, {n, groups});
      add_output(job, job.module + ".weight_scale_2", DType::f32, {});
      break;
    case QuantizeScheme::mxfp4:
      add_output(job, job.module + ".weight_packed", DType::u8, {n, k / 2});
      add_output(job, job.module + ".weight_scale", DType::u8, {n, groups});
      break;
    default:
      add_output(job, job.module + ".weight_packed", DType::i32, {n, (k + per_word - 1) / per_word});
      add_output(job, job.module + ".weight_scale", options_.scale_type, {n, groups});
      add_output(job, job.module + ".weight_shape", DType::i64, {2});
      if (!options_.symmetric)
        add_output(job, job.module + ".weight_zero_point", DType::i32, {(n + per_word - 1) / per_word, groups});
  }
  return {};
}

Status Quantizer::plan() {
  std::optional<Pattern> layers;
  if (!options_.layers.empty()) {
    SF_ASSIGN(layers, Pattern::compile(options_.layers, "layers"));
  }
  for (const Tensor& tensor : container_.tensors) {
    Job job;
    job.source = &tensor;
    report_.source_bytes += tensor.bytes;
    constexpr std::string_view leaf = ".weight";
    if (tensor.shape.size() == 2 && is_dense(tensor.dtype) && tensor.name.ends_with(leaf)) {
      const std::string module = tensor.name.substr(0, tensor.name.size() - leaf.size());
      bool chosen = !tensors_decide(module);
      if (chosen && layers) {
        SF_ASSIGN(chosen, layers->search(module));
      }
      if (chosen) {
        job.module = module;
        SF_TRY(plan_quantized(job));
        ++report_.quantized;
      } else {
        ignored_.push_back(module);
      }
    }
    if (job.module.empty()) {
      add_output(job, tensor.name, tensor.dtype, tensor.shape);
      outputs_.back().bytes = tensor.bytes;
      ++report_.copied;
    }
    jobs_.push_back(std::move(job));
  }
  if (report_.quantized == 0)
    return invalid_argument("nothing to quantize: no two-dimensional <module>.weight of BF16, F16 or F32 is chosen");
  std::set<std::string_view> names;
  for (const Output& output : outputs_) {
    if (!names.insert(output.name).second)
      return malformed("tensor '{}' of the input has a name that the output needs", printable(output.name));
  }
  total_bytes_ = report_.source_bytes;
  return {};
}

Result<Buffer> Quantizer::read_dense(const Tensor& tensor) const {
  SF_ASSIGN(Buffer data, container_.read(tensor));
  SF_TRY(check_weights(container_, tensor, data.data(), tensor.bytes / (static_cast<std::uint64_t>(bits(tensor.dtype)) / 8)));
  return data;
}

// Parts that engines fuse get one global, as other writers do it: engines that keep one value a fused module then read the file
// right.
Status Quantizer::find_globals() {
  std::map<std::string, double, std::less<>> largest;
  const auto key = [](const std::string& module) {
    const auto place = fused_place(module);
    return place ? place->fused : module;
  };
  for (const Job& job : jobs_) {
    if (job.module.empty()) continue;
    total_bytes_ += job.source->bytes;  // these are read twice
  }
  for (const Job& job : jobs_) {
    if (job.module.empty()) continue;
    SF_ASSIGN(const Buffer data, read_dense(*job.source));
    double& amax = largest[key(job.module)];
    amax = std::max(amax, largest_magnitude({job.source->dtype, data.data(), job.source->shape[0], job.source->shape[1]}, pool_));
    SF_TRY(report(job.source->bytes));
  }
  for (Job& job : jobs_) {
    if (!job.module.empty()) job.global = nvfp4_global(largest[key(job.module)]);
  }
  return {};
}

Status Quantizer::report(std::uint64_t bytes) {
  done_bytes_ += bytes;
  if (progress_ && !progress_(done_bytes_, total_bytes_, user_)) return {Code::cancelled, "cancelled"};
  return {};
}

Status Quantizer::copy(const Job& job, io::AtomicFile& file) {
  const std::uint64_t bytes = job.source->bytes, to = data_start_ + outputs_[job.outputs[0]].offset;
  Buffer chunk(static_cast<std::size_t>(std::min(bytes, kCopyBytes)));
  for (std::uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const auto size = static_cast<std::size_t>(std::min(kCopyBytes, bytes - at));
    SF_TRY(container_.read(*job.source, at, size, chunk.data()));
    SF_TRY(file.write(to + at, chunk.data(), size));
    SF_TRY(report(size));
  }
  return {};
}

Status Quantizer::quantize(const Job& job, io::AtomicFile& file) {
  const Tensor& source = *job.source;
  SF_ASSIGN(const Buffer data, read_dense(source));
  const DenseMatrix w{source.dtype, data.data(), source.shape[0], source.shape[1]};
  const auto write = [&](std::size_t part, const void* bytes) {
    const Output& output = outputs_[job.outputs[part]];
    return file.write(data_start_ + output.offset, bytes, static_cast<std::size_t>(output.bytes));
  };
  QuantizedMatrix q;
  switch (options_.scheme) {
    case QuantizeScheme::nvfp4: q = quantize_nvfp4(w, job.global, pool_); break;
    case QuantizeScheme::mxfp4: q = quantize_mxfp4(w, pool_); break;
    default:
      q = quantize_integers(w, code_bits(options_.scheme), options_.symmetric, group_of(w.k), options_.scale_type, pool_);
      if (options_.scale_type == DType::f16) {
        const Output& scale = outputs_[job.outputs[1]];
        if (!check_scales(container_, source, q.scales.data(), scale.bytes / 2, DType::f16).ok()) {
          return unsupported("{}: tensor '{}': a scale is beyond the range of F16; choose BF16 or F32 scales",
                             container_.path_of(source), printable(source.name));
        }
      }
  }
  SF_TRY(write(0, q.codes.data()));
  SF_TRY(write(1, q.scales.data()));
  if (options_.scheme == QuantizeScheme::nvfp4) SF_TRY(write(2, &job.global));
  if (is_integer(options_.scheme)) {
    SF_TRY(write(2, source.shape.data()));
    if (!options_.symmetric) SF_TRY(write(3, q.zeros.data()));
  }
  return report(source.bytes);
}

Status Quantizer::write_model(const std::string& path) {
  // Widest elements first, so that everything is aligned by nature; the header is padded to 8 bytes.
  std::vector<std::size_t> order(outputs_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bits(outputs_[a].type) > bits(outputs_[b].type); });
  OrderedJson header = OrderedJson::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    Output& output = outputs_[i];
    output.offset = end;
    end += output.bytes;
    header[output.name] = {{"dtype", name(output.type)}, {"shape", output.shape}, {"data_offsets", {output.offset, end}}};
  }
  std::string text = json_text(header, -1);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  data_start_ = sizeof length + length;
  report_.written_bytes = data_start_ + end;

  SF_ASSIGN(const std::unique_ptr<io::AtomicFile> file, io::AtomicFile::create(path, false));
  SF_TRY(file->write(0, &length, sizeof length));
  SF_TRY(file->write(sizeof length, text.data(), text.size()));
  for (const Job& job : jobs_) SF_TRY(job.module.empty() ? copy(job, *file) : quantize(job, *file));
  return file->commit();
}

OrderedJson Quantizer::quantization_config() const {
  if (options_.scheme == QuantizeScheme::nvfp4) {
    return {{"config_groups",
             {{"group_0",
               {{"weights", {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}}},
                {"targets", OrderedJson::array({"Linear"})}}}}},
            {"ignore", ignored_},
            {"quant_algo", "W4A16_NVFP4"},
            {"producer", {{"name", "swordfish"}, {"version", SWORDFISH_VERSION}}},
            {"quant_method", "modelopt"}};
  }
  const bool integer = is_integer(options_.scheme), channel = integer && options_.group_size == -1;
  const char* format = integer ? "pack-quantized" : "mxfp4-pack-quantized";
  OrderedJson weights = {{"num_bits", code_bits(options_.scheme)},
                         {"type", integer ? "int" : "float"},
                         {"symmetric", !integer || options_.symmetric},
                         {"strategy", channel ? "channel" : "group"},
                         {"group_size", channel ? OrderedJson() : OrderedJson(group_of(0))},
                         {"actorder", nullptr},
                         {"block_structure", nullptr},
                         {"dynamic", false},
                         {"observer", "minmax"},
                         {"observer_kwargs", OrderedJson::object()}};
  if (!integer) weights["scale_dtype"] = "torch.uint8";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", ignored_},
          {"config_groups",
           {{"group_0",
             {{"targets", OrderedJson::array({"Linear"})},
              {"input_activations", nullptr},
              {"output_activations", nullptr},
              {"weights", std::move(weights)}}}}}};
}

Status Quantizer::write_text(const std::string& path, const std::string& text) const {
  SF_ASSIGN(const std::unique_ptr<io::AtomicFile> file, io::AtomicFile::create(path, false));
  SF_TRY(file->write(0, text.data(), text.size()));
  return file->commit();
}

Result<QuantizeReport> Quantizer::run(const std::string& path, const std::string& out) {
  SF_TRY(check_options());
  SF_TRY(open(path));
  SF_TRY(plan());
  std::error_code ignored;
  if (std::filesystem::equivalent(path, out, ignored)) return invalid_argument("{}: the output cannot replace the input", out);
  SF_TRY(report(0));  // the input is sound: from here on it is the output that can fail
  SF_ASSIGN(const std::unique_ptr<OutputFolder> folder,
            OutputFolder::create(out, options_.force, {"model.safetensors", "config.json", "hf_quant_config.json"}));
  if (options_.scheme == QuantizeScheme::nvfp4) SF_TRY(find_globals());
  SF_TRY(write_model(folder->file("model.safetensors")));
  config_["quantization_config"] = quantization_config();
  SF_TRY(write_text(folder->file("config.json"), json_text(config_, 2) + "\n"));
  if (options_.scheme == QuantizeScheme::nvfp4) {
    const OrderedJson facts = {
        {"producer", {{"name", "swordfish"}, {"version", SWORDFISH_VERSION}}},
        {"quantization",
         {{"quant_algo", "W4A16_NVFP4"}, {"kv_cache_quant_algo", nullptr}, {"group_size", 16}, {"exclude_modules", ignored_}}}};
    SF_TRY(write_text(folder->file("hf_quant_config.json"), json_text(facts, 2) + "\n"));
  }
  SF_TRY(folder->commit());
  return report_;
}

}  // namespace

std::string_view name(QuantizeScheme scheme) {
  switch (scheme) {
    case QuantizeScheme::int4: return "int4";
    case QuantizeScheme::int8: return "int8";
    case QuantizeScheme::nvfp4: return "nvfp4";
    case QuantizeScheme::mxfp4: return "mxfp4";
  }
  return "unknown";
}

std::optional<QuantizeScheme> parse_quantize_scheme(std::string_view text) {
  for (const auto scheme : {QuantizeScheme::int4, QuantizeScheme::int8, QuantizeScheme::nvfp4, QuantizeScheme::mxfp4}) {
    if (name(scheme) == text) return scheme;
  }
  return std::nullopt;
}

Result<QuantizeReport> quantize_checkpoint(const std::string& path, const std::string& out, const QuantizeOptions& options,
                                           bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user) {
  return Quantizer(options, progress, user).run(path, out);
}

}  // namespace swordfish
