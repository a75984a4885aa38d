// The input is a JSON text: parse it, look for duplicate keys, ask for members of every type; the scanner must agree with simdjson.
#include "base/json.h"
#include "base/json_scanner.h"
#include "fuzz.h"

using namespace swordfish;

namespace {

void visit(const simdjson::dom::element& value) {
  if (simdjson::dom::array array; value.get(array) == simdjson::SUCCESS)
    for (const simdjson::dom::element item : array) visit(item);
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return;
  for (const simdjson::dom::key_value_pair field : object) {
    fuzz::check(simdjson::validate_utf8(field.key.data(), field.key.size()), "a key is UTF-8");
    (void)get_int(value, field.key, "f").ok();
    (void)get_number(value, field.key, "f").ok();
    (void)get_bool(value, field.key, "f").ok();
    (void)get_string(value, field.key, "f").ok();
    (void)get_object(value, field.key, "f").ok();
    (void)get_array(value, field.key, "f").ok();
    visit(field.value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;  // visit() is quadratic in the members of an object
  const std::string_view text = fuzz::text(data, size);
  const fuzz::AllocationGuard guard(size);
  const Result<Json> json = Json::parse(text, "f.json");
  JsonScanner scanner(text, "f.json");
  const bool scanned = scanner.check_encoding().ok() && scanner.skip_value(kJsonMaxDepth).ok() && scanner.finish().ok();
  if (!json.ok()) {
    fuzz::check(json.status().message().find("invalid") != std::string::npos, "the message says what is wrong");
    return 0;
  }
  fuzz::check(scanned, "what simdjson accepts, the scanner accepts");
  (void)check_no_duplicate_keys(json.value().root(), "f.json").ok();
  visit(json.value().root());
  return 0;
}
