// Writing a packed file: data behind a reserved header, the header at the end.
#include "pack/packed_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/try.h"
#include "pack/packed_format.h"

namespace swordfish {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kHeaderLimit = 100'000'000;  // of safetensors
constexpr std::uint64_t kDataAlignment = 4096;

// Bytes that are not UTF-8 (GGUF names may hold any) become U+FFFD, in the header and in the metadata alike.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string tensor_text(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, std::uint64_t begin,
                        std::uint64_t end) {
  return dump(Json(name)) + ':' + dump(Json{{"dtype", swordfish::name(dtype)}, {"shape", shape}, {"data_offsets", {begin, end}}});
}

std::string entry_text(std::int64_t group_size, int zero, const std::vector<PackedPart>& parts) {
  Json globals = Json::array();
  for (const PackedPart& part : parts) {
    globals.push_back({static_cast<double>(part.global.value), part.global.op == Global::Op::multiply ? "multiply" : "divide"});
  }
  return dump(Json{{"group_size", group_size}, {"zero", zero}, {"globals", std::move(globals)}});
}

std::string layer_text(const PackedWriter::Layer& layer, const std::string& entries) {
  Json parts = Json::array();
  for (const auto& part : layer.parts) parts.push_back({{"name", part.name}, {"weight", part.weight_name}, {"n", part.n}});
  const std::string head = dump(Json{{"name", layer.name},
                                     {"scheme", layer.scheme},
                                     {"code", name(layer.code)},
                                     {"k", layer.k},
                                     {"experts", layer.experts},
                                     {"parts", std::move(parts)}});
  return head.substr(0, head.size() - 1) + ",\"entries\":[" + entries + "]}";
}

std::string header_text(Layout layout, const std::string& layers, const std::string& tensors) {
  const Json metadata{{kLayoutKey, name(layout)}, {kVersionKey, SWORDFISH_VERSION}, {kLayersKey, '[' + layers + ']'}};
  return "{\"__metadata__\":" + dump(metadata) + (tensors.empty() ? "" : ",") + tensors + '}';
}

void add_element(std::string& list, const std::string& element) {
  if (!list.empty()) list += ',';
  list += element;
}

// The longest that the header can become: every optional plane, numbers of the most digits. Only counts, holds one layer at a time.
std::uint64_t longest_header(Layout layout, const std::vector<PackedWriter::Layer>& layers) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr float longest_number = -std::numeric_limits<float>::denorm_min();
  PackedView widest;
  widest.n_blocks = widest.k_blocks = widest.rows = std::int64_t{1} << 50;
  widest.scale_type = DType::f8_e4m3;  // the longest name
  std::uint64_t size = header_text(layout, "", "").size();
  for (const auto& layer : layers) {
    std::string entries, tensors;
    const std::vector<PackedPart> parts(layer.parts.size(), {"", 0, 0, 0, {longest_number, Global::Op::multiply}});
    for (std::int64_t e = 0; e < std::max<std::int64_t>(1, layer.experts); ++e) {
      for (const PackedPlane& plane : packed_planes(widest)) {
        const std::string tensor = entry_name(layer.name, layer.experts, e) + '.' + plane.leaf;
        add_element(tensors, tensor_text(tensor, plane.dtype, plane.shape, most, most));
      }
      add_element(entries, entry_text(most, std::numeric_limits<int>::min(), parts));
    }
    if (layer.may_have_bias) add_element(tensors, tensor_text(layer.name + ".bias", DType::f32, {most, most}, most, most));
    size += dump(Json(layer_text(layer, entries))).size() + 1 + tensors.size() + 1;
  }
  return size;
}

}  // namespace

Result<PackedWriter> PackedWriter::create(const std::string& path, bool force, const std::vector<Layer>& announced, Layout layout) {
  PackedWriter writer;
  writer.path_ = path;
  writer.layout_ = layout;
  SF_ASSIGN(writer.file_, io::AtomicFile::create(path, force));
  const std::uint64_t longest = (8 + longest_header(layout, announced) + kDataAlignment - 1) / kDataAlignment * kDataAlignment - 8;
  writer.reserved_ = std::min(longest, kHeaderLimit);  // finish() finds out whether the real one fits
  return writer;
}

Status PackedWriter::append(const std::string& tensor, DType dtype, const std::vector<std::int64_t>& shape, const void* data,
                            std::size_t size) {
  if (!names_.insert(tensor).second) {
    return invalid_argument("{}: two layers of the checkpoint give a tensor {}; choose one with a pattern", path_, tensor);
  }
  SF_TRY(file_->write(8 + reserved_ + end_, data, size));
  add_element(tensors_, tensor_text(tensor, dtype, shape, end_, end_ + size));
  end_ += size;
  return {};
}

Status PackedWriter::add_entry(const Layer& layer, std::int64_t expert, const PackedWeight& weight) {
  for (const PackedPart& part : weight.parts) {
    if (!std::isfinite(part.global.value))
      return invalid_argument("{}: the global scale {} is not finite", part.name, part.global.value);
  }
  const std::string entry = entry_name(layer.name, layer.experts, expert) + '.';
  for (const PackedPlane& plane : packed_planes(weight.view)) {
    const Buffer& buffer = weight.*plane.buffer;
    if (buffer.empty()) continue;
    if (plane.bytes() == buffer.size()) {
      SF_TRY(append(entry + plane.leaf, plane.dtype, plane.shape, buffer.data(), buffer.size()));
    } else {  // row_of_slice, rounded up
      std::vector<std::byte> padded(plane.bytes());
      std::copy(buffer.bytes().begin(), buffer.bytes().end(), padded.begin());
      SF_TRY(append(entry + plane.leaf, plane.dtype, plane.shape, padded.data(), padded.size()));
    }
  }
  add_element(entries_, entry_text(weight.view.group_size, weight.view.zero, weight.parts));
  if (expert + 1 < layer.experts) return {};
  add_element(layers_, layer_text(layer, entries_));
  entries_.clear();
  return {};
}

Status PackedWriter::add_bias(const Layer& layer, const std::vector<float>& values) {
  const auto size = static_cast<std::int64_t>(values.size());
  const std::vector<std::int64_t> shape =
      layer.experts == 0 ? std::vector<std::int64_t>{size} : std::vector<std::int64_t>{layer.experts, size / layer.experts};
  return append(layer.name + ".bias", DType::f32, shape, values.data(), values.size() * sizeof(float));
}

Status PackedWriter::finish() {
  std::string header = header_text(layout_, layers_, tensors_);
  if (header.size() > reserved_) {
    return unsupported("{}: these layers need a header of {} bytes, more than the {} of a safetensors file; pack fewer at a time",
                       path_, header.size(), reserved_);
  }
  header.resize(reserved_, ' ');
  SF_TRY(file_->write(0, &reserved_, sizeof reserved_));
  SF_TRY(file_->write(sizeof reserved_, header.data(), header.size()));
  return file_->commit();
}

}  // namespace swordfish
