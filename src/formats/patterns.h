// Patterns that configuration files use to name modules: regular expressions (PCRE2, with limits), shell-style globs, substrings.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "swordfish/status.h"

namespace swordfish {

// A compiled regular expression. Patterns and names come from files, so compiling and matching have limits on length, nesting,
// steps, depth and heap; reaching one is a Status, never a hang or an overflowing stack. Thread-safe.
class Pattern {
 public:
  // `where` ("config.json: ignore") starts every message. Row 28 of formats.md section 9.
  static Result<Pattern> compile(std::string_view text, std::string where);
  // Matches at the start of `subject`, not necessarily to its end (Python's re.match; GPTQ `dynamic`, compressed-tensors `re:`).
  Result<bool> match(std::string_view subject) const;
  // Matches anywhere in `subject`.
  Result<bool> search(std::string_view subject) const;
  const std::string& text() const { return text_; }

 private:
  struct Compiled;
  Pattern() = default;
  Result<bool> run(std::string_view subject, unsigned options) const;
  std::shared_ptr<const Compiled> compiled_;
  std::string text_;
  std::string where_;
};

// Shell-style wildcards over the whole of `text`: `*` any run (dots included), `?` one byte, `[abc]`, `[a-z]`, `[!a]`; an
// unclosed `[` stands for itself. Time is bounded by the product of the lengths.
bool glob_match(std::string_view glob, std::string_view text);

// An entry of ModelOpt's exclude_modules / ignore: with wildcards a glob; without, the path itself or a prefix of it that ends at
// a dot (formats.md 5.2).
class ModuleEntry {
 public:
  explicit ModuleEntry(std::string text) : text_(std::move(text)), glob_(text_.find_first_of("*?[") != std::string::npos) {}
  bool matches(std::string_view module) const;

 private:
  std::string text_;
  bool glob_;
};

// How an AWQ `modules_to_not_convert` list (substrings of module paths) concerns a module.
enum class SubstringMatch {
  none,
  partial,  // inside a path component: "gate" in "gate_proj"
  whole,    // whole components: "gate" in "mlp.gate"
};
SubstringMatch substring_match(const std::vector<std::string>& list, std::string_view module);

}  // namespace swordfish
