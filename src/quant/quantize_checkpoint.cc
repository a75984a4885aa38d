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
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"
#include "checkpoint/safetensors_writer.h"
#include "formats/config.h"
#include "formats/format.h"
#include "formats/fused.h"
#include "formats/patterns.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "quant/quantize.h"
#include "swordfish/quantize.h"

namespace swordfish {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::uint64_t kCopyBytes = std::uint64_t{16} << 20;

struct Output {
  std::string name;
  DType type = DType::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::size_t entry = 0;  // its number in the file
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

std::string json_text(const OrderedJson& json) { return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n"; }

// The configuration of the input, kept so that it can be written again with other keys. JSON has no NaN and infinities, but Python
// writes them: here each is a string that begins with `mark`, which nothing else in the file contains.
struct ModelConfig {
  OrderedJson json = OrderedJson::object();
  std::string mark = "not finite: ";

  void read(const std::string& text) {
    const auto parse = [&](auto&& replacement) {
      return OrderedJson::parse(replace_non_finite(text, replacement), nullptr, false);
    };
    const std::string others = json_text(parse([](std::string_view) { return "null"; }));
    while (others.find(mark) != std::string::npos) mark += '#';
    json = parse([&](std::string_view word) { return '"' + mark + std::string(word) + '"'; });
  }

  std::string text() const {
    std::string out = json_text(json);
    for (std::size_t at = 0; (at = out.find('"' + mark, at)) != std::string::npos;) {
      const std::size_t word = at + 1 + mark.size(), end = out.find('"', word);
      out.replace(at, end + 1 - at, out.substr(word, end - word));
    }
    return out;
  }
};

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
  Status copy(const Job& job, SafetensorsWriter& file);
  Status quantize(const Job& job, SafetensorsWriter& file);
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
  ModelConfig config_;
  std::vector<Job> jobs_;
  std::vector<Output> outputs_;
  std::vector<std::string> ignored_;  // modules that stay dense
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
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
  SF_ASSIGN(const Json json, parse_config(text, config.string()));
  SF_ASSIGN(const auto quantized, get_value(json.root(), "quantization_config", config.string()));
  if (quantized) return unsupported("{}: key 'quantization_config' is there: the checkpoint is quantized already", config.string());
  config_.read(text);
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

Status Quantizer::copy(const Job& job, SafetensorsWriter& file) {
  const std::uint64_t bytes = job.source->bytes;
  Buffer chunk(static_cast<std::size_t>(std::min(bytes, kCopyBytes)));
  for (std::uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const auto size = static_cast<std::size_t>(std::min(kCopyBytes, bytes - at));
    SF_TRY(container_.read(*job.source, at, size, chunk.data()));
    SF_TRY(file.write(outputs_[job.outputs[0]].entry, at, chunk.data(), size));
    SF_TRY(report(size));
  }
  return {};
}

Status Quantizer::quantize(const Job& job, SafetensorsWriter& file) {
  const Tensor& source = *job.source;
  SF_ASSIGN(const Buffer data, read_dense(source));
  const DenseMatrix w{source.dtype, data.data(), source.shape[0], source.shape[1]};
  const auto write = [&](std::size_t part, const void* bytes) {
    const Output& output = outputs_[job.outputs[part]];
    return file.write(output.entry, 0, bytes, static_cast<std::size_t>(output.bytes));
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
  std::vector<std::size_t> order(outputs_.size());  // widest elements first, so that everything is aligned
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bits(outputs_[a].type) > bits(outputs_[b].type); });
  std::vector<SafetensorsWriter::Entry> entries;
  for (const std::size_t i : order) {
    Output& output = outputs_[i];
    output.entry = entries.size();
    entries.push_back({output.name, output.type, output.shape});
  }
  SF_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(path, false, entries, {{"format", "pt"}}));
  report_.written_bytes = file.file_bytes();
  for (const Job& job : jobs_) SF_TRY(job.module.empty() ? copy(job, file) : quantize(job, file));
  return file.commit();
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

Result<QuantizeReport> Quantizer::run(const std::string& path, const std::string& out) {
  SF_TRY(check_options());
  SF_TRY(open(path));
  SF_TRY(plan());
  std::error_code ignored;
  if (std::filesystem::equivalent(path, out, ignored)) return invalid_argument("{}: the output cannot replace the input", out);
  SF_TRY(report(0));  // the input is sound: from here on it is the output that can fail
  SF_ASSIGN(const std::unique_ptr<io::OutputFolder> folder,
            io::OutputFolder::create(out, options_.force, {"model.safetensors", "config.json", "hf_quant_config.json"}));
  if (options_.scheme == QuantizeScheme::nvfp4) SF_TRY(find_globals());
  SF_TRY(write_model(folder->file("model.safetensors")));
  config_.json["quantization_config"] = quantization_config();
  SF_TRY(folder->write_text("config.json", config_.text()));
  if (options_.scheme == QuantizeScheme::nvfp4) {
    const OrderedJson facts = {
        {"producer", {{"name", "swordfish"}, {"version", SWORDFISH_VERSION}}},
        {"quantization",
         {{"quant_algo", "W4A16_NVFP4"}, {"kv_cache_quant_algo", nullptr}, {"group_size", 16}, {"exclude_modules", ignored_}}}};
    SF_TRY(folder->write_text("hf_quant_config.json", json_text(facts)));
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
