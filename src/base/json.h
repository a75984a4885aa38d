// Reading JSON strictly: simdjson's DOM with a depth limit, and object look-ups that refuse duplicate keys.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "swordfish/status.h"

namespace swordfish {

// A parsed document; `root` stays valid as long as it lives. `what` (a file path) starts every message.
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

}  // namespace swordfish
