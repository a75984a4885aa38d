// Small text helpers: names that come from files (escaping for messages, ASCII case, suffixes), shapes, errors of the system.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace swordfish {

// `text` fit for a message: control bytes, DEL and bytes that are not UTF-8 become \xNN; a text longer than 300 bytes is cut
// and says so.
std::string printable(std::string_view text);
// ASCII letters in lower case; other bytes as they are.
std::string ascii_lower(std::string_view text);
bool ascii_iequals(std::string_view a, std::string_view b);
// "[128, 64]"; a scalar is "[]".
std::string shape_text(std::span<const std::int64_t> shape);
// Takes `suffix` off the end of `text`; false, and nothing done, if it does not end so.
bool strip_suffix(std::string& text, std::string_view suffix);
// `text` without the first of `suffixes` that it ends with; empty if it ends with none.
std::string_view before_suffix(std::string_view text, std::span<const std::string_view> suffixes);
// What the system says of an errno value.
std::string errno_text(int error);

}  // namespace swordfish
