// What the commands share: exit codes, result formats, the progress bar, and opening a checkpoint or a packed file alike.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/checkpoint.h"
#include "swordfish/gemm.h"
#include "swordfish/pack.h"

namespace swordfish::cli {

enum Exit : int {
  kDone = 0,
  kCheckFailed = 1,
  kUsage = 2,        // bad arguments, nothing matched, refusing to overwrite
  kRefused = 3,      // the input is broken, unreadable, or of a scheme that is not supported
  kUnavailable = 4,  // this machine or build cannot do it
};

// Prints "swordfish: <message>" on stderr and returns the exit code of its kind. An I/O failure while opening the input is a
// refused input; once the input is open (`running`) it is the machine that failed.
int fail(const Status& status, bool running = false);
int fail_usage(std::string_view message);

// An option that takes one of the names; the help lists them.
template <class T>
void add_choice(CLI::App& command, const std::string& flag, T& value, const std::map<std::string, T>& names,
                const std::string& first, const std::string& help) {
  std::string list;
  for (const auto& [name, meaning] : names) list += (list.empty() ? "{" : ",") + name;
  list += "}";
  const auto look_up = [names, list](std::string& text) {
    const auto found = names.find(CLI::detail::to_lower(text));
    if (found == names.end()) return "'" + text + "' is none of " + list;
    text = std::to_string(static_cast<int>(found->second));
    return std::string();
  };
  command.add_option(flag, value, help)->transform(CLI::Validator(look_up, list))->type_name("TEXT")->default_str(first);
}
void add_code_type(CLI::App& command, CodeType& type);  // --type

enum class Format { table, json, csv };
void add_format(CLI::App& command, Format& format);

using Json = nlohmann::ordered_json;
struct Column {
  std::string key;    // of each row object
  std::string title;  // in the table
  bool left = false;  // text is set left, numbers right
};
// Results go to stdout: the whole document as JSON, or its array `rows` as a table or CSV with these columns.
void print(Format format, const Json& document, std::string_view rows, const std::vector<Column>& columns);
std::string si_bytes(double bytes);  // "1.53 GB"

// A bar on stderr when that is a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  bool shown_ = false;
  const bool terminal_;
  int last_ = -1;
};

// A checkpoint or a packed file, as the commands that take either see it.
class Source {
 public:
  struct Layer {
    std::string name, weight_name, scheme;
    CodeType code = CodeType::int4;
    std::int64_t n = 0, k = 0, experts = 0, group_size = 0;
    std::uint64_t bytes = 0;
  };
  static Result<Source> open(const std::string& path, const OpenOptions& options);

  const std::vector<Layer>& layers() const { return layers_; }
  const std::string& scheme() const { return scheme_; }
  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  const PackedFile* packed() const { return packed_ ? &*packed_ : nullptr; }
  Result<std::optional<std::vector<float>>> load_bias(std::size_t layer, std::int64_t expert) const;

 private:
  std::optional<Checkpoint> checkpoint_;
  std::optional<PackedFile> packed_;
  std::vector<Layer> layers_;
  std::string scheme_;
};

// Options that several commands take.
struct InputOptions {
  std::string path;
  std::string layers;  // PCRE2 pattern searched in layer names
  std::string gptq_v1_zeros = "refuse";
  OpenOptions open_options() const;
};
void add_input(CLI::App& command, InputOptions& input, bool with_layers);
CLI::Validator pattern_validator();  // a regular expression that does not compile is bad usage
// Indices of the layers whose name the pattern is found in; a pattern that does not compile, or matches nothing, is a usage error.
Result<std::vector<std::size_t>> select_layers(const Source& source, const std::string& pattern);

// Each command registers itself; `exit` receives its exit code when it has run.
void add_inspect(CLI::App& app, int& exit);
void add_verify(CLI::App& app, int& exit);
void add_dequantize(CLI::App& app, int& exit);
void add_pack(CLI::App& app, int& exit);
void add_quantize(CLI::App& app, int& exit);
void add_explain(CLI::App& app, int& exit);
void add_bench(CLI::App& app, int& exit);
void add_devices(CLI::App& app, int& exit);

}  // namespace swordfish::cli
