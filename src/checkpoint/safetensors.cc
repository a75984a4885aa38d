// The safetensors header: u64 HLEN (little-endian) | HLEN bytes of JSON | data section up to the end of the file.
//
//   {"__metadata__": {key: string, ...} or null,
//    <tensor name>: {"dtype": string, "shape": [integers], "data_offsets": [begin, end]}, ...}
//
// begin and end count from the data section. Sorted by them, the tensors cover it exactly: no hole, no overlap, no byte without an
// owner. Everything that the format text forbids is refused, also what the reference reader lets pass (formats.md 1.4).
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scanner.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"

namespace swordfish {
namespace {

constexpr std::uint64_t kHeaderLimit = 100'000'000;  // of the format
constexpr std::size_t kMaxRank = 64;                 // numpy's limit; beyond it a shape is an attack
constexpr std::uint64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();

// A tensor as its header states it.
struct Entry {
  Tensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : path_(path), scanner_(text, path, 8) {}

  Status read() {
    SF_TRY(scanner_.check_encoding());
    if (scanner_.next_kind() != "object") return scanner_.fail("the header must be an object");
    SF_TRY(scanner_.open('{'));
    bool first = true, metadata_seen = false;
    std::string name;
    while (true) {
      SF_ASSIGN(const bool more, scanner_.next_member(first, name));
      if (!more) break;
      if (name == "__metadata__") {
        if (metadata_seen) return scanner_.fail("duplicate key '__metadata__': it appears twice");
        metadata_seen = true;
        SF_TRY(read_metadata());
      } else {
        SF_TRY(read_tensor(name));
      }
    }
    return scanner_.finish();
  }

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

 private:
  Status read_metadata() {
    if (scanner_.next_kind() == "null") return scanner_.skip_null();
    if (scanner_.next_kind() != "object") return scanner_.fail("__metadata__: expected object or null");
    SF_TRY(scanner_.open('{'));
    bool first = true;
    std::string key, value;
    while (true) {
      SF_ASSIGN(const bool more, scanner_.next_member(first, key));
      if (!more) return {};
      if (scanner_.next_kind() != "string")
        return scanner_.fail(
            fmt::format("__metadata__: key '{}': expected string, found {}", printable(key), scanner_.next_kind()));
      SF_TRY(scanner_.read_string(value));
      if (!metadata.emplace(key, value).second)
        return scanner_.fail(fmt::format("__metadata__: duplicate key '{}': it appears twice", printable(key)));
    }
  }

  // "x.safetensors: invalid JSON at byte N: tensor 'name': reason"
  Status fail(std::string_view reason) const {
    return scanner_.fail(fmt::format("tensor '{}': {}", printable(entries.back().tensor.name), reason));
  }

  Status read_tensor(const std::string& name) {
    Entry& entry = entries.emplace_back();
    entry.tensor.name = name;
    if (scanner_.next_kind() != "object") return fail(fmt::format("entry: expected object, found {}", scanner_.next_kind()));
    SF_TRY(scanner_.open('{'));
    constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    std::array<bool, 3> seen = {};
    bool first = true;
    std::string key;
    while (true) {
      SF_ASSIGN(const bool more, scanner_.next_member(first, key));
      if (!more) break;
      const auto field = static_cast<std::size_t>(std::find(kFields.begin(), kFields.end(), key) - kFields.begin());
      if (field == kFields.size()) {
        SF_TRY(scanner_.skip_value(kJsonMaxDepth - 2));  // an unknown field, as the reference reader ignores it
        continue;
      }
      if (seen[field]) return fail(fmt::format("duplicate field '{}': it appears twice", key));
      seen[field] = true;
      SF_TRY(field == 0 ? read_dtype(entry) : field == 1 ? read_shape(entry) : read_offsets(entry));
    }
    for (std::size_t field = 0; field < kFields.size(); ++field)
      if (!seen[field]) return fail(fmt::format("field '{}' is missing", kFields[field]));
    return {};
  }

  Status read_dtype(Entry& entry) {
    if (scanner_.next_kind() != "string") return fail(fmt::format("dtype: expected string, found {}", scanner_.next_kind()));
    SF_TRY(scanner_.read_string(text_));
    const std::optional<DType> type = parse_dtype(text_);
    if (!type) return malformed("{}: tensor '{}': unknown dtype '{}'", path_, printable(entry.tensor.name), printable(text_));
    entry.tensor.dtype = *type;
    return {};
  }

  // A plain integer of at most 2^63-1; `what` names the field.
  Status read_integer(std::string_view what, std::uint64_t& out) {
    if (scanner_.next_kind() != "number") return fail(fmt::format("{}: expected integer, found {}", what, scanner_.next_kind()));
    if (const Status status = scanner_.read_unsigned(out); !status.ok())
      return malformed("{} ({} of tensor '{}')", status.message(), what, printable(entries.back().tensor.name));
    if (out > kMaxInteger) return fail(fmt::format("{}: {} overflows: at most 2^63-1 is allowed", what, out));
    return {};
  }

  Status read_shape(Entry& entry) {
    if (scanner_.next_kind() != "array") return fail(fmt::format("shape: expected array, found {}", scanner_.next_kind()));
    SF_TRY(scanner_.open('['));
    std::array<std::int64_t, kMaxRank> dims = {};
    std::size_t rank = 0;
    bool first = true;
    while (true) {
      SF_ASSIGN(const bool more, scanner_.next_element(first));
      if (!more) break;
      if (rank == kMaxRank) return fail(fmt::format("shape: rank larger than {} dimensions", kMaxRank));
      std::uint64_t dim = 0;
      SF_TRY(read_integer("shape", dim));
      dims[rank++] = static_cast<std::int64_t>(dim);
    }
    entry.tensor.shape.assign(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(rank));
    return {};
  }

  Status read_offsets(Entry& entry) {
    if (scanner_.next_kind() != "array") return fail(fmt::format("data_offsets: expected array, found {}", scanner_.next_kind()));
    SF_TRY(scanner_.open('['));
    bool first = true;
    std::size_t count = 0;
    while (true) {
      SF_ASSIGN(const bool more, scanner_.next_element(first));
      if (!more) break;
      if (count == 2) return fail("data_offsets: expected 2 integers, found more");
      SF_TRY(read_integer("data_offsets", count == 0 ? entry.begin : entry.end));
      ++count;
    }
    if (count != 2) return fail(fmt::format("data_offsets: expected 2 integers, found {}", count));
    return {};
  }

  const std::string& path_;
  JsonScanner scanner_;
  std::string text_;
};

// Rows 8 (end < begin), 9, 10 and 11: the range against type and shape.
Status check_range(const std::string& path, Entry& entry) {
  Tensor& t = entry.tensor;
  const auto described = [&] {
    return fmt::format("{}: tensor '{}' {} {}", path, printable(t.name), name(t.dtype), shape_text(t.shape));
  };
  if (entry.end < entry.begin)
    return malformed("{}: data_offsets [{}, {}): the end lies before the begin", described(), entry.begin, entry.end);
  std::uint64_t size_bits = static_cast<std::uint64_t>(bits(t.dtype));
  const bool empty = std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end();
  if (empty) size_bits = 0;
  for (const std::int64_t dim : t.shape)
    if (!empty && __builtin_mul_overflow(size_bits, static_cast<std::uint64_t>(dim), &size_bits))
      return malformed("{}: the size overflows 64 bits", described());
  if (size_bits % 8 != 0) return malformed("{}: {} bits are not a whole number of bytes", described(), size_bits);
  t.bytes = entry.end - entry.begin;
  if (t.bytes != size_bits / 8)
    return malformed("{}: expected {} bytes by its shape and dtype, found {} in data_offsets [{}, {})", described(), size_bits / 8,
                     t.bytes, entry.begin, entry.end);
  return {};
}

// Rows 8 and 12: sorted by offset, the tensors cover the data section exactly.
Status check_cover(const std::string& path, const std::vector<Entry>& entries, std::uint64_t data, std::uint64_t file_size) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return entries[a].begin != entries[b].begin ? entries[a].begin < entries[b].begin : entries[a].end < entries[b].end;
  });
  std::uint64_t expected = 0;
  const Entry* before = nullptr;
  for (const std::size_t i : order) {
    const Entry& entry = entries[i];
    if (entry.begin != expected)
      return malformed(
          "{}: tensor '{}': offset {}: found data_offsets [{}, {}), expected begin {}, {}", path, printable(entry.tensor.name),
          entry.begin > expected ? "leaves a hole" : "overlap", entry.begin, entry.end, expected,
          before == nullptr
              ? "the start of the data section"
              : fmt::format("where tensor '{}' [{}, {}) ends", printable(before->tensor.name), before->begin, before->end));
    expected = entry.end;
    before = &entry;
  }
  const std::uint64_t size = file_size - data;
  if (expected == size) return {};
  const std::string last =
      before == nullptr ? "there is no tensor" : fmt::format("the last tensor is '{}'", printable(before->tensor.name));
  if (expected > size)
    return malformed("{}: truncated: the declared data ends at byte {} ({}), but the file size is {}", path, data + expected, last,
                     file_size);
  return malformed("{}: {} trailing bytes: the declared data ends at byte {} ({}), but the file size is {}", path, size - expected,
                   data + expected, last, file_size);
}

// One file's header as it stands there.
struct Header {
  std::uint64_t data = 0;  // where the data section begins
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  Status ranges;  // of the entries against types, shapes and the file's size; duplicate names come before it
};

Result<Header> read_header(const io::File& file) {
  const std::string& path = file.path();
  const std::uint64_t size = file.size();
  if (size < 8) return malformed("{}: {} bytes: too small for header (a safetensors file has at least 8)", path, size);
  std::array<unsigned char, 8> raw = {};
  SF_TRY(file.read(0, raw.size(), raw.data()));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= static_cast<std::uint64_t>(raw[i]) << (8 * i);
  if (length > kHeaderLimit)
    return malformed("{}: header length {} is too large: the limit is {} bytes", path, length, kHeaderLimit);
  if (length > size - 8)
    return malformed("{}: truncated header: it claims {} bytes after the first 8, the file size is {}", path, length, size);
  std::string text(static_cast<std::size_t>(length), '\0');
  SF_TRY(file.read(8, text.size(), text.data()));

  HeaderReader reader(text, path);
  SF_TRY(reader.read());
  Header header{8 + length, std::move(reader.entries), std::move(reader.metadata), {}};
  for (Entry& entry : header.entries) {
    header.ranges = check_range(path, entry);
    if (!header.ranges.ok()) return header;
  }
  header.ranges = check_cover(path, header.entries, header.data, size);
  return header;
}

Status append(std::shared_ptr<const io::File> file, Header header, Container& into) {
  const std::size_t number = into.files.size(), before = into.tensors.size();
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const std::string& tensor = header.entries[i].tensor.name;
    const auto [other, fresh] = into.index.emplace(tensor, before + i);
    if (fresh) continue;
    if (other->second >= before)
      return malformed("{}: duplicate tensor '{}': it appears twice in the header", file->path(), printable(tensor));
    return malformed("duplicate tensor '{}': it is in two files, {} and {}", printable(tensor),
                     into.path_of(into.tensors[other->second]), file->path());
  }
  SF_TRY(header.ranges);
  for (Entry& entry : header.entries) {
    entry.tensor.file = number;
    entry.tensor.offset = header.data + entry.begin;
    into.tensors.push_back(std::move(entry.tensor));
  }
  if (into.files.empty()) into.metadata = std::move(header.metadata);
  into.files.push_back(std::move(file));
  return {};
}

}  // namespace

Status read_safetensors_headers(std::vector<std::shared_ptr<const io::File>> files, Container& into) {
  std::vector<Result<Header>> headers(files.size(), Status(Code::internal, "a header that was not read"));
  parallel_each(files.size(), 1, [&](std::size_t i) { headers[i] = read_header(*files[i]); });
  std::size_t count = into.tensors.size();
  for (const Result<Header>& header : headers)
    if (header.ok()) count += header->entries.size();
  into.tensors.reserve(count);
  into.index.reserve(count);
  for (std::size_t i = 0; i < files.size(); ++i) {
    SF_TRY(headers[i].status());
    SF_TRY(append(std::move(files[i]), std::move(headers[i]).value(), into));
  }
  return {};
}

}  // namespace swordfish
