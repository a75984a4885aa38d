// Options, result formats, the progress bar and opening inputs, shared by the commands.
#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/try.h"
#include "formats/patterns.h"

namespace swordfish::cli {

int fail(const Status& status, bool running) {
  std::fflush(stdout);
  fmt::print(stderr, "swordfish: {}\n", status.message());
  switch (status.code()) {
    case Code::ok: return kDone;
    case Code::invalid_argument: return kUsage;
    case Code::malformed:
    case Code::unsupported: return kRefused;
    case Code::io: return running ? kUnavailable : kRefused;
    case Code::unavailable:
    case Code::out_of_memory: return kUnavailable;
    case Code::cancelled: return kCheckFailed;
    case Code::internal: return kCheckFailed;
  }
  return kCheckFailed;
}

int fail_usage(std::string_view message) { return fail({Code::invalid_argument, std::string(message)}); }

void add_format(CLI::App& command, Format& format) {
  add_choice(command, "--format", format, {{"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}}, "table",
             "How results are printed");
}

void add_code_type(CLI::App& command, CodeType& type) {
  add_choice(command, "--type", type, {{"int4", CodeType::int4}, {"int8", CodeType::int8}, {"fp4", CodeType::fp4}}, "int4",
             "Type of the weight's codes");
}

void add_activation(CLI::App& command, DType& type) {
  add_choice(command, "--act", type, {{"bf16", DType::bf16}, {"fp16", DType::f16}}, "bf16", "Type of the activations");
}

std::string_view activation_name(DType type) { return type == DType::bf16 ? "bf16" : "fp16"; }

void add_layout(CLI::App& command, Layout& layout, const std::string& help) {
  add_choice(command, "--layout", layout,
             {{std::string(name(Layout::mma64_1)), Layout::mma64_1},
              {std::string(name(Layout::sm1xx_blockscaled_1)), Layout::sm1xx_blockscaled_1}},
             std::string(name(Layout::mma64_1)), help);
}

void add_threads(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads to use; 0: all cores")->check(CLI::Range(0, 4096))->capture_default_str();
}

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> entries;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) throw CLI::ValidationError(option, "'" + text + "' has an empty entry");
    entries.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return entries;
}

void add_rows(CLI::App& command, std::vector<std::int64_t>& ms, std::int64_t least, std::int64_t most) {
  const auto read = [&ms, least, most](const std::string& text) {
    ms.clear();
    for (const std::string& entry : split_list("--m", text)) {
      std::int64_t& m = ms.emplace_back();
      const char* const end = entry.data() + entry.size();
      const auto [stop, error] = std::from_chars(entry.data(), end, m);
      if (error != std::errc() || stop != end || m < least || m > most)
        throw CLI::ValidationError("--m", fmt::format("'{}' is not an integer from {} to {}", entry, least, most));
    }
  };
  command.add_option_function<std::string>("--m", read, "Rows of x; several separated by commas")
      ->type_name("INT,...")
      ->default_str(fmt::format("{}", fmt::join(ms, ",")));
}

namespace {

std::string cell(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "";
  if (value.is_number_float()) {
    const double v = value.get<double>();
    return v != 0 && (std::abs(v) < 0.01 || std::abs(v) >= 1e6) ? fmt::format("{:.2e}", v) : fmt::format("{:.3g}", v);
  }
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value) text += (text.empty() ? "" : " ") + cell(item);
    return text;
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string csv_cell(const Json& value) {
  std::string text = value.is_number() || value.is_boolean() ? value.dump() : cell(value);
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// Columns a string takes on a terminal: UTF-8 continuation bytes take none.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t columns, bool left) {
  const std::string fill(columns - std::min(columns, width(text)), ' ');
  return left ? text + fill : fill + text;
}

}  // namespace

void print(Format format, const Json& document, std::string_view rows, const std::vector<Column>& columns) {
  const Json& array = document.at(std::string(rows));
  if (format == Format::json) {
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  const auto at = [](const Json& row, const Column& column) { return row.contains(column.key) ? row.at(column.key) : Json(); };
  if (format == Format::csv) {
    for (std::size_t c = 0; c < columns.size(); ++c) fmt::print("{}{}", c ? "," : "", columns[c].key);
    fmt::print("\n");
    for (const Json& row : array) {
      for (std::size_t c = 0; c < columns.size(); ++c) fmt::print("{}{}", c ? "," : "", csv_cell(at(row, columns[c])));
      fmt::print("\n");
    }
    return;
  }
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  std::vector<bool> used;
  for (const Column& column : columns) {
    widths.push_back(width(column.title));
    used.push_back(array.empty());
  }
  for (const Json& row : array) {
    std::vector<std::string>& line = cells.emplace_back();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      line.push_back(cell(at(row, columns[c])));
      widths[c] = std::max(widths[c], width(line.back()));
      used[c] = used[c] || !line.back().empty();
    }
  }
  const auto print_line = [&](auto&& text) {  // a column that is empty in every row is left out
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (used[c]) line += (line.empty() ? "" : "  ") + padded(text(c), widths[c], columns[c].left);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  print_line([&](std::size_t c) { return columns[c].title; });
  for (const auto& line : cells) print_line([&](std::size_t c) { return line[c]; });
}

std::string si_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, units[unit]);
}

Progress::Progress(std::string label) : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1) {}

std::string matrix_text(std::int64_t experts, std::int64_t n, std::int64_t k) {
  return experts ? fmt::format("{}x{}x{}", experts, n, k) : fmt::format("{}x{}", n, k);
}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view detail) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == last_ && detail.empty()) return;
  last_ = percent;
  shown_ = true;
  const std::string bar(static_cast<std::size_t>(percent) * 40 / 100, '#');
  fmt::print(stderr, "\r{} [{:<40}] {:3d} %{}\033[K", label_, bar, percent, detail);
  std::fflush(stderr);
}

Result<Source> Source::open(const std::string& path, const OpenOptions& options) {
  Source source;
  if (PackedFile::is_packed(path)) {
    SF_ASSIGN(source.packed_, PackedFile::open(path));
    source.scheme_ = "swordfish packed";
    for (const PackedFile::Layer& l : source.packed_->layers())
      source.layers_.push_back({l.name, l.name + ".weight", l.scheme, l.shape.code, l.shape.n, l.shape.k, l.experts,
                                l.shape.rows == 1 ? l.shape.k : l.shape.group_size, l.bytes});
  } else {
    SF_ASSIGN(source.checkpoint_, Checkpoint::open(path, options));
    source.scheme_ = source.checkpoint_->scheme();
    for (const LayerInfo& l : source.checkpoint_->layers())
      source.layers_.push_back({l.name, l.weight_name, l.scheme, l.code, l.n, l.k, l.experts, l.group_size, l.bytes});
  }
  return source;
}

Result<std::optional<std::vector<float>>> Source::load_bias(std::size_t layer, std::int64_t expert) const {
  return packed_ ? packed_->load_bias(layer, expert) : checkpoint_->load_bias(layer, expert);
}

Result<PackedWeight> Source::load_packed(std::size_t layer, int threads) const {
  if (packed_) return packed_->load(layer);
  SF_ASSIGN(const QuantTensor tensor, checkpoint_->load(layer));
  return pack(tensor, threads);
}

CLI::Validator pattern_validator() {
  return CLI::Validator(
      [](const std::string& text) {
        const Result<Pattern> compiled = Pattern::compile(text, "--layers");
        return compiled.ok() ? std::string() : compiled.status().message();
      },
      "PCRE2");
}

void add_input(CLI::App& command, InputOptions& input, bool with_layers) {
  command.add_option("path", input.path, "Checkpoint folder, .safetensors or .gguf file, or a file written by `swordfish pack`")
      ->required();
  add_choice(command, "--gptq-v1-zeros", input.open.gptq_v1_zeros,
             {{"refuse", GptqV1Zeros::refuse},
              {"lane", GptqV1Zeros::lane},
              {"unmasked", GptqV1Zeros::unmasked},
              {"word", GptqV1Zeros::word}},
             "refuse", "How to read ambiguous GPTQ v1 zero points (docs/formats.md)");
  if (with_layers) {
    command.add_option("--layers", input.layers, "Only layers whose name contains a match of this regular expression (PCRE2)")
        ->check(pattern_validator());
  }
}

Result<std::vector<std::size_t>> select_layers(const Source& source, const std::string& pattern) {
  std::vector<std::size_t> selected;
  if (source.layers().empty()) return unavailable("nothing in this input can be packed: it holds no quantized layer");
  SF_ASSIGN(const Pattern compiled, Pattern::compile(pattern, "--layers"));
  for (std::size_t i = 0; i < source.layers().size(); ++i) {
    SF_ASSIGN(const bool found, compiled.search(source.layers()[i].name));
    if (found) selected.push_back(i);
  }
  if (selected.empty()) return invalid_argument("--layers '{}' matches none of the {} layers", pattern, source.layers().size());
  return selected;
}

}  // namespace swordfish::cli
