// Escaping, ASCII case, suffixes and shapes, for messages and comparisons.
#include "base/text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <system_error>

namespace swordfish {
namespace {
constexpr std::size_t kLongest = 300;  // bytes of a name that a message repeats
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
}  // namespace

std::string printable(std::string_view text) {
  std::size_t keep = std::min(text.size(), kLongest);
  while (keep < text.size() && keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xc0) == 0x80)
    --keep;  // not inside a character
  const std::string_view shown = text.substr(0, keep);
  const bool utf8 = simdjson::validate_utf8(shown.data(), shown.size());
  std::string out;
  for (const char c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8))
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  if (keep < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool ascii_iequals(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool strip_suffix(std::string& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.resize(text.size() - suffix.size());
  return true;
}

std::string_view before_suffix(std::string_view text, std::span<const std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes) {
    if (text.ends_with(suffix)) return text.substr(0, text.size() - suffix.size());
  }
  return {};
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace swordfish
