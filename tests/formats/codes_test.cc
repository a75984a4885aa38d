// Tests of the plain code sources: nibbles along rows, nibbles along columns, bytes.
#include <gtest/gtest.h>

#include <cstring>

#include "formats/build_files.h"
#include "formats/format.h"
#include "formats/source_check.h"
#include "quant/nibble_rows.h"

namespace swordfish {
namespace {

std::shared_ptr<const Buffer> buffer(const std::string& bytes) {
  auto result = std::make_shared<Buffer>(bytes.size());
  std::memcpy(result->data(), bytes.data(), bytes.size());
  return result;
}
std::shared_ptr<const CodeSource> rows_of(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes) {
  const std::byte* const data = bytes->data() + offset;
  return nibble_rows(data, row_bytes, std::move(bytes));
}
int byte(const std::string& bytes, std::int64_t at) { return static_cast<unsigned char>(bytes[static_cast<std::size_t>(at)]); }

TEST(Codes, NibbleRowsLowNibbleFirst) {
  // formats.md 4.3: signed -8,-1,0,7,1,2,3,-4 offset by 8 are the bytes 70 F8 A9 4B.
  const auto source = rows_of(buffer("\x70\xf8\xa9\x4b"), 0, 4);
  std::uint8_t codes[8];
  source->read(0, 1, 0, 8, codes, 8);
  const std::uint8_t expected[8] = {0, 7, 8, 15, 9, 10, 11, 4};
  EXPECT_EQ(std::memcmp(codes, expected, 8), 0);
}

TEST(Codes, NibbleRowsAnyRange) {
  constexpr std::int64_t rows = 70, row_bytes = 131, offset = 5;  // a row has bytes that are not codes of this matrix
  const std::string bytes = random_bytes(offset + rows * row_bytes, 1);
  check_source(*rows_of(buffer(bytes), offset, row_bytes), rows, 2 * row_bytes, [&](std::int64_t n, std::int64_t k) {
    const int b = byte(bytes, offset + n * row_bytes + k / 2);
    return k % 2 == 0 ? b % 16 : b / 16;
  });
}

TEST(Codes, NibbleColumnsAnyRange) {
  constexpr std::int64_t rows = 70, columns = 262, offset = 3;
  const std::string bytes = random_bytes(offset + rows * columns / 2, 2);
  check_source(*nibble_columns(buffer(bytes), offset, rows), rows, columns, [&](std::int64_t n, std::int64_t k) {
    const int b = byte(bytes, offset + k / 2 * rows + n);
    return k % 2 == 0 ? b % 16 : b / 16;
  });
}

TEST(Codes, ByteRowsAnyRange) {
  constexpr std::int64_t rows = 70, row_bytes = 261, offset = 7;
  const std::string bytes = random_bytes(offset + rows * row_bytes, 3);
  for (const int flip : {0, 0x80}) {
    check_source(*byte_rows(buffer(bytes), offset, row_bytes, static_cast<std::uint8_t>(flip)), rows, row_bytes,
                 [&](std::int64_t n, std::int64_t k) { return byte(bytes, offset + n * row_bytes + k) ^ flip; });
  }
}

TEST(Codes, SourceKeepsItsBytesAlive) {
  auto bytes = buffer(random_bytes(64, 4));
  const std::weak_ptr<const Buffer> watch = bytes;
  const auto source = rows_of(std::move(bytes), 0, 32);
  EXPECT_FALSE(watch.expired());
}

}  // namespace
}  // namespace swordfish
