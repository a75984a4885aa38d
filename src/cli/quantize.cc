// `swordfish quantize`: a dense checkpoint into int4, int8, NVFP4 or MXFP4 by round-to-nearest.
#include "swordfish/quantize.h"

#include <functional>

#include "cli/common.h"

namespace swordfish::cli {
namespace {

struct Quantize {
  explicit Quantize(int& exit_code) : exit(exit_code) {}

  std::string path, out, scheme;
  std::int64_t group = 128;
  bool asymmetric = false;
  QuantizeOptions options;
  Format format = Format::table;
  std::function<bool()> integer_options;  // whether an option of int4 and int8 was given
  int& exit;

  void run() {
    options.scheme = *parse_quantize_scheme(scheme);
    const bool integer = options.scheme == QuantizeScheme::int4 || options.scheme == QuantizeScheme::int8;
    if (!integer && integer_options()) {
      exit = fail_usage("--group, --asymmetric and --scale-type are for int4 and int8: the format fixes them for " + scheme);
      return;
    }
    options.group_size = group == 0 ? -1 : group;
    options.symmetric = !asymmetric;
    struct Running {
      Progress bar{"quantizing"};
      bool began = false;
    } running;
    const auto update = [](std::uint64_t done, std::uint64_t total, void* user) {
      auto& state = *static_cast<Running*>(user);
      state.began = true;
      state.bar.update(done, total);
      return true;
    };
    const Result<QuantizeReport> report = quantize_checkpoint(path, out, options, update, &running);
    if (!report.ok()) {
      exit = fail(report.status(), running.began);
      return;
    }
    const Json row{{"out", out},
                   {"scheme", scheme},
                   {"quantized", report->quantized},
                   {"copied", report->copied},
                   {"source_bytes", report->source_bytes},
                   {"written_bytes", report->written_bytes}};
    print(format, {{"quantize", Json::array({row})}}, "quantize",
          {{"out", "folder", true},
           {"scheme", "scheme", true},
           {"quantized", "matrices"},
           {"copied", "copied tensors"},
           {"source_bytes", "from bytes"},
           {"written_bytes", "to bytes"}});
  }
};

}  // namespace

void add_quantize(CLI::App& app, int& exit) {
  CLI::App* command =
      app.add_subcommand("quantize", "Round-to-nearest quantization of dense safetensors, written in a standard format");
  auto s = std::make_shared<Quantize>(exit);
  command->add_option("path", s->path, "Folder of safetensors, or one .safetensors file, in BF16, F16 or F32")->required();
  command->add_option("-o,--out", s->out, "The folder to write; it appears whole or not at all")->required();
  command->add_option("--scheme", s->scheme, "int4, int8 (compressed-tensors), nvfp4 (ModelOpt) or mxfp4 (compressed-tensors)")
      ->required()
      ->check(CLI::IsMember({"int4", "int8", "nvfp4", "mxfp4"}));
  CLI::Option* group = command->add_option("--group", s->group, "int4, int8: columns a scale; 0: one scale per output row")
                           ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
                           ->capture_default_str();
  CLI::Option* asymmetric = command->add_flag("--asymmetric", s->asymmetric, "int4, int8: store a zero point with each scale");
  add_choice(*command, "--scale-type", s->options.scale_type, {{"bf16", DType::bf16}, {"fp16", DType::f16}, {"fp32", DType::f32}},
             "bf16", "int4, int8: type of the scales");
  command->add_option("--layers", s->options.layers, "Only modules whose path contains a match of this regular expression (PCRE2)")
      ->check(pattern_validator());
  command->add_flag("--force", s->options.force, "Replace an earlier result");
  add_threads(*command, s->options.threads);
  add_format(*command, s->format);
  command->footer("Example: swordfish quantize Llama-3-8B -o Llama-3-8B-int4 --scheme int4 --group 128");
  const CLI::Option* scale_type = command->get_option("--scale-type");
  s->integer_options = [=] { return group->count() + asymmetric->count() + scale_type->count() > 0; };
  command->callback([s] { s->run(); });
}

}  // namespace swordfish::cli
