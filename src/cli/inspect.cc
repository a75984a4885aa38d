// `swordfish inspect`: what a checkpoint or packed file holds, and anything in it that deserves a second look.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/try.h"
#include "cli/common.h"
#include "quant/numeric.h"

namespace swordfish::cli {
namespace {

std::string describe_zero(ZeroKind zero) {
  switch (zero) {
    case ZeroKind::constant: return "";
    case ZeroKind::integers: return "zeros";
    case ZeroKind::offsets: return "offsets";
  }
  return "";
}

std::string describe_global(const Global& g) { return fmt::format("{}{:.9g}", g.op == Global::Op::divide ? "/" : "×", g.value); }

// The largest |scale| that is not suspicious: trained weights stay far below it, and fp16 arithmetic overflows soon above it.
constexpr float kHugeScale = 1e3f;

// Appends what is suspicious about one matrix, or one part of a packed weight.
void scan_tensor(const std::string& who, const QuantTensor& t, std::vector<std::string>& findings) {
  float largest = 0;
  std::int64_t not_finite = 0;
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const float scale = std::abs(plane_value(t.scales.type, t.scales.at(n, r)));
      if (std::isfinite(scale))
        largest = std::max(largest, scale);
      else
        ++not_finite;
    }
  const float effective = t.global.op == Global::Op::divide ? largest / t.global.value : largest * t.global.value;
  if (not_finite > 0) findings.push_back(fmt::format("{}: {} scales are NaN or infinite", who, not_finite));
  if (effective > kHugeScale) findings.push_back(fmt::format("{}: largest scale {:.4g} is huge", who, effective));
  if (largest == 0 && not_finite == 0) findings.push_back(fmt::format("{}: every scale is zero", who));
  for (std::int64_t k = 0; !t.row_of_k.empty() && k < t.k; ++k)
    if (t.row(k) != k / t.group_size) {
      findings.push_back(fmt::format("{}: non-trivial g_idx (act-order)", who));
      break;
    }
}

std::string entry_name(const std::string& layer, std::int64_t experts, std::int64_t expert) {
  return experts ? fmt::format("{}[{}]", layer, expert) : layer;
}

Status scan_values(const Checkpoint& checkpoint, std::size_t index, std::vector<std::string>& findings) {
  const LayerInfo& info = checkpoint.layers()[index];
  for (std::int64_t expert = 0; expert < std::max<std::int64_t>(1, info.experts); ++expert) {
    SF_ASSIGN(const QuantTensor tensor, checkpoint.load(index, expert));
    if (!tensor.note.empty()) findings.push_back(fmt::format("{}: {}", info.name, tensor.note));
    scan_tensor(entry_name(info.name, info.experts, expert), tensor, findings);
  }
  return {};
}

Status scan_values(const PackedFile& file, std::size_t index, std::vector<std::string>& findings) {
  const PackedFile::Layer& layer = file.layers()[index];
  for (std::int64_t expert = 0; expert < std::max<std::int64_t>(1, layer.experts); ++expert) {
    SF_ASSIGN(const PackedWeight weight, file.load(index, expert));
    for (std::size_t part = 0; part < weight.parts.size(); ++part) {
      SF_ASSIGN(const QuantTensor tensor, unpack(weight.view, static_cast<std::int64_t>(part)));
      scan_tensor(entry_name(weight.parts[part].name, layer.experts, expert), tensor, findings);
    }
  }
  return {};
}

// Scans every layer. A layer that cannot be read is a finding too; the first such error is returned.
template <class Input>
Status scan_all(const Input& input, std::vector<std::string>& findings) {
  Progress progress("scanning values");
  Status first;
  for (std::size_t i = 0; i < input.layers().size(); ++i) {
    if (const Status s = scan_values(input, i, findings); !s.ok()) {
      findings.push_back(s.message());
      if (first.ok()) first = s;
    }
    progress.update(i + 1, input.layers().size());
  }
  return first;
}

struct Inspect {
  explicit Inspect(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  Format format = Format::table;
  bool values = false;
  int& exit;

  static Json layer_row(const LayerInfo& l) {
    return {{"name", l.name},
            {"scheme", l.scheme},
            {"type", name(l.code)},
            {"experts", l.experts},
            {"n", l.n},
            {"k", l.k},
            {"shape", matrix_text(l.experts, l.n, l.k)},
            {"bits", l.code == CodeType::int8 ? 8 : 4},
            {"group_size", l.group_size},
            {"group", l.group_size == l.k ? "channel" : std::to_string(l.group_size)},
            {"zeros", describe_zero(l.zero)},
            {"scale_type", name(l.scale_type)},
            {"act_order", l.act_order},
            {"fused_into", l.fused_into},
            {"bias", !l.bias.empty()},
            {"bytes", l.bytes}};
  }

  void add_globals(const Checkpoint& checkpoint, Json& rows, std::vector<std::string>& findings) const {
    std::map<std::string, std::vector<std::pair<std::string, Global>>> fused;
    for (std::size_t i = 0; i < checkpoint.layers().size(); ++i) {
      const LayerInfo& l = checkpoint.layers()[i];
      if (!l.has_global) continue;
      const Result<Global> global = checkpoint.load_global(i, 0);
      if (!global.ok()) continue;  // the value scan and `verify` say what is wrong with it
      rows[i]["global"] = describe_global(*global);
      if (!l.fused_into.empty()) fused[l.fused_into].emplace_back(l.name, *global);
    }
    for (const auto& [module, parts] : fused) {
      bool equal = true;
      std::string text;
      for (const auto& [part, global] : parts) {
        equal = equal && global == parts.front().second;
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.substr(part.rfind('.') + 1), describe_global(global));
      }
      if (!equal) findings.push_back(fmt::format("{}: parts have different globals ({}); each part keeps its own", module, text));
    }
  }

  void print_checkpoint(const Checkpoint& checkpoint, const Status& problem) {
    Json rows = Json::array();
    std::uint64_t quantized = 0, unquantized = 0, total = 0;
    for (const LayerInfo& l : checkpoint.layers()) {
      rows.push_back(layer_row(l));
      quantized += l.bytes;
    }
    for (const TensorInfo& t : checkpoint.tensors()) total += t.bytes;
    unquantized = total - std::min(total, quantized);
    std::vector<std::string> findings(checkpoint.warnings());
    add_globals(checkpoint, rows, findings);
    const Status value_problem = values ? scan_all(checkpoint, findings) : Status();
    Json document{{"path", checkpoint.path()},
                  {"scheme", checkpoint.scheme()},
                  {"layers", rows},
                  {"unquantized", checkpoint.unquantized()},
                  {"not_packed", checkpoint.not_packed()},
                  {"suspicious", findings},
                  {"summary",
                   {{"layers", rows.size()},
                    {"tensors", checkpoint.tensors().size()},
                    {"quantized_bytes", quantized},
                    {"unquantized_bytes", unquantized},
                    {"values_scanned", values},
                    {"refused", problem.ok() ? value_problem.message() : problem.message()}}}};
    print(format, document, "layers",
          {{"name", "layer", true},
           {"scheme", "scheme", true},
           {"type", "type", true},
           {"shape", "shape"},
           {"group", "group"},
           {"scale_type", "scales", true},
           {"zeros", "zeros", true},
           {"act_order", "act-order", true},
           {"bias", "bias", true},
           {"global", "global", true},
           {"fused_into", "fused into", true},
           {"bytes", "bytes"}});
    if (format == Format::table) {
      fmt::print("\n{}: {}, {} quantized layers, {} quantized, {} unquantized tensors with {}\n", checkpoint.path(),
                 checkpoint.scheme(), rows.size(), si_bytes(static_cast<double>(quantized)), checkpoint.unquantized().size(),
                 si_bytes(static_cast<double>(unquantized)));
      print_list("unquantized", checkpoint.unquantized(), 8);
      print_list("not packed (block type without a rule)", checkpoint.not_packed(), 1000);
      print_list("look at", findings, 1000);
    }
    if (!problem.ok())
      exit = fail(problem);
    else if (!value_problem.ok())
      exit = fail(value_problem);
  }

  static void print_list(std::string_view title, const std::vector<std::string>& lines, std::size_t most) {
    for (std::size_t i = 0; i < lines.size() && i < most; ++i) fmt::print("{}: {}\n", title, lines[i]);
    if (lines.size() > most) fmt::print("{}: and {} more\n", title, lines.size() - most);
  }

  void print_packed(const PackedFile& file) {
    Json rows = Json::array();
    std::uint64_t bytes = 0;
    for (const PackedFile::Layer& l : file.layers()) {
      const PackedView& v = l.shape;
      Json parts = Json::array();
      for (const PackedPart& p : l.parts) parts.push_back({{"name", p.name}, {"n", p.n}, {"global", describe_global(p.global)}});
      rows.push_back({{"name", l.name},
                      {"scheme", l.scheme},
                      {"layout", name(v.layout)},
                      {"type", name(v.code)},
                      {"shape", matrix_text(l.experts, v.n, v.k)},
                      {"n", v.n},
                      {"k", v.k},
                      {"experts", l.experts},
                      {"group", v.rows == 1 ? "channel" : std::to_string(v.group_size)},
                      {"scale_type", name(v.scale_type)},
                      {"parts", parts},
                      {"n_parts", l.parts.size()},
                      {"bias", !l.bias.empty()},
                      {"bytes", l.bytes}});
      bytes += l.bytes;
    }
    std::vector<std::string> findings;
    const Status value_problem = values ? scan_all(file, findings) : Status();
    const Json document{{"path", file.path()},
                        {"scheme", "swordfish packed"},
                        {"layers", rows},
                        {"suspicious", findings},
                        {"summary", {{"layers", rows.size()}, {"packed_bytes", bytes}, {"values_scanned", values}}}};
    print(format, document, "layers",
          {{"name", "layer", true},
           {"scheme", "from", true},
           {"layout", "layout", true},
           {"type", "type", true},
           {"shape", "shape"},
           {"group", "group"},
           {"scale_type", "scales", true},
           {"n_parts", "parts"},
           {"bias", "bias", true},
           {"bytes", "bytes"}});
    if (format == Format::table) {
      fmt::print("\n{}: {} packed layers, {}\n", file.path(), rows.size(), si_bytes(static_cast<double>(bytes)));
      print_list("look at", findings, 1000);
    }
    if (!value_problem.ok()) exit = fail(value_problem);
  }

  void run() {
    if (PackedFile::is_packed(input.path)) {
      Result<PackedFile> file = PackedFile::open(input.path);
      if (!file.ok())
        exit = fail(file.status());
      else
        print_packed(*file);
      return;
    }
    Status problem;
    const Checkpoint checkpoint = Checkpoint::open_partial(input.path, input.open, problem);
    if (!problem.ok() && checkpoint.tensors().empty() && format != Format::json) {  // nothing could be read: no table
      exit = fail(problem);
      return;
    }
    print_checkpoint(checkpoint, problem);
  }
};

}  // namespace

void add_inspect(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("inspect", "Show scheme, layers, shapes, groups, zeros, globals, and anything suspicious");
  auto state = std::make_shared<Inspect>(exit);
  add_input(*command, state->input, false);
  add_format(*command, state->format);
  command->add_flag("--values", state->values, "Also read and check every value (NaN, huge scales, zero points, g_idx)");
  command->footer("Example: swordfish inspect Llama-3-8B-GPTQ --values --format json");
  command->callback([state] { state->run(); });
}

}  // namespace swordfish::cli
