// Reading JSON strictly: simdjson's DOM with a depth limit, and object look-ups that refuse duplicate keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "swordfish/status.h"

namespace swordfish {

inline constexpr std::size_t kJsonMaxDepth = 128;  // nested objects and arrays

// A parsed document; `root` stays valid as long as it lives. `what` (a file path) starts every message.
// Refused, with the byte offset: text that is not UTF-8, a byte order mark, bad syntax, deeper nesting than kJsonMaxDepth, lone
// surrogates, integers beyond 64 bits and numbers beyond double.
class Json {
 public:
  static Result<Json> parse(std::string_view text, std::string what);
  const simdjson::dom::element& root() const { return root_; }
  const std::string& what() const { return what_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
  std::string what_;
};

// Python's json module writes NaN, Infinity and -Infinity, which JSON does not have. Returns the text with each of them that stands
// outside of a string replaced by what `replacement` makes of it.
std::string replace_non_finite(std::string_view text, const std::function<std::string(std::string_view word)>& replacement);

// "object", "array", "string", "integer", "number", "boolean" or "null".
std::string_view json_kind(const simdjson::dom::element& value);

// Refuses an object, at any depth below `value`, that holds one key twice (parsers disagree about which of them counts).
// `what` (the file, or "file: key") starts the message here and below.
Status check_no_duplicate_keys(const simdjson::dom::element& value, std::string_view what);

// Members of `object` by key; keys are compared without regard to ASCII case. Absent and null both give nullopt. An error, such as
// "config.json: key 'bits': expected integer, found string": the key is there twice, or the value has another type, or `object`
// is no object. Strings live as long as the document.
Result<std::optional<simdjson::dom::element>> get_value(const simdjson::dom::element& object, std::string_view key,
                                                        std::string_view what);
Result<std::optional<std::int64_t>> get_int(const simdjson::dom::element& object, std::string_view key, std::string_view what);
Result<std::optional<double>> get_number(const simdjson::dom::element& object, std::string_view key, std::string_view what);
Result<std::optional<bool>> get_bool(const simdjson::dom::element& object, std::string_view key, std::string_view what);
Result<std::optional<std::string_view>> get_string(const simdjson::dom::element& object, std::string_view key,
                                                   std::string_view what);
// An element that is known to be an object (array).
Result<std::optional<simdjson::dom::element>> get_object(const simdjson::dom::element& object, std::string_view key,
                                                         std::string_view what);
Result<std::optional<simdjson::dom::element>> get_array(const simdjson::dom::element& object, std::string_view key,
                                                        std::string_view what);

}  // namespace swordfish
