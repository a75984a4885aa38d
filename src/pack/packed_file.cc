// PackedFile: reads what PackedWriter wrote (packed_format.h). Kernels trust a PackedView without looking, so everything that they
// index by is checked here against the real file: shapes and types when it is opened, gather and row_of_slice when they are loaded.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"
#include "pack/packed_format.h"

namespace swordfish {
namespace {

constexpr std::int64_t kMaxDim = std::int64_t{1} << 40;  // of n and k: far beyond any weight, and no sum of products overflows

// What an entry adds to its layer's shape, and where its planes lie.
struct Entry {
  PackedView shape;  // pointers null
  std::vector<PackedPart> parts;
  std::vector<std::pair<PackedPlane, const Tensor*>> planes;
};

struct FileLayer {
  std::vector<Entry> entries;
  const Tensor* bias = nullptr;
};

// One layer of the metadata, checked against the container's tensors.
class LayerReader {
 public:
  LayerReader(const Container& container, const std::string& path, Layout layout, std::size_t number)
      : container_(container), path_(path), layout_(layout), what_(fmt::format("{}: {}, layer {}", path, kLayersKey, number)) {}

  Status read(const simdjson::dom::element& json, PackedFile::Layer& layer, FileLayer& file) {
    SF_TRY(text(json, "name", layer.name));
    what_ = fmt::format("{}: layer '{}'", path_, printable(layer.name));
    SF_TRY(text(json, "scheme", layer.scheme));
    std::string code;
    SF_TRY(text(json, "code", code));
    PackedView& v = layer.shape;
    v.layout = layout_;
    bool known = false;
    for (const CodeType type : {CodeType::int4, CodeType::int8, CodeType::fp4}) {
      if (code != name(type)) continue;
      v.code = type;
      known = true;
    }
    if (!known) return malformed("{}: expected codes int4, int8 or fp4, found '{}'", what_, printable(code));
    SF_TRY(integer(json, "k", 1, std::numeric_limits<std::int32_t>::max(), v.k));
    SF_TRY(integer(json, "experts", 0, kMaxDim, layer.experts));
    SF_TRY(read_parts(json, layer));
    SF_ASSIGN(const auto entries, array(json, "entries"));
    const std::int64_t expected = std::max<std::int64_t>(1, layer.experts);
    if (static_cast<std::int64_t>(entries.size()) != expected) {
      return malformed("{}: expected {} entries, found {}", what_, expected, entries.size());
    }
    for (const auto entry : entries) {
      const auto e = static_cast<std::int64_t>(file.entries.size());
      file.entries.emplace_back();
      SF_TRY(read_entry(entry, entry_name(layer.name, layer.experts, e), layer, file.entries.back()));
      for (const auto& [plane, tensor] : file.entries.back().planes) layer.bytes += tensor->bytes;
    }
    layer.shape = file.entries.front().shape;
    layer.parts = file.entries.front().parts;
    file.bias = find(layer.name + ".bias");
    if (file.bias != nullptr) {
      const std::vector<std::int64_t> shape =
          layer.experts == 0 ? std::vector<std::int64_t>{v.n} : std::vector<std::int64_t>{layer.experts, v.n};
      SF_TRY(check(*file.bias, DType::f32, shape));
      layer.bias = file.bias->name;
      layer.bytes += file.bias->bytes;
    }
    return {};
  }

  std::size_t tensors = 0;  // found so far

 private:
  const Tensor* find(const std::string& tensor) {
    const Tensor* found = container_.find(tensor);
    tensors += found != nullptr;
    return found;
  }
  Status text(const simdjson::dom::element& json, std::string_view key, std::string& out) const {
    SF_ASSIGN(const auto value, get_string(json, key, what_));
    if (!value) return malformed("{}: '{}' is missing", what_, key);
    out = std::string(*value);
    return {};
  }
  Status integer(const simdjson::dom::element& json, std::string_view key, std::int64_t low, std::int64_t high,
                 std::int64_t& out) const {
    SF_ASSIGN(const auto value, get_int(json, key, what_));
    if (!value) return malformed("{}: '{}' is missing", what_, key);
    if (*value < low || *value > high) return malformed("{}: '{}' is {}, expected {} to {}", what_, key, *value, low, high);
    out = *value;
    return {};
  }
  Result<simdjson::dom::array> array(const simdjson::dom::element& json, std::string_view key) const {
    SF_ASSIGN(const auto value, get_array(json, key, what_));
    if (!value) return malformed("{}: '{}' is missing", what_, key);
    return simdjson::dom::array(*value);
  }
  Status check(const Tensor& tensor, DType dtype, const std::vector<std::int64_t>& shape) const {
    if (tensor.dtype == dtype && tensor.shape == shape) return {};
    return malformed("{}: tensor '{}': expected {} {}, found {} {}", what_, printable(tensor.name), name(dtype), shape_text(shape),
                     name(tensor.dtype), shape_text(tensor.shape));
  }

  Status read_parts(const simdjson::dom::element& json, PackedFile::Layer& layer) {
    SF_ASSIGN(const auto parts, array(json, "parts"));
    PackedView& v = layer.shape;
    for (const auto part : parts) {
      PackedPart read;
      SF_TRY(text(part, "name", read.name));
      SF_TRY(text(part, "weight", layer.weight_names.emplace_back()));
      SF_TRY(integer(part, "n", 1, kMaxDim - v.n, read.n));
      read.n0 = v.n;
      read.block0 = v.n_blocks;
      v.n += read.n;
      v.n_blocks += ceil_div(read.n, block_rows(layout_));
      layer.parts.push_back(std::move(read));
    }
    if (layer.parts.empty()) return malformed("{}: expected one part or more, found none", what_);
    return {};
  }

  Status read_globals(const simdjson::dom::element& json, std::vector<PackedPart>& parts) const {
    SF_ASSIGN(const auto globals, array(json, "globals"));
    if (globals.size() != parts.size()) return malformed("{}: expected {} globals, found {}", what_, parts.size(), globals.size());
    std::size_t p = 0;
    for (const auto global : globals) {
      simdjson::dom::array pair;
      double value = 0;
      std::string_view op;
      if (global.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(value) != simdjson::SUCCESS ||
          pair.at(1).get(op) != simdjson::SUCCESS || (op != "multiply" && op != "divide")) {
        return malformed("{}: global {}: expected [number, \"multiply\" or \"divide\"]", what_, p);
      }
      if (!(std::abs(value) <= std::numeric_limits<float>::max()) || static_cast<double>(static_cast<float>(value)) != value) {
        return malformed("{}: global {}: expected an fp32 value, found {}", what_, p, value);
      }
      parts[p++].global = {static_cast<float>(value), op == "multiply" ? Global::Op::multiply : Global::Op::divide};
    }
    return {};
  }

  Status read_entry(const simdjson::dom::element& json, const std::string& entry, const PackedFile::Layer& layer, Entry& out) {
    PackedView& v = out.shape;
    v = layer.shape;
    out.parts = layer.parts;
    SF_TRY(read_globals(json, out.parts));
    std::int64_t zero = 0;
    SF_TRY(integer(json, "group_size", 0, std::numeric_limits<std::int64_t>::max(), v.group_size));
    SF_TRY(integer(json, "zero", std::numeric_limits<std::int16_t>::min(), std::numeric_limits<std::int16_t>::max(), zero));
    v.zero = static_cast<int>(zero);

    const auto at = [&](const char* leaf) { return container_.find(entry + '.' + leaf); };
    const Tensor* codes = at("codes");
    const Tensor* scales = at("scales");
    if (codes == nullptr || scales == nullptr) {
      return malformed("{}: tensor '{}.{}' is missing", what_, printable(entry), codes == nullptr ? "codes" : "scales");
    }
    SF_TRY(layout_ == Layout::mma64_1 ? read_mma64(entry, *codes, *scales, v) : read_blockscaled(*scales, v));
    for (PackedPlane& plane : packed_planes(v)) {
      const Tensor* tensor = find(entry + '.' + plane.leaf);
      if (tensor == nullptr) continue;
      SF_TRY(check(*tensor, plane.dtype, plane.shape));
      out.planes.emplace_back(std::move(plane), tensor);
    }
    return {};
  }

  // Shapes and types that the file chooses: k_blocks and rows, and the element types of the three planes.
  Status read_mma64(const std::string& entry, const Tensor& codes, const Tensor& scales, PackedView& v) const {
    const auto at = [&](const char* leaf) { return container_.find(entry + '.' + leaf); };
    if (codes.shape.size() != 3 || scales.shape.size() != 3) {
      const Tensor& t = codes.shape.size() != 3 ? codes : scales;
      return malformed("{}: tensor '{}': expected 3 dimensions, found {}", what_, printable(t.name), shape_text(t.shape));
    }
    v.k_blocks = codes.shape[1];
    v.rows = scales.shape[1];
    SF_TRY(choose_type("scales", &scales, {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e8m0}, v.scale_type));
    SF_TRY(choose_type("zero points", at("zeros"), {DType::u8, DType::i16}, v.zero_type));
    SF_TRY(choose_type("offsets", at("offsets"), {DType::f16, DType::bf16, DType::f32}, v.offset_type));
    const bool gathered = at("gather") != nullptr, irregular = at("row_of_slice") != nullptr;
    if (at("zeros") != nullptr && at("offsets") != nullptr)
      return malformed("{}: both zeros and offsets; expected one at most", what_);
    // The reader of the container has checked sizes against the file, so that neither is larger than the file.
    if (v.k_blocks < 1 || v.k_blocks > kMaxDim / v.block_k() || v.rows < 1 || v.rows > std::numeric_limits<std::int32_t>::max()) {
      return malformed("{}: {} blocks along K and {} scale rows; expected at least one and fewer than 2^31", what_, v.k_blocks,
                       v.rows);
    }
    if (gathered ? v.packed_k() < v.k || v.packed_k() > std::numeric_limits<std::int32_t>::max()
                 : v.k_blocks != ceil_div(v.k, v.block_k())) {
      return malformed("{}: tensor '{}': {} blocks along K do not fit K = {}", what_, printable(codes.name), v.k_blocks, v.k);
    }
    if (!irregular) {
      const std::int64_t g = v.group_size;
      const bool fits = v.rows == 1 ? g == v.packed_k() : g >= mma64::slice_k && (g & (g - 1)) == 0;
      const bool covers = gathered || (g > 0 && (v.k - 1) / g < v.rows);
      if (!fits || !covers) return malformed("{}: group_size {} with {} scale rows does not fit K = {}", what_, g, v.rows, v.k);
    } else if (v.group_size != 0) {
      return malformed("{}: group_size {} beside row_of_slice; expected 0", what_, v.group_size);
    }
    return {};
  }

  // The file chooses the group size and the type of the scales; shapes follow.
  Status read_blockscaled(const Tensor& scales, PackedView& v) const {
    if (v.code != CodeType::fp4 || v.zero != 0 || (v.group_size != 16 && v.group_size != 32)) {
      return malformed("{}: {} codes, zero {}, group_size {}; layout {} has fp4, 0 and 16 or 32", what_, name(v.code), v.zero,
                       v.group_size, name(layout_));
    }
    v.rows = ceil_div(v.k, v.group_size);
    v.k_blocks = sm1xx::k_atoms(v.rows);
    return choose_type("scales", &scales, {DType::f8_e4m3, DType::f8_e8m0}, v.scale_type);
  }

  Status choose_type(std::string_view plane, const Tensor* tensor, std::initializer_list<DType> allowed, DType& out) const {
    if (tensor == nullptr) return {};
    if (std::find(allowed.begin(), allowed.end(), tensor->dtype) == allowed.end()) {
      return malformed("{}: tensor '{}': {} cannot be {}", what_, printable(tensor->name), plane, name(tensor->dtype));
    }
    out = tensor->dtype;
    return {};
  }

  const Container& container_;
  const std::string& path_;
  Layout layout_;
  std::string what_;
};

// gather: each column once, else −1.
Status check_gather(const PackedView& v, const std::string& what) {
  std::vector<bool> seen(static_cast<std::size_t>(v.k));
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < v.packed_k(); ++j) {
    const std::int64_t column = v.gather[j];
    if (column == -1) continue;
    if (column < 0 || column >= v.k) return malformed("{}: element {} is {}, expected -1 to {}", what, j, column, v.k - 1);
    if (seen[static_cast<std::size_t>(column)])
      return malformed("{}: element {}: column {} is there a second time", what, j, column);
    seen[static_cast<std::size_t>(column)] = true;
    ++count;
  }
  if (count != v.k) return malformed("{}: expected {} columns, found {}", what, v.k, count);
  return {};
}

Status check_row_of_slice(const PackedView& v, const std::string& what) {
  for (std::int64_t s = 0; s < v.packed_k() / mma64::slice_k; ++s) {
    if (v.row_of_slice[s] < 0 || v.row_of_slice[s] >= v.rows) {
      return malformed("{}: element {} is {}, expected 0 to {}", what, s, v.row_of_slice[s], v.rows - 1);
    }
  }
  return {};
}

}  // namespace

struct PackedFile::Impl {
  std::string path;
  Container container;
  std::vector<Layer> layers;
  std::vector<FileLayer> files;

  Status check_expert(std::size_t layer, std::int64_t expert) const {
    if (layer >= layers.size()) return invalid_argument("{}: layer {}; the file has {}", path, layer, layers.size());
    const std::int64_t count = std::max<std::int64_t>(1, layers[layer].experts);
    if (expert < 0 || expert >= count) return invalid_argument("{}: {}: expert {} of {}", path, layers[layer].name, expert, count);
    return {};
  }
};

PackedFile::PackedFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PackedFile::PackedFile(PackedFile&&) noexcept = default;
PackedFile& PackedFile::operator=(PackedFile&&) noexcept = default;
PackedFile::~PackedFile() = default;

const std::string& PackedFile::path() const { return impl_->path; }
const std::vector<PackedFile::Layer>& PackedFile::layers() const { return impl_->layers; }

const Container& PackedFileAccess::tensors(const PackedFile& file) { return file.impl_->container; }

bool PackedFile::is_packed(const std::string& path) {
  if (!io::exists(path) || io::is_directory(path)) return false;
  const Result<Container> container = open_safetensors_file(path);
  return container.ok() && container->metadata.contains(kLayoutKey);
}

Result<PackedFile> PackedFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  SF_ASSIGN(impl->container, open_safetensors_file(path));
  const auto& metadata = impl->container.metadata;
  const auto layout = metadata.find(kLayoutKey), list = metadata.find(kLayersKey);
  if (layout == metadata.end()) return unsupported("{}: not a packed file: its metadata has no '{}'", path, kLayoutKey);
  const bool blockscaled = layout->second == name(Layout::sm1xx_blockscaled_1);
  if (!blockscaled && layout->second != name(Layout::mma64_1)) {
    return unsupported("{}: layout '{}'; this version reads {} and {}", path, printable(layout->second), name(Layout::mma64_1),
                       name(Layout::sm1xx_blockscaled_1));
  }
  if (list == metadata.end()) return malformed("{}: its metadata has no '{}'", path, kLayersKey);
  SF_ASSIGN(const Json json, Json::parse(list->second, fmt::format("{}: {}", path, kLayersKey)));
  SF_TRY(check_no_duplicate_keys(json.root(), json.what()));
  simdjson::dom::array layers;
  if (json.root().get(layers) != simdjson::SUCCESS) {
    return malformed("{}: expected array, found {}", json.what(), json_kind(json.root()));
  }
  std::size_t tensors = 0;
  for (const auto layer : layers) {
    LayerReader reader(impl->container, impl->path, blockscaled ? Layout::sm1xx_blockscaled_1 : Layout::mma64_1,
                       impl->layers.size());
    impl->layers.emplace_back();
    impl->files.emplace_back();
    SF_TRY(reader.read(layer, impl->layers.back(), impl->files.back()));
    tensors += reader.tensors;
  }
  if (tensors != impl->container.tensors.size()) {
    return malformed("{}: expected {} tensors by its metadata, found {}", path, tensors, impl->container.tensors.size());
  }
  return PackedFile(std::move(impl));
}

Result<PackedWeight> PackedFile::load(std::size_t layer, std::int64_t expert) const {
  SF_TRY(impl_->check_expert(layer, expert));
  const Entry& entry = impl_->files[layer].entries[static_cast<std::size_t>(expert)];
  PackedWeight weight;
  weight.view = entry.shape;
  weight.parts = entry.parts;
  weight.name = impl_->layers[layer].name;
  for (const auto& [plane, tensor] : entry.planes) {
    SF_ASSIGN(weight.*plane.buffer, impl_->container.read(*tensor));
  }
  bind(weight);
  const auto what = [&](const char* leaf) {
    return fmt::format("{}: tensor '{}.{}'", impl_->path, printable(entry_name(weight.name, impl_->layers[layer].experts, expert)),
                       leaf);
  };
  if (weight.view.gather != nullptr) SF_TRY(check_gather(weight.view, what("gather")));
  if (weight.view.row_of_slice != nullptr) SF_TRY(check_row_of_slice(weight.view, what("row_of_slice")));
  return weight;
}

Result<std::optional<std::vector<float>>> PackedFile::load_bias(std::size_t layer, std::int64_t expert) const {
  SF_TRY(impl_->check_expert(layer, expert));
  const Tensor* bias = impl_->files[layer].bias;
  if (bias == nullptr) return std::optional<std::vector<float>>();
  std::vector<float> values(static_cast<std::size_t>(impl_->layers[layer].shape.n));
  const std::size_t size = values.size() * sizeof(float);
  SF_TRY(impl_->container.read(*bias, static_cast<std::uint64_t>(expert) * size, size, values.data()));
  return std::optional(std::move(values));
}

}  // namespace swordfish
