// Parsing with simdjson, and typed look-ups with messages that name file and key.
#include "base/json.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json_scanner.h"
#include "base/text.h"
#include "base/try.h"

namespace swordfish {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

Status wrong_type(std::string_view key, std::string_view what, std::string_view expected, const element& found) {
  return malformed("{}: key '{}': expected {}, found {}", what, key, expected, json_kind(found));
}

template <class T, class Get>
Result<std::optional<T>> get_typed(const element& object, std::string_view key, std::string_view what, std::string_view expected,
                                   Get get) {
  SF_ASSIGN(const std::optional<element> value, get_value(object, key, what));
  if (!value) return std::optional<T>();
  T out{};
  if (!get(*value, out)) return wrong_type(key, what, expected, *value);
  return std::optional<T>(out);
}

}  // namespace

Result<Json> Json::parse(std::string_view text, std::string what) {
  Json json;
  json.what_ = std::move(what);
  JsonScanner scanner(text, json.what_);
  SF_TRY(scanner.check_encoding());
  json.parser_ = std::make_unique<simdjson::dom::parser>();
  simdjson::error_code error = json.parser_->allocate(std::max<std::size_t>(text.size(), 1), kJsonMaxDepth);
  if (error == simdjson::SUCCESS) error = json.parser_->parse(text.data(), text.size()).get(json.root_);
  if (error == simdjson::MEMALLOC)
    return Status(Code::out_of_memory, fmt::format("{}: no memory to parse {} bytes of JSON", json.what_, text.size()));
  if (error != simdjson::SUCCESS) {
    // simdjson does not say where. What the scanner accepts and simdjson does not: numbers too large.
    SF_TRY(scanner.skip_value(kJsonMaxDepth));
    SF_TRY(scanner.finish());
    return malformed("{}: invalid JSON: {}", json.what_, simdjson::error_message(error));
  }
  return json;
}

std::string replace_non_finite(std::string_view text, const std::function<std::string(std::string_view word)>& replacement) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = 1;  // of what is copied as it is
    if (quoted && text[i] == '\\') {
      length = std::min<std::size_t>(2, text.size() - i);
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      constexpr std::string_view words[] = {"NaN", "Infinity", "-Infinity"};
      const auto* const word =
          std::find_if(std::begin(words), std::end(words), [&](std::string_view w) { return text.substr(i, w.size()) == w; });
      if (word != std::end(words)) {
        out += replacement(*word);
        i += word->size();
        continue;
      }
    }
    out += text.substr(i, length);
    i += length;
  }
  return out;
}

std::string_view json_kind(const element& value) {
  switch (value.type()) {
    case element_type::OBJECT: return "object";
    case element_type::ARRAY: return "array";
    case element_type::STRING: return "string";
    case element_type::INT64: return "integer";
    case element_type::UINT64: return "integer beyond 2^63-1";  // smaller ones are INT64
    case element_type::DOUBLE: return "number";
    case element_type::BOOL: return "boolean";
    case element_type::NULL_VALUE: return "null";
  }
  return "unknown";
}

Status check_no_duplicate_keys(const element& value, std::string_view what) {
  if (simdjson::dom::array array; value.get(array) == simdjson::SUCCESS) {
    for (const element item : array) SF_TRY(check_no_duplicate_keys(item, what));
    return {};
  }
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return {};
  std::vector<std::string_view> keys;
  for (const simdjson::dom::key_value_pair field : object) {
    keys.push_back(field.key);
    SF_TRY(check_no_duplicate_keys(field.value, what));
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    return malformed("{}: duplicate key '{}': it appears twice in one object", what, printable(*twice));
  return {};
}

Result<std::optional<element>> get_value(const element& object, std::string_view key, std::string_view what) {
  simdjson::dom::object members;
  if (object.get(members) != simdjson::SUCCESS)
    return malformed("{}: expected object with key '{}', found {}", what, key, json_kind(object));
  std::optional<element> found;
  std::string_view spelling;
  for (const simdjson::dom::key_value_pair field : members) {
    if (!ascii_iequals(field.key, key)) continue;
    if (found) return malformed("{}: duplicate key '{}': the object holds '{}' and '{}'", what, key, spelling, field.key);
    found = field.value;
    spelling = field.key;
  }
  if (found && found->is_null()) found.reset();
  return found;
}

Result<std::optional<std::int64_t>> get_int(const element& object, std::string_view key, std::string_view what) {
  return get_typed<std::int64_t>(object, key, what, "integer", [](const element& value, std::int64_t& out) {
    return value.is_int64() && value.get(out) == simdjson::SUCCESS;
  });
}

Result<std::optional<double>> get_number(const element& object, std::string_view key, std::string_view what) {
  return get_typed<double>(object, key, what, "number",
                           [](const element& value, double& out) { return value.get(out) == simdjson::SUCCESS; });
}

Result<std::optional<bool>> get_bool(const element& object, std::string_view key, std::string_view what) {
  return get_typed<bool>(object, key, what, "boolean",
                         [](const element& value, bool& out) { return value.get(out) == simdjson::SUCCESS; });
}

Result<std::optional<std::string_view>> get_string(const element& object, std::string_view key, std::string_view what) {
  return get_typed<std::string_view>(
      object, key, what, "string", [](const element& value, std::string_view& out) { return value.get(out) == simdjson::SUCCESS; });
}

Result<std::optional<element>> get_object(const element& object, std::string_view key, std::string_view what) {
  return get_typed<element>(object, key, what, "object",
                            [](const element& value, element& out) { return (out = value).is_object(); });
}

Result<std::optional<element>> get_array(const element& object, std::string_view key, std::string_view what) {
  return get_typed<element>(object, key, what, "array",
                            [](const element& value, element& out) { return (out = value).is_array(); });
}

}  // namespace swordfish
