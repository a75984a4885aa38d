// The strict JSON reader: grammar of RFC 8259, errors with byte offsets.
#include "base/json_scanner.h"

#include <simdjson.h>

#include <algorithm>
#include <bitset>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace swordfish {
namespace {

bool is_digit(int c) { return c >= '0' && c <= '9'; }
bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Offset of the first byte that no UTF-8 text could have there; text.size() if there is none.
std::size_t first_bad_utf8(std::string_view text) {
  std::size_t good = 0, bad = text.size();  // a prefix of `good` bytes is known to be valid up to a cut character
  while (good < bad) {                      // on the error path only: O(n log n)
    const std::size_t middle = good + (bad - good) / 2;
    std::size_t cut = middle + 1;  // complete the character that holds `middle`
    while (cut < text.size() && cut < middle + 4 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) ++cut;
    if (simdjson::validate_utf8(text.data(), cut))
      good = middle + 1;
    else
      bad = middle;
  }
  return good;
}

void append_utf8(std::uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 63));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

}  // namespace

Status JsonScanner::check_encoding() const {
  if (text_.substr(0, 3) == "\xef\xbb\xbf")
    return malformed("{}: invalid JSON at byte {}: expected UTF-8 without a byte order mark, found a BOM", what_, base_);
  if (simdjson::validate_utf8(text_.data(), text_.size())) return {};
  const std::size_t bad = first_bad_utf8(text_);
  return malformed("{}: invalid UTF-8 at byte {} (found 0x{:02x})", what_, base_ + bad, static_cast<unsigned char>(text_[bad]));
}

int JsonScanner::peek() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : kEnd;
}

Status JsonScanner::fail(std::string_view reason) const {
  return malformed("{}: invalid JSON at byte {}: {}", what_, base_ + at_, reason);
}

Status JsonScanner::expected(std::string_view thing) {
  const int c = at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : kEnd;
  if (c == kEnd) return fail(fmt::format("expected {}, found the end of the text", thing));
  if (c > 0x20 && c < 0x7f) return fail(fmt::format("expected {}, found character '{}'", thing, static_cast<char>(c)));
  return fail(fmt::format("expected {}, found byte 0x{:02x}", thing, c));
}

std::string_view JsonScanner::next_kind() {
  const int c = peek();
  if (c == '{') return "object";
  if (c == '[') return "array";
  if (c == '"') return "string";
  if (c == '-' || is_digit(c)) return "number";
  if (c == 't' || c == 'f') return "boolean";
  if (c == 'n') return "null";
  return "";
}

Status JsonScanner::open(char bracket) {
  if (peek() != bracket) return expected(bracket == '{' ? "an object ('{')" : "an array ('[')");
  ++at_;
  return {};
}

Result<bool> JsonScanner::next_member(bool& first, std::string& key) {
  int c = peek();
  if (c == '}') return (++at_, false);
  if (!first) {
    if (c != ',') return expected("',' or '}'");
    ++at_;
    c = peek();
  }
  first = false;
  if (c != '"') return expected("a key (a string)");
  SF_TRY(read_string(key));
  if (peek() != ':') return expected("':' after a key");
  ++at_;
  return true;
}

Result<bool> JsonScanner::next_element(bool& first) {
  const int c = peek();
  if (c == ']') return (++at_, false);
  if (!first) {
    if (c != ',') return expected("',' or ']'");
    ++at_;
    if (peek() == ']') return expected("a value");
  }
  first = false;
  return true;
}

Status JsonScanner::read_string(std::string& out) {
  out.clear();
  return read_string_into(&out);
}

Status JsonScanner::read_string_into(std::string* out) {
  if (peek() != '"') return expected("a string");
  ++at_;
  while (true) {
    const std::size_t from = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
    if (out != nullptr) out->append(text_, from, at_ - from);
    if (at_ == text_.size()) return expected("'\"' at the end of a string");
    if (text_[at_] == '"') {
      ++at_;
      return {};
    }
    if (text_[at_] != '\\') return expected("no control character in a string");
    SF_TRY(read_escape(out));
  }
}

Status JsonScanner::read_hex4(std::uint32_t& out) {
  out = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const int c = at_ < text_.size() ? text_[at_] : kEnd;
    if (is_digit(c))
      out = out * 16 + static_cast<std::uint32_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      out = out * 16 + static_cast<std::uint32_t>(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      out = out * 16 + static_cast<std::uint32_t>(c - 'A' + 10);
    else
      return expected("four hexadecimal digits after \\u");
  }
  return {};
}

Status JsonScanner::read_escape(std::string* out) {
  const std::size_t start = at_++;  // the backslash
  if (at_ == text_.size()) return expected("an escape");
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (const std::size_t simple = kFrom.find(text_[at_]); simple != std::string_view::npos) {
    ++at_;
    if (out != nullptr) *out += kTo[simple];
    return {};
  }
  if (text_[at_] != 'u') return expected("an escape (one of \"\\/bfnrtu after a backslash)");
  ++at_;
  std::uint32_t c = 0;
  SF_TRY(read_hex4(c));
  if (c >= 0xd800 && c < 0xe000) {
    std::uint32_t low = 0;
    if (c < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      SF_TRY(read_hex4(low));
    }
    if (low < 0xdc00 || low >= 0xe000) {
      at_ = start;
      return fail("lone surrogate escape in a string");
    }
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  if (out != nullptr) append_utf8(c, *out);
  return {};
}

Status JsonScanner::read_unsigned(std::uint64_t& out) {
  if (peek() == '-') return expected("a non-negative integer");
  const std::size_t from = at_;
  SF_TRY(skip_number());
  const std::string_view digits = text_.substr(from, at_ - from);
  out = 0;
  for (const char c : digits) {
    std::uint64_t next = 0;
    if (!is_digit(c) || __builtin_mul_overflow(out, std::uint64_t{10}, &next) ||
        __builtin_add_overflow(next, static_cast<std::uint64_t>(c - '0'), &out)) {
      at_ = from;
      return fail(fmt::format("expected an integer of at most 64 bits, found {}", printable(digits)));
    }
  }
  return {};
}

Status JsonScanner::skip_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return expected(word);
  at_ += word.size();
  return {};
}

Status JsonScanner::skip_null() {
  peek();
  return skip_word("null");
}

Status JsonScanner::skip_number() {
  const auto here = [&] { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : kEnd; };
  const auto digits = [&] {
    while (is_digit(here())) ++at_;
  };
  if (here() == '-') ++at_;
  if (!is_digit(here())) return expected("a digit");
  if (here() == '0') {
    ++at_;
    if (is_digit(here())) return expected("no digit after a leading zero");
  }
  digits();
  if (here() == '.') {
    ++at_;
    if (!is_digit(here())) return expected("a digit after the decimal point");
    digits();
  }
  if (here() == 'e' || here() == 'E') {
    ++at_;
    if (here() == '+' || here() == '-') ++at_;
    if (!is_digit(here())) return expected("a digit in the exponent");
    digits();
  }
  return {};
}

Status JsonScanner::skip_value(std::size_t depth) {
  std::bitset<kJsonMaxDepth> is_object;  // the open brackets
  depth = std::min(depth, kJsonMaxDepth);
  std::size_t level = 0;
  bool first = true;
  while (true) {
    // One value, or the opening of one.
    const int c = peek();
    bool opened = false;
    if (c == '{' || c == '[') {
      if (level == depth) return fail(fmt::format("nested deeper than {} levels", kJsonMaxDepth));
      is_object[level++] = c == '{';
      ++at_;
      opened = first = true;
    } else if (c == '"') {
      SF_TRY(read_string_into(nullptr));
    } else if (c == '-' || is_digit(c)) {
      SF_TRY(skip_number());
    } else if (c == 't' || c == 'f' || c == 'n') {
      SF_TRY(skip_word(c == 't' ? "true" : c == 'f' ? "false" : "null"));
    } else {
      return expected("a value");
    }
    if (!opened) first = false;
    // On to the next value: past closing brackets, a comma, a key.
    while (true) {
      if (level == 0) return {};
      bool more = false;
      if (is_object[level - 1]) {
        if (const int next = peek(); next == '}') {
          ++at_;
        } else {
          if (!first) {
            if (next != ',') return expected("',' or '}'");
            ++at_;
          }
          if (peek() != '"') return expected("a key (a string)");
          SF_TRY(read_string_into(nullptr));
          if (peek() != ':') return expected("':' after a key");
          ++at_;
          more = true;
        }
      } else {
        Result<bool> element = next_element(first);
        if (!element.ok()) return element.status();
        more = *element;
      }
      if (more) break;
      --level;
      first = false;
    }
  }
}

Status JsonScanner::finish() {
  if (peek() != kEnd) return expected("nothing after the document (trailing characters)");
  return {};
}

}  // namespace swordfish
