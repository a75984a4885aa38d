// JsonScanner: a strict reader of JSON text, value by value, that knows the byte offset of everything.
//
// It serves where simdjson's DOM cannot: the DOM drops the offset of an error, the sign of -0 and the place of duplicate keys, and
// takes 14 bytes of memory a byte of text (a safetensors header may be 100 MB). One pass, no allocation but the strings asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "swordfish/status.h"

namespace swordfish {

class JsonScanner {
 public:
  // `what` (a file path) starts every message; `base` is added to the offsets in them (where the text begins in the file).
  JsonScanner(std::string_view text, std::string_view what, std::uint64_t base = 0) : text_(text), what_(what), base_(base) {}

  // To be called first: the whole text is UTF-8 and begins with no byte order mark.
  Status check_encoding() const;

  // The kind of the next value: "object", "array", "string", "number", "boolean", "null", or "" if none begins here.
  std::string_view next_kind();

  // '{' or '['. Then next_member()/next_element() before each member: false at the closing bracket, which is consumed.
  // `first` starts as true and is theirs to change.
  Status open(char bracket);
  Result<bool> next_member(bool& first, std::string& key);  // consumes the key and its colon
  Result<bool> next_element(bool& first);

  Status read_string(std::string& out);  // unescaped; lone surrogates are refused
  // A plain integer: no sign, fraction, exponent or leading zero; at most 2^64-1.
  Status read_unsigned(std::uint64_t& out);
  Status skip_null();
  // Any value, syntax checked, at most `depth` levels of nesting.
  Status skip_value(std::size_t depth);
  // Nothing but white space is left.
  Status finish();

  // A Status "what: invalid JSON at byte N: reason", N being where the scanner stands.
  Status fail(std::string_view reason) const;

 private:
  static constexpr int kEnd = -1;
  int peek();  // the next byte that is not white space, or kEnd
  Status expected(std::string_view thing);
  Status skip_word(std::string_view word);
  Status skip_number();
  Status read_escape(std::string* out);
  Status read_hex4(std::uint32_t& out);
  Status read_string_into(std::string* out);  // nullptr: checked and dropped

  std::string_view text_;
  std::string_view what_;
  std::uint64_t base_;
  std::size_t at_ = 0;
};

}  // namespace swordfish
