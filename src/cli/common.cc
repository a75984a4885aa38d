// Formats, progress and opening, shared by the commands.
#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == last_) return;
  last_ = percent;
  shown_ = true;
  fmt::print(stderr, "\r{} [{:<40}] {:3d} %", label_, std::string(static_cast<std::size_t>(percent) * 40 / 100, '#'), percent);
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

OpenOptions InputOptions::open_options() const {
  static const std::map<std::string, GptqV1Zeros> names{{"refuse", GptqV1Zeros::refuse},
                                                        {"lane", GptqV1Zeros::lane},
                                                        {"unmasked", GptqV1Zeros::unmasked},
                                                        {"word", GptqV1Zeros::word}};
  return {names.at(gptq_v1_zeros)};
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
  command
      .add_option("--gptq-v1-zeros", input.gptq_v1_zeros,
                  "How to read ambiguous GPTQ v1 zero points: refuse, lane, unmasked or word")
      ->check(CLI::IsMember({"refuse", "lane", "unmasked", "word"}))
      ->capture_default_str();
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
