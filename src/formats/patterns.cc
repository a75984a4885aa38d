// Patterns of configuration files: PCRE2 with limits, globs without backtracking beyond the last star, substrings.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/patterns.h"

#include <pcre2.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace swordfish {
namespace {

// A module name is tens of bytes and a sensible pattern takes hundreds of steps; these are what a hostile pair may cost at most.
constexpr std::size_t kMaxPatternLength = 4096;
constexpr std::uint32_t kMatchLimit = 100'000;
constexpr std::uint32_t kDepthLimit = 10'000;
constexpr std::uint32_t kHeapLimitKib = 4'096;

template <class T, void (*F)(T*)>
struct Free {
  void operator()(T* p) const { F(p); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data, pcre2_match_data_free>>;
using CompiledCode = std::unique_ptr<pcre2_code, Free<pcre2_code, pcre2_code_free>>;

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR sptr(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// One bracket expression at glob[at] == '['. Returns its end (one past ']') and whether it takes `c`; end 0 when unclosed.
std::pair<std::size_t, bool> bracket(std::string_view glob, std::size_t at, char c) {
  std::size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  const std::size_t first = i;
  bool hit = false;
  for (; i < glob.size(); ++i) {
    if (glob[i] == ']' && i > first) return {i + 1, hit != negated};
    if (i + 2 < glob.size() && glob[i + 1] == '-' && glob[i + 2] != ']') {
      hit = hit || (glob[i] <= c && c <= glob[i + 2]);
      i += 2;
    } else {
      hit = hit || glob[i] == c;
    }
  }
  return {0, false};
}

}  // namespace

struct Pattern::Compiled {
  CompiledCode code;
  MatchContext limits;
};

Result<Pattern> Pattern::compile(std::string_view text, std::string where) {
  if (text.size() > kMaxPatternLength) {
    return unsupported("{}: a pattern of {} bytes, the limit is {}: \"{}...\"", where, text.size(), kMaxPatternLength,
                       printable(text.substr(0, 40)));
  }
  CompileContext context(pcre2_compile_context_create(nullptr));
  auto compiled = std::make_shared<Compiled>();
  compiled->limits.reset(pcre2_match_context_create(nullptr));
  if (!context || !compiled->limits) throw std::bad_alloc();
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled->code.reset(pcre2_compile(sptr(text), text.size(), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get()));
  if (!compiled->code) {
    if (error == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    return malformed("{}: the pattern \"{}\" is not a valid regex: {} at offset {}", where, printable(text), pcre2_message(error),
                     offset);
  }
  pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
  pcre2_set_depth_limit(compiled->limits.get(), kDepthLimit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  pattern.text_ = text;
  pattern.where_ = std::move(where);
  return pattern;
}

Result<bool> Pattern::match(std::string_view subject) const { return run(subject, PCRE2_ANCHORED); }
Result<bool> Pattern::search(std::string_view subject) const { return run(subject, 0); }

Result<bool> Pattern::run(std::string_view subject, unsigned options) const {
  MatchData data(pcre2_match_data_create(1, nullptr));
  if (!data) throw std::bad_alloc();
  const int found =
      pcre2_match(compiled_->code.get(), sptr(subject), subject.size(), 0, options, data.get(), compiled_->limits.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  return unsupported("{}: the regex \"{}\" cannot be matched against \"{}\": {}", where_, printable(text_), printable(subject),
                     pcre2_message(found));
}

bool glob_match(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (g < glob.size()) {
      if (glob[g] == '*') {
        star = g++;
        star_text = t;
        continue;
      }
      if (glob[g] == '[') {
        if (const auto [end, hit] = bracket(glob, g, text[t]); end != 0) {
          if (hit) {
            g = end;
            ++t;
            continue;
          }
        } else if (text[t] == '[') {
          ++g;
          ++t;
          continue;
        }
      } else if (glob[g] == '?' || glob[g] == text[t]) {
        ++g;
        ++t;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    g = star + 1;  // let the last star take one byte more
    t = ++star_text;
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool ModuleEntry::matches(std::string_view module) const {
  if (glob_) return glob_match(text_, module);
  if (text_.empty() || !module.starts_with(text_)) return false;
  return module.size() == text_.size() || module[text_.size()] == '.' || text_.back() == '.';
}

SubstringMatch substring_match(const std::vector<std::string>& list, std::string_view module) {
  SubstringMatch best = SubstringMatch::none;
  for (const std::string& entry : list) {
    if (entry.empty()) continue;
    for (std::size_t at = module.find(entry); at != std::string_view::npos; at = module.find(entry, at + 1)) {
      const std::size_t end = at + entry.size();
      const bool starts = at == 0 || module[at - 1] == '.' || entry.front() == '.';
      const bool ends = end == module.size() || module[end] == '.' || entry.back() == '.';
      if (starts && ends) return SubstringMatch::whole;
      best = SubstringMatch::partial;
    }
  }
  return best;
}

}  // namespace swordfish
