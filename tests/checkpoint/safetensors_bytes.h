// Bytes of a safetensors file from its header text and data, valid or not.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace swordfish {

inline std::string length_word(std::uint64_t length) {
  std::string word;
  for (int i = 0; i < 8; ++i) word += static_cast<char>(length >> (8 * i));
  return word;
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return length_word(header.size()) + std::string(header) + std::string(data);
}

// A file with one U8 tensor of one byte for each name.
inline std::string safetensors_of(std::initializer_list<std::string_view> names) {
  std::string header = "{", data;
  for (const std::string_view name : names) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", data.empty() ? "" : ",", name,
                          data.size(), data.size() + 1);
    data += 'x';
  }
  return safetensors_bytes(header + "}", data);
}

}  // namespace swordfish
