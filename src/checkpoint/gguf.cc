// GGUF files, versions 2 and 3, little-endian (formats.md 7.1):
//
//   u32 magic "GGUF" | u32 version | u64 n_tensors | u64 n_kv
//   n_kv      x { string key | u32 type | value }                 string: u64 length, bytes; array: u32 type, u64 count, elements
//   n_tensors x { string name | u32 n_dims | u64 dims[n_dims] | u32 ggml_type | u64 offset }
//   zeros up to a multiple of ALIGN (general.alignment, 32 without) | data section
//
// dims[0] is the contiguous axis: shapes are turned round. Tensor i begins where the padded sizes of those before it end, in header
// order. A split model is name-00001-of-0000N.gguf and its siblings, each with a table of its own; the keys split.no, split.count
// and split.tensors.count tie them together. The header is read in pieces, so that nothing is allocated by a count that a file
// claims.
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"

namespace swordfish {
namespace {

constexpr std::uint64_t kLongest = std::uint64_t{1}
                                   << 30;     // of strings (bytes) and arrays (elements): the reference reader's limit
constexpr std::uint64_t kLongestKey = 65535;  // of the format text
constexpr std::uint64_t kLongestName = 63;    // bytes of a tensor name that the reference reader takes
constexpr std::uint64_t kNumbersKept = 4096;  // elements of a numeric array that are kept
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kSmallestKv = 8 + 1 + 4 + 1;      // bytes of a key and its value at least
constexpr std::uint64_t kSmallestTensor = 8 + 4 + 4 + 8;  // bytes of a tensor's entry at least

enum : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kTypeCount };
constexpr std::array<std::uint8_t, kTypeCount> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::array<std::string_view, kTypeCount> kTypeNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                                 "bool", "string", "array", "u64", "i64", "f64"};

// Reads the header front to back through a small buffer.
class Cursor {
 public:
  explicit Cursor(const io::File& file) : file_(file) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }

  Status read(void* out, std::size_t size, std::string_view what) {
    if (size > remaining())
      return malformed("{}: truncated: {} needs {} bytes at byte {}, remaining: {}", file_.path(), what, size, position_,
                       remaining());
    auto* to = static_cast<char*>(out);
    while (size > 0) {
      if (position_ < start_ || position_ >= start_ + filled_) {
        filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), remaining()));
        start_ = position_;
        if (Status status = file_.read(start_, filled_, buffer_.data()); !status.ok()) {
          filled_ = 0;
          return status;
        }
      }
      const std::size_t from = static_cast<std::size_t>(position_ - start_), piece = std::min(size, filled_ - from);
      std::memcpy(to, buffer_.data() + from, piece);
      to += piece;
      size -= piece;
      position_ += piece;
    }
    return {};
  }

  template <class T>
  Status number(T& out, std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    return read(&out, sizeof out, what);
  }

  Status skip(std::uint64_t size, std::string_view what) {
    if (size > remaining())
      return malformed("{}: truncated: {} needs {} bytes at byte {}, remaining: {}", file_.path(), what, size, position_,
                       remaining());
    position_ += size;
    return {};
  }

  // The length word of a string, checked against the file.
  Status string_length(std::uint64_t limit, std::string_view what, std::uint64_t& length) {
    SF_TRY(number(length, what));
    if (length > remaining())
      return malformed("{}: {}: string length {} at byte {} is beyond the end of the file, remaining: {} bytes", file_.path(), what,
                       length, position_ - 8, remaining());
    if (length > limit)
      return malformed("{}: {}: string length {} at byte {} is longer than the limit of {} bytes", file_.path(), what, length,
                       position_ - 8, limit);
    return {};
  }

  Status string(std::uint64_t limit, std::string_view what, std::string& out) {
    std::uint64_t length = 0;
    SF_TRY(string_length(limit, what, length));
    out.assign(static_cast<std::size_t>(length), '\0');
    return read(out.data(), out.size(), what);
  }

 private:
  const io::File& file_;
  std::uint64_t position_ = 0;
  std::array<char, 65536> buffer_;
  std::uint64_t start_ = 0;  // file offset of buffer_
  std::size_t filled_ = 0;
};

// The value of a number of `type` as it lies in the file.
GgufValue decode(std::uint32_t type, const char* raw) {
  const auto as = [raw]<class T>(T value) {
    std::memcpy(&value, raw, sizeof value);
    return value;
  };
  switch (type) {
    case kU8: return std::uint64_t{as(std::uint8_t{})};
    case kI8: return std::int64_t{as(std::int8_t{})};
    case kU16: return std::uint64_t{as(std::uint16_t{})};
    case kI16: return std::int64_t{as(std::int16_t{})};
    case kU32: return std::uint64_t{as(std::uint32_t{})};
    case kI32: return std::int64_t{as(std::int32_t{})};
    case kF32: return double{as(float{})};
    case kBool: return raw[0] != 0;
    case kU64: return as(std::uint64_t{});
    case kI64: return as(std::int64_t{});
    default: return as(double{});  // kF64
  }
}

double to_double(const GgufValue& value) {
  if (const auto* u = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
  return std::get<double>(value);
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

// One file of a model.
class Reader {
 public:
  explicit Reader(const std::shared_ptr<const io::File>& file) : file_(file), path_(file->path()), cursor_(*file) {}

  Status read_keys();
  // Appends the file and its tensors.
  Status read_tensors(Container& into);

  // An unsigned key of any integer type; nullopt when absent.
  Result<std::optional<std::uint64_t>> unsigned_key(const std::string& key) const;

  std::map<std::string, GgufValue> keys;

 private:
  Status read_preamble();
  Status read_array(const std::string& what, GgufArray& array);
  Status read_value(const std::string& what, std::uint32_t type, GgufValue& value);
  Status read_alignment(std::uint32_t type, const GgufValue& value);
  Status read_tensor(std::uint64_t number, Tensor& t);
  Status place(Tensor& t, std::uint64_t data, std::uint64_t& expected) const;

  std::shared_ptr<const io::File> file_;
  const std::string& path_;
  Cursor cursor_;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_kv_ = 0;
  std::uint64_t alignment_ = 32;
};

Status Reader::read_preamble() {
  std::array<unsigned char, 4> magic = {};
  if (file_->size() < magic.size()) return malformed("{}: {} bytes: too small for a GGUF file", path_, file_->size());
  SF_TRY(cursor_.read(magic.data(), magic.size(), "the magic"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return malformed("{}: wrong magic: expected 47 47 55 46 (GGUF), found {:02x} {:02x} {:02x} {:02x}", path_, magic[0], magic[1],
                     magic[2], magic[3]);
  std::uint32_t version = 0;
  SF_TRY(cursor_.number(version, "the version"));
  if ((version & 0xffffu) == 0 && version != 0)
    return unsupported("{}: big-endian GGUF (version word 0x{:08x}): only little-endian byte order is supported", path_, version);
  if (version != 2 && version != 3) return unsupported("{}: GGUF version {}; supported are 2 and 3", path_, version);
  SF_TRY(cursor_.number(n_tensors_, "the tensor count"));
  SF_TRY(cursor_.number(n_kv_, "the key count"));
  if (n_kv_ > cursor_.remaining() / kSmallestKv)
    return malformed("{}: key count {} cannot be: remaining are {} bytes", path_, n_kv_, cursor_.remaining());
  if (n_tensors_ > cursor_.remaining() / kSmallestTensor)
    return malformed("{}: tensor count {} cannot be: remaining are {} bytes", path_, n_tensors_, cursor_.remaining());
  return {};
}

Status Reader::read_array(const std::string& what, GgufArray& array) {
  SF_TRY(cursor_.number(array.type, what));
  if (array.type == kArray) return malformed("{}: {}: an array of arrays (nested array) is not allowed", path_, what);
  if (array.type >= kTypeCount) return malformed("{}: {}: unknown array element type {}", path_, what, array.type);
  SF_TRY(cursor_.number(array.count, what));
  const std::uint64_t smallest = array.type == kString ? 8 : kTypeBytes[array.type];
  if (array.count > cursor_.remaining() / smallest)
    return malformed("{}: {}: array count {} of {} is beyond the end of the file, remaining: {} bytes", path_, what, array.count,
                     kTypeNames[array.type], cursor_.remaining());
  if (array.count > kLongest)
    return malformed("{}: {}: array count {} is over the limit of {}", path_, what, array.count, kLongest);
  if (array.type == kString) {
    for (std::uint64_t i = 0; i < array.count; ++i) {
      std::uint64_t length = 0;
      SF_TRY(cursor_.string_length(kLongest, what, length));
      SF_TRY(cursor_.skip(length, what));
    }
    return {};
  }
  if (array.count > kNumbersKept) return cursor_.skip(array.count * smallest, what);
  array.numbers.reserve(static_cast<std::size_t>(array.count));
  for (std::uint64_t i = 0; i < array.count; ++i) {
    std::array<char, 8> raw = {};
    SF_TRY(cursor_.read(raw.data(), kTypeBytes[array.type], what));
    array.numbers.push_back(to_double(decode(array.type, raw.data())));
  }
  return {};
}

Status Reader::read_value(const std::string& what, std::uint32_t type, GgufValue& value) {
  if (type >= kTypeCount) return malformed("{}: {}: unknown value type {} (known are 0 to {})", path_, what, type, kTypeCount - 1);
  if (type == kString) return cursor_.string(kLongest, what, value.emplace<std::string>());
  if (type == kArray) return read_array(what, value.emplace<GgufArray>());
  std::array<char, 8> raw = {};
  SF_TRY(cursor_.read(raw.data(), kTypeBytes[type], what));
  value = decode(type, raw.data());
  return {};
}

Status Reader::read_alignment(std::uint32_t type, const GgufValue& value) {
  if (type != kU32) return malformed("{}: key 'general.alignment': expected type u32, found {}", path_, kTypeNames[type]);
  alignment_ = std::get<std::uint64_t>(value);
  if (!std::has_single_bit(alignment_))
    return malformed("{}: key 'general.alignment': expected a power of two, found {}", path_, alignment_);
  return {};
}

Status Reader::read_keys() {
  SF_TRY(read_preamble());
  for (std::uint64_t i = 0; i < n_kv_; ++i) {
    std::string key;
    SF_TRY(cursor_.string(kLongestKey, fmt::format("key {} of {}", i, n_kv_), key));
    if (key.empty()) return malformed("{}: key {} of {} is empty", path_, i, n_kv_);
    if (!is_utf8(key)) return malformed("{}: key {} of {} is not UTF-8: '{}'", path_, i, n_kv_, printable(key));
    const std::string what = fmt::format("key '{}'", printable(key));
    std::uint32_t type = 0;
    SF_TRY(cursor_.number(type, what));
    GgufValue value;
    SF_TRY(read_value(what, type, value));
    if (key == "general.alignment") SF_TRY(read_alignment(type, value));
    if (!keys.emplace(std::move(key), std::move(value)).second) return malformed("{}: duplicate {}: it appears twice", path_, what);
  }
  return {};
}

Result<std::optional<std::uint64_t>> Reader::unsigned_key(const std::string& key) const {
  const auto found = keys.find(key);
  if (found == keys.end()) return std::optional<std::uint64_t>();
  if (const auto* u = std::get_if<std::uint64_t>(&found->second)) return std::optional(*u);
  if (const auto* i = std::get_if<std::int64_t>(&found->second); i != nullptr && *i >= 0)
    return std::optional(static_cast<std::uint64_t>(*i));
  return malformed("{}: key '{}': expected a non-negative integer", path_, key);
}

Status Reader::read_tensor(std::uint64_t number, Tensor& t) {
  std::string what = fmt::format("tensor {} of {}", number, n_tensors_);
  std::uint64_t length = 0;
  SF_TRY(cursor_.string_length(kLongest, what, length));
  t.name.assign(static_cast<std::size_t>(std::min(length, kLongestName + 1)), '\0');
  SF_TRY(cursor_.read(t.name.data(), t.name.size(), what));
  if (length > kLongestName)
    return malformed("{}: {}: the name '{}...' is too long: its length is {} bytes, the limit {}", path_, what, printable(t.name),
                     length, kLongestName);
  if (!is_utf8(t.name)) return malformed("{}: {}: the name '{}' is not UTF-8", path_, what, printable(t.name));
  what = fmt::format("tensor '{}'", printable(t.name));

  std::uint32_t n_dims = 0, type = 0;
  SF_TRY(cursor_.number(n_dims, what));
  if (n_dims > kMaxDims) return malformed("{}: {}: {} dimensions; at most {} are allowed", path_, what, n_dims, kMaxDims);
  std::uint64_t elements = 1;
  bool overflow = false;
  std::array<std::uint64_t, kMaxDims> dims = {1, 1, 1, 1};
  for (std::uint32_t d = 0; d < n_dims; ++d) {
    SF_TRY(cursor_.number(dims[d], what));
    overflow = overflow || dims[d] > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
               __builtin_mul_overflow(elements, dims[d], &elements);
  }
  if (overflow || elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return malformed("{}: {}: dimensions {{{}}}: negative or overflow", path_, what,
                     fmt::join(dims.begin(), dims.begin() + n_dims, ", "));
  for (std::uint32_t d = n_dims; d > 0; --d) t.shape.push_back(static_cast<std::int64_t>(dims[d - 1]));

  SF_TRY(cursor_.number(type, what));
  SF_TRY(cursor_.number(t.offset, what));
  const GgmlType* known = find_ggml_type(type);
  if (known == nullptr)
    return unsupported("{}: {}: tensor type id {} is unknown or was removed from the format", path_, what, type);
  t.gguf_type = known->id;
  t.dtype = parse_dtype(known->name).value_or(DType::u8);
  const auto block = static_cast<std::uint64_t>(known->block_elements);
  if (dims[0] % block != 0)
    return malformed("{}: {}: the first dimension {} is no multiple of the block of {} ({} elements)", path_, what, dims[0],
                     known->name, block);
  if (__builtin_mul_overflow(elements / block, static_cast<std::uint64_t>(known->block_bytes), &t.bytes))
    return malformed("{}: {}: shape {}: the size overflows 64 bits", path_, what, shape_text(t.shape));
  return {};
}

// Checks the offset that the file states against the sum of what came before, and makes it absolute.
Status Reader::place(Tensor& t, std::uint64_t data, std::uint64_t& expected) const {
  if (t.offset != expected)
    return malformed("{}: tensor '{}': offset {} is {}: expected {} (alignment {}, file size {})", path_, printable(t.name),
                     t.offset,
                     t.offset % alignment_ != 0 ? "misaligned"
                     : t.offset < expected      ? "an overlap with the tensor before it"
                                                : "beyond the end of the tensor before it",
                     expected, alignment_, file_->size());
  std::uint64_t end = 0;
  if (__builtin_add_overflow(data, t.offset, &t.offset) || __builtin_add_overflow(t.offset, t.bytes, &end) || end > file_->size())
    return malformed("{}: truncated: tensor '{}' of {} bytes at byte {} ends beyond the file size {}", path_, printable(t.name),
                     t.bytes, t.offset, file_->size());
  // end is within the file, so the padded size cannot overflow: alignment is at most 2^31.
  expected += (t.bytes + alignment_ - 1) / alignment_ * alignment_;
  return {};
}

Status Reader::read_tensors(Container& into) {
  const std::size_t before = into.tensors.size(), file_number = into.files.size();
  for (std::uint64_t i = 0; i < n_tensors_; ++i) {
    Tensor t;
    t.file = file_number;
    SF_TRY(read_tensor(i, t));
    const auto [other, fresh] = into.index.emplace(t.name, into.tensors.size());
    if (!fresh && other->second >= before)
      return malformed("{}: duplicate tensor '{}': it appears twice", path_, printable(t.name));
    if (!fresh)
      return malformed("duplicate tensor '{}': it is in two files, {} and {}", printable(t.name),
                       into.path_of(into.tensors[other->second]), path_);
    into.tensors.push_back(std::move(t));
  }
  const std::uint64_t data = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
  std::uint64_t expected = 0;
  for (std::size_t i = before; i < into.tensors.size(); ++i) SF_TRY(place(into.tensors[i], data, expected));
  into.files.push_back(file_);
  return {};
}

// "dir/name-00001-of-00003.gguf" -> "dir/name-" when the numbers are these.
std::optional<std::string> split_stem(std::string_view path, std::uint64_t number, std::uint64_t count) {
  const std::string tail = fmt::format("{:05}-of-{:05}.gguf", number, count);
  if (!path.ends_with("-" + tail)) return std::nullopt;
  return std::string(path.substr(0, path.size() - tail.size()));
}

// What `key` says, which must be `expected`.
Status expect_key(const Reader& reader, const std::string& path, const std::string& key, std::uint64_t expected) {
  SF_ASSIGN(const std::optional<std::uint64_t> found, reader.unsigned_key(key));
  if (found == expected) return {};
  return malformed("{}: key '{}': expected {}, found {}", path, key, expected, found ? std::to_string(*found) : "no such key");
}

Status read_splits(const std::string& first_path, const Reader& first, std::uint64_t count, Container& into) {
  SF_TRY(expect_key(first, first_path, "split.no", 0));
  const std::optional<std::string> stem = split_stem(first_path, 1, count);
  if (!stem)
    return malformed("{}: key 'split.count' is {}: expected a file name that ends in -00001-of-{:05}.gguf", first_path, count,
                     count);
  for (std::uint64_t i = 1; i < count; ++i) {
    const std::string path = fmt::format("{}{:05}-of-{:05}.gguf", *stem, i + 1, count);
    if (!io::exists(path)) return malformed("{}: split file {} of {} is missing: {} not found", first_path, i + 1, count, path);
    SF_ASSIGN(const std::shared_ptr<const io::File> file, io::File::open(path));
    Reader reader(file);
    SF_TRY(reader.read_keys());
    SF_TRY(expect_key(reader, path, "split.no", i));
    SF_TRY(expect_key(reader, path, "split.count", count));
    SF_TRY(reader.read_tensors(into));
  }
  return expect_key(first, first_path, "split.tensors.count", into.tensors.size());
}

}  // namespace

Result<Container> open_gguf(const std::string& path) {
  SF_ASSIGN(const std::shared_ptr<const io::File> file, io::File::open(path));
  Container container;
  container.kind = Container::Kind::gguf;
  Reader reader(file);
  SF_TRY(reader.read_keys());
  SF_ASSIGN(const std::optional<std::uint64_t> splits, reader.unsigned_key("split.count"));
  SF_TRY(reader.read_tensors(container));
  if (splits.value_or(1) > 1) SF_TRY(read_splits(path, reader, *splits, container));
  const auto architecture = reader.keys.find("general.architecture");
  if (architecture == reader.keys.end()) return malformed("{}: key 'general.architecture' is missing", path);
  if (!std::holds_alternative<std::string>(architecture->second))
    return malformed("{}: key 'general.architecture': expected string, found another type", path);
  container.gguf = std::move(reader.keys);
  return container;
}

}  // namespace swordfish
