// Keys, checksums, and the JSON that holds them together.
#include "load/packed_cache.h"

#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/try.h"
#include "checkpoint/safetensors_writer.h"
#include "io/atomic_file.h"
#include "io/descriptor.h"
#include "io/page_cache.h"
#include "load/resident.h"
#include "pack/packed_writer.h"

namespace swordfish {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kFormat[] = "swordfish packed cache 2";
constexpr std::size_t kSumLine = 17;  // 16 digits and the end of the line
constexpr std::uint64_t kJsonLimit = std::uint64_t{1} << 30;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// XXH3 of a safetensors file's header, or of a GGUF file's first MiB.
Result<std::uint64_t> head_sum(const io::File& file) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) SF_TRY(file.read(0, sizeof length, &length));
  constexpr std::uint64_t kMost = std::uint64_t{1} << 20;
  const bool safetensors = file.path().ends_with(".safetensors") && length <= file.size() - sizeof length;
  SF_ASSIGN(const Buffer head,
            file.read(0, static_cast<std::size_t>(safetensors ? sizeof length + length : std::min(kMost, file.size()))));
  return std::uint64_t{XXH3_64bits(head.data(), head.size())};
}

Result<std::uint64_t> file_head_sum(const std::string& path) {
  SF_ASSIGN(const auto file, io::File::open(path));
  return head_sum(*file);
}

Result<std::uint64_t> parse_hex(const simdjson::dom::element& object, std::string_view key, const std::string& what) {
  SF_ASSIGN(const auto text, get_string(object, key, what));
  std::uint64_t value = 0;
  if (!text || text->size() != 16 ||
      std::from_chars(text->data(), text->data() + text->size(), value, 16).ptr != text->data() + text->size())
    return malformed("{}: '{}' is not a checksum", what, key);
  return value;
}

}  // namespace

Result<PackedCache> PackedCache::find(const std::string& path, const JobFiles& files, const LoadOptions& options) {
  Ordered made_of{{"format", kFormat},
                  {"version", SWORDFISH_VERSION},
                  {"layout", name(options.layout)},
                  {"layers", options.layers},
                  {"fuse", options.fuse},
                  {"rank", fmt::format("{}/{}", options.rank, options.ranks)},
                  {"whole_experts", options.whole_experts},
                  {"gptq_v1_zeros", static_cast<int>(options.open.gptq_v1_zeros)}};
  // Every file beside the tensors that decides what is loaded (formats/config.cc, checkpoint/shards.cc).
  const std::string folder = io::is_directory(path) ? path : io::folder_of(path);
  for (const char* config :
       {"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json", "model.safetensors.index.json"}) {
    const std::string file = fmt::format("{}/{}", folder, config);
    if (!io::exists(file)) continue;
    SF_ASSIGN(const std::string text, io::read_text(file, kJsonLimit));
    made_of[config] = hex(XXH3_64bits(text.data(), text.size()));
  }
  std::set<std::string> paths(files.paths.begin(), files.paths.end());
  if (!io::is_directory(path)) paths.insert(path);  // a GGUF file's first part may hold no tensor
  for (const std::string& shard : paths) {
    SF_ASSIGN(const auto file, io::File::open(shard));
    struct stat info = {};
    if (::stat(shard.c_str(), &info) != 0) return io_error("{}: cannot stat", shard);
    SF_ASSIGN(const std::uint64_t sum, head_sum(*file));
    made_of["files"].push_back({{"name", file->path().substr(file->path().rfind('/') + 1)},
                                {"size", file->size()},
                                {"time", fmt::format("{}.{:09}", info.st_mtim.tv_sec, info.st_mtim.tv_nsec)},
                                {"header", hex(sum)}});
  }
  PackedCache cache;
  cache.made_of_ = made_of.dump(-1, ' ', false, Ordered::error_handler_t::replace);
  const XXH128_hash_t key = XXH3_128bits(cache.made_of_.data(), cache.made_of_.size());
  cache.stem_ = fmt::format("{}/{:016x}{:016x}", options.cache, key.high64, key.low64);
  return cache;
}

bool PackedCache::exists() const { return io::exists(file(".manifest")); }

namespace {

// null: through the ring. What lies in the page cache whole is faster from there.
std::unique_ptr<DirectFiles> direct_files(const PackedJob& job, const LoadOptions& options, const JobHooks& hooks) {
  if (!options.direct || (hooks.device != nullptr && hooks.cufile == nullptr)) return nullptr;
  bool cached = true;
  for (const std::string& path : job.files().paths) {
    const io::Descriptor file(path);
    struct stat info = {};
    if (!file || ::fstat(file.fd(), &info) != 0) return nullptr;
    cached = cached && io::missing_from_cache(file.fd(), 0, static_cast<std::uint64_t>(info.st_size)).empty();
  }
  return cached ? nullptr : DirectFiles::open(job.files().paths, hooks.cufile);
}

}  // namespace

Status PackedCache::load(const LoadOptions& options, Uploader* uploader, const JobHooks& hooks, LoadedModel& model) const {
  const std::string manifest = file(".manifest");
  SF_ASSIGN(const std::string text, io::read_text(manifest, kJsonLimit));
  const std::size_t line = text.size() >= kSumLine ? text.size() - kSumLine : 0;
  if (text.substr(line) != hex(XXH3_64bits(text.data(), line)) + "\n")
    return malformed("{}: damaged: its checksum differs", manifest);
  SF_ASSIGN(const Json json, Json::parse(text.substr(0, line), manifest));
  const simdjson::dom::element root = json.root();
  SF_ASSIGN(const auto made_of, get_string(root, "made_of", manifest));
  if (!made_of || *made_of != made_of_) return malformed("{}: of another checkpoint than its name says", manifest);
  for (const auto& [key, path] :
       {std::pair{"packed_header", file(".packed.safetensors")}, std::pair{"plain_header", file(".plain.safetensors")}}) {
    SF_ASSIGN(const std::uint64_t expected, parse_hex(root, key, manifest));
    SF_ASSIGN(const std::uint64_t found, file_head_sum(path));
    if (expected != found) return malformed("{}: damaged: checksum of its header {}, expected {}", path, hex(found), hex(expected));
  }
  SF_ASSIGN(const auto layers, get_array(root, "layers", manifest));
  SF_ASSIGN(const auto tensors, get_array(root, "tensors", manifest));
  if (!layers || !tensors) return malformed("{}: 'layers' or 'tensors' is missing", manifest);

  PackedSums sums;
  struct More {
    std::int64_t experts = 0, first_expert = 0;
  };
  std::vector<More> more;
  for (const auto layer : simdjson::dom::array(*layers)) {
    SF_ASSIGN(const auto experts, get_int(layer, "experts", manifest));
    SF_ASSIGN(const auto first, get_int(layer, "first_expert", manifest));
    SF_ASSIGN(const auto list, get_array(layer, "sums", manifest));
    if (!experts || !first || !list) return malformed("{}: a layer lacks experts, first_expert or sums", manifest);
    more.push_back({*experts, *first});
    auto& entries = sums.weights.emplace_back();
    for (const auto sum : simdjson::dom::array(*list)) {
      SF_ASSIGN(const std::uint64_t value, parse_hex(sum, "xxh3", manifest));
      entries.push_back(value);
    }
  }
  std::vector<TensorInfo> infos;
  for (const auto tensor : simdjson::dom::array(*tensors)) {
    SF_ASSIGN(const auto type, get_string(tensor, "type", manifest));
    SF_ASSIGN(const auto shape, get_array(tensor, "shape", manifest));
    SF_ASSIGN(const std::uint64_t value, parse_hex(tensor, "xxh3", manifest));
    if (!type || !shape) return malformed("{}: a tensor lacks its type or shape", manifest);
    TensorInfo& info = infos.emplace_back();
    info.type = std::string(*type);
    for (const auto dim : simdjson::dom::array(*shape)) {
      std::int64_t size = 0;
      if (dim.get(size) != simdjson::SUCCESS) return malformed("{}: a tensor's shape is not of integers", manifest);
      info.shape.push_back(size);
    }
    sums.tensors.push_back(value);
  }

  SF_ASSIGN(const auto job, PackedJob::open(file(".packed.safetensors"), file(".plain.safetensors"), &sums));
  std::uint64_t direct = 0;
  if (uploader != nullptr) {
    job->upload_to(*uploader);
    if (const auto files = direct_files(*job, options, hooks)) {
      SF_TRY(job->read_direct(*files, options, model.report));
      direct = model.report.direct_bytes;
    }
  }
  SF_TRY(run_job(job->job(), options, model.report, hooks));
  model.report.source_bytes += direct;
  if (direct > 0) model.report.threads = std::max(model.report.threads, most_workers(options));
  if (direct > 0) model.report.engine = model.report.disk_bytes > 0 ? model.report.engine + ", cuFile" : "cuFile";
  SF_TRY(job->take(model));
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    model.layers[l].experts = more[l].experts;
    model.layers[l].first_expert = more[l].first_expert;
  }
  for (std::size_t t = 0; t < model.tensors.size(); ++t) {
    model.tensors[t].info.type = infos[t].type;
    model.tensors[t].info.shape = infos[t].shape;
  }
  model.report.from_packed = true;
  return {};
}

Status PackedCache::store(const LoadedModel& model, const LoadOptions& options) const {
  std::vector<PackedWriter::Layer> announced;
  Ordered layers = Ordered::array(), tensors = Ordered::array();
  for (const LoadedLayer& layer : model.layers) {
    const PackedView& first = view_of(layer, 0);
    const std::int64_t entries = layer.experts == 0 ? 0 : static_cast<std::int64_t>(entries_of(layer));
    PackedWriter::Layer out{layer.name, layer.scheme, first.code, first.k, entries, !layer.bias.empty(), {}};
    for (std::int64_t p = 0; p < first.n_parts; ++p)
      out.parts.push_back({first.parts[p].name, layer.weight_names[static_cast<std::size_t>(p)], first.parts[p].n});
    announced.push_back(std::move(out));
  }
  const std::string packed = file(".packed.safetensors"), plain = file(".plain.safetensors");
  SF_ASSIGN(PackedWriter writer, PackedWriter::create(packed, true, announced, options.layout));
  const std::uint64_t total = model.report.source_bytes;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    if (options.progress != nullptr && !options.progress({total, total, total, model.report.seconds}, options.user))
      return {Code::cancelled, fmt::format("{}: writing the packed cache was cancelled", packed)};
    const LoadedLayer& layer = model.layers[l];
    const auto n = static_cast<std::size_t>(view_of(layer, 0).n);
    Ordered sums = Ordered::array();
    for (std::size_t e = 0; e < entries_of(layer); ++e) {
      SF_ASSIGN(const HostWeight host, host_weight(layer, e));
      SF_TRY(writer.add_entry(announced[l], static_cast<std::int64_t>(e), *host.weight));
      const float* bias = layer.bias.empty() ? nullptr : layer.bias.data() + e * n;
      sums.push_back({{"xxh3", hex(sum_of(*host.weight, bias, bias == nullptr ? 0 : n))}});
    }
    layers.push_back({{"experts", layer.experts}, {"first_expert", layer.first_expert}, {"sums", std::move(sums)}});
  }
  for (std::size_t l = 0; l < model.layers.size(); ++l)
    if (!model.layers[l].bias.empty()) SF_TRY(writer.add_bias(announced[l], model.layers[l].bias));
  SF_TRY(writer.finish());

  std::vector<SafetensorsWriter::Entry> entries;
  entries.reserve(model.tensors.size());
  for (const LoadedTensor& tensor : model.tensors)
    entries.push_back({tensor.info.name, DType::u8, {static_cast<std::int64_t>(tensor.info.bytes)}});
  SF_ASSIGN(SafetensorsWriter plain_writer, SafetensorsWriter::create(plain, true, entries, {}));
  for (std::size_t t = 0; t < model.tensors.size(); ++t) {
    SF_ASSIGN(const HostBytes host, host_bytes(model, t));
    SF_TRY(plain_writer.write(t, 0, host.bytes.data(), host.bytes.size()));
    const TensorInfo& info = model.tensors[t].info;
    tensors.push_back({{"type", info.type}, {"shape", info.shape}, {"xxh3", hex(sum_of(host.bytes))}});
  }
  SF_TRY(plain_writer.commit());

  SF_ASSIGN(const std::uint64_t packed_sum, file_head_sum(packed));
  SF_ASSIGN(const std::uint64_t plain_sum, file_head_sum(plain));
  const Ordered manifest{{"made_of", made_of_},
                         {"packed_header", hex(packed_sum)},
                         {"plain_header", hex(plain_sum)},
                         {"layers", std::move(layers)},
                         {"tensors", std::move(tensors)}};
  std::string text = manifest.dump(-1, ' ', false, Ordered::error_handler_t::replace) + "\n";
  text += hex(XXH3_64bits(text.data(), text.size())) + "\n";
  return io::write_file(file(".manifest"), text, true);
}

}  // namespace swordfish
