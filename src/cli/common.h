// What the commands share: exit codes, options, result formats, the progress bar, and one view of checkpoints and packed files.
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

// Prints "swordfish: <message>" on stderr and returns the exit code for that kind of failure. An I/O error while the input is being
// opened means a refused input; after that (`running`) it is the machine that failed.
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
void add_activation(CLI::App& command, DType& type);    // --act
std::string_view activation_name(DType type);           // as --act spells it: "bf16", "fp16"
void add_layout(CLI::App& command, Layout& layout, const std::string& help);
void add_threads(CLI::App& command, int& threads);  // --threads
// --m: rows of x, a comma-separated list with each entry in [least, most].
void add_rows(CLI::App& command, std::vector<std::int64_t>& ms, std::int64_t least, std::int64_t most);
// The entries of a comma-separated list. Throws CLI::ValidationError (bad usage) when one is empty.
std::vector<std::string> split_list(const std::string& option, const std::string& text);

enum class Format { table, json, csv };
void add_format(CLI::App& command, Format& format);

using Json = nlohmann::ordered_json;
struct Column {
  std::string key;    // of each row object
  std::string title;  // in the table
  bool left = false;  // text is aligned left, numbers right
};
// Results go to stdout: the whole document as JSON, or its array `rows` as a table or CSV with these columns.
void print(Format format, const Json& document, std::string_view rows, const std::vector<Column>& columns);
std::string si_bytes(double bytes);                                             // "1.53 GB"
std::string matrix_text(std::int64_t experts, std::int64_t n, std::int64_t k);  // "4096x14336", of a stacked layer "8x4096x14336"

// A bar on stderr when that is a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  void update(std::uint64_t done, std::uint64_t total, std::string_view detail = {});  // detail: shown behind the percentage
  void clear();                                                                        // takes the bar off the screen

 private:
  std::string label_;
  bool shown_ = false;
  const bool terminal_;
  int last_ = -1;
};

// A checkpoint or a packed file, for commands that take either.
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
  // A plain layer, or expert 0 of a stacked one, packed: read from a packed file, or packed here. threads 0: all cores.
  Result<PackedWeight> load_packed(std::size_t layer, int threads) const;

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
  OpenOptions open;
};
void add_input(CLI::App& command, InputOptions& input, bool with_layers);
CLI::Validator pattern_validator();  // a regular expression that does not compile is bad usage
// Indices of the layers whose name contains a match of the pattern. A pattern that does not compile or matches nothing is a usage
// error; an input without quantized layers is `unavailable`.
Result<std::vector<std::size_t>> select_layers(const Source& source, const std::string& pattern);

// Each command registers itself; when it has run, `exit` holds its exit code.
void add_inspect(CLI::App& app, int& exit);
void add_verify(CLI::App& app, int& exit);
void add_dequantize(CLI::App& app, int& exit);
void add_pack(CLI::App& app, int& exit);
void add_quantize(CLI::App& app, int& exit);
void add_explain(CLI::App& app, int& exit);
void add_bench(CLI::App& app, int& exit);
void add_devices(CLI::App& app, int& exit);
void add_load(CLI::App& app, int& exit);
void add_synth(CLI::App& app, int& exit);

}  // namespace swordfish::cli
