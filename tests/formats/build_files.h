// Builds small safetensors and GGUF files in memory for tests of the readers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"

namespace swordfish {

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
inline std::string random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}
// Bytes of positive finite e4m3 values, or of e8m0 exponents near 127.
inline std::string e4m3_scales(std::size_t n, unsigned seed) {
  std::string bytes = random_bytes(n, seed);
  for (char& c : bytes) c = static_cast<char>(1 + (static_cast<unsigned char>(c) % 0x7e));
  return bytes;
}
inline std::string e8m0_scales(std::size_t n, unsigned seed) {
  std::string bytes = random_bytes(n, seed);
  for (char& c : bytes) c = static_cast<char>(120 + (static_cast<unsigned char>(c) % 16));
  return bytes;
}

struct TestTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string safetensors(const std::vector<TestTensor>& tensors) {
  std::string header = "{", data;
  for (const TestTensor& t : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":" + shape_text(t.shape) + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  header += "}";
  return raw(std::vector<std::uint64_t>{header.size()}) + header + data;
}

struct TestBlocks {
  std::string name;
  std::uint32_t type;
  std::vector<std::uint64_t> dims;  // contiguous first
  std::string bytes;
};
using TestKey = std::pair<std::string, std::variant<std::uint32_t, std::string, std::vector<std::uint32_t>>>;

inline std::string gguf(const std::vector<TestKey>& keys, const std::vector<TestBlocks>& tensors) {
  const auto u32 = [](std::uint32_t v) { return raw(std::vector<std::uint32_t>{v}); };
  const auto u64 = [](std::uint64_t v) { return raw(std::vector<std::uint64_t>{v}); };
  const auto text = [&](std::string_view s) { return u64(s.size()) + std::string(s); };
  std::string file = "GGUF" + u32(3) + u64(tensors.size()) + u64(keys.size());
  for (const auto& [key, value] : keys) {
    file += text(key);
    if (const auto* number = std::get_if<std::uint32_t>(&value)) file += u32(4) + u32(*number);
    if (const auto* string = std::get_if<std::string>(&value)) file += u32(8) + text(*string);
    if (const auto* list = std::get_if<std::vector<std::uint32_t>>(&value))
      file += u32(9) + u32(4) + u64(list->size()) + raw(*list);
  }
  std::string data;
  for (const TestBlocks& t : tensors) {
    file += text(t.name) + u32(static_cast<std::uint32_t>(t.dims.size()));
    for (const std::uint64_t dim : t.dims) file += u64(dim);
    file += u32(t.type) + u64(data.size());
    data += t.bytes;
    data.resize((data.size() + 31) / 32 * 32);
  }
  file.resize((file.size() + 31) / 32 * 32);
  return file + data;
}

}  // namespace swordfish
