// Look-ups over all configuration sources of a checkpoint at once, for the format readers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "formats/format.h"

namespace swordfish {

// A value and where it stands: "dir/config.json: quantization_config".
template <class T>
struct ConfigValue {
  T value;
  std::string where;
};

inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;

// The text of a configuration file: an object without duplicate keys. NaN and infinities, as Python writes them, are accepted; they
// count as empty arrays.
Result<Json> parse_config(std::string_view text, const std::string& path);

// How messages name a source: its file, and the key inside it unless it is the whole file.
std::string where(const Config::Source& source);

// The first source, and in it the first of `keys` (aliases), that has a value. read_config() has checked that the others agree in
// bits, group size, symmetry and format.
Result<std::optional<ConfigValue<std::int64_t>>> config_int(const Config& config, std::initializer_list<std::string_view> keys);
Result<std::optional<ConfigValue<bool>>> config_bool(const Config& config, std::initializer_list<std::string_view> keys);
Result<std::optional<ConfigValue<std::string>>> config_string(const Config& config, std::initializer_list<std::string_view> keys);
Result<std::optional<ConfigValue<simdjson::dom::element>>> config_value(const Config& config,
                                                                        std::initializer_list<std::string_view> keys);

// The strings of an array; anything else in it is a type error that names `key`.
Result<std::vector<std::string>> string_list(const simdjson::dom::element& array, std::string_view key, std::string_view where);

}  // namespace swordfish
