// The header of a safetensors file from a list of tensors, then their bytes in any order.
#include "checkpoint/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/try.h"

namespace swordfish {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, bool force, const std::vector<Entry>& entries,
                                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  std::vector<std::uint64_t> begin{0};
  for (const Entry& entry : entries) {
    if (!names.insert(entry.name).second) return invalid_argument("{}: tensor {} would be written twice", path, entry.name);
    std::uint64_t size_bits = static_cast<std::uint64_t>(bits(entry.dtype));
    for (std::int64_t dim : entry.shape)
      if (dim < 0 || __builtin_mul_overflow(size_bits, static_cast<std::uint64_t>(dim), &size_bits))
        return invalid_argument("{}: the shape of tensor {} overflows", path, entry.name);
    std::uint64_t end = 0;
    if (__builtin_add_overflow(begin.back(), size_bits / 8, &end)) return invalid_argument("{}: its size overflows", path);
    header[entry.name] = {{"dtype", name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {begin.back(), end}}};
    begin.push_back(end);
  }
  std::string text = header.empty() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  SafetensorsWriter writer;
  SF_ASSIGN(writer.file_, io::AtomicFile::create(path, force));
  const std::uint64_t length = text.size();
  SF_TRY(writer.file_->write(0, &length, sizeof length));
  SF_TRY(writer.file_->write(sizeof length, text.data(), text.size()));
  for (std::uint64_t& offset : begin) offset += sizeof length + text.size();
  writer.begin_ = std::move(begin);
  return writer;
}

Status SafetensorsWriter::write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t size) {
  if (entry + 1 >= begin_.size() || offset > begin_[entry + 1] - begin_[entry] || size > begin_[entry + 1] - begin_[entry] - offset)
    return {Code::internal, fmt::format("write of {} bytes at {} lies outside tensor {}", size, offset, entry)};
  return file_->write(begin_[entry] + offset, data, size);
}

}  // namespace swordfish
