// `swordfish synth`: a checkpoint with random weights, for load tests and benches.
#include "synth/synth.h"

#include <fmt/format.h>

#include "cli/common.h"
#include "cli/interrupt.h"

namespace swordfish::cli {
namespace {

struct Synth {
  explicit Synth(int& exit_code) : exit(exit_code) {}

  std::string out;
  SynthOptions options;
  Format format = Format::table;
  int& exit;

  void run() {
    Progress bar("writing");
    options.user = &bar;
    options.progress = [](std::uint64_t done, std::uint64_t total, void* user) {
      static_cast<Progress*>(user)->update(done, total);
      return !FirstInterrupt::happened();
    };
    const FirstInterrupt guard;
    const Result<SynthReport> report = synthesize(out, options);
    if (!report.ok()) {
      exit = fail(report.status(), true);
      return;
    }
    const SynthShape& shape = report->shape;
    const Json row{{"out", out},
                   {"layers", shape.layers},
                   {"hidden", shape.hidden},
                   {"experts", shape.experts},
                   {"tensors", report->tensors},
                   {"shards", report->shards},
                   {"bytes", report->bytes},
                   {"seconds", report->seconds},
                   {"gb_per_second", static_cast<double>(report->bytes) / 1e9 / std::max(1e-9, report->seconds)}};
    print(format, {{"synth", Json::array({row})}}, "synth",
          {{"out", "folder", true},
           {"layers", "layers"},
           {"hidden", "hidden"},
           {"experts", "experts"},
           {"tensors", "tensors"},
           {"shards", "shards"},
           {"bytes", "bytes"},
           {"seconds", "s"},
           {"gb_per_second", "GB/s"}});
  }
};

}  // namespace

void add_synth(CLI::App& app, int& exit) {
  CLI::App* command =
      app.add_subcommand("synth", "Write a checkpoint with random weights, of a published family's names and shapes");
  auto s = std::make_shared<Synth>(exit);
  add_format(*command, s->format);
  command->add_option("-o,--out", s->out, "The folder to write; it appears whole or not at all")->required();
  add_choice<SynthModel>(*command, "--model", s->options.model,
                         {{"llama", SynthModel::llama},
                          {"mixtral", SynthModel::mixtral},
                          {"qwen3-moe", SynthModel::qwen3_moe},
                          {"glm-moe", SynthModel::glm_moe}},
                         "llama", "The family");
  add_choice<SynthScheme>(*command, "--scheme", s->options.scheme,
                          {{"nvfp4", SynthScheme::nvfp4},
                           {"ct-nvfp4", SynthScheme::ct_nvfp4},
                           {"gptq", SynthScheme::gptq},
                           {"awq", SynthScheme::awq},
                           {"compressed-tensors", SynthScheme::compressed_tensors}},
                          "nvfp4", "nvfp4 is ModelOpt's, ct-nvfp4 the one of compressed-tensors");
  command
      ->add_option("--size", s->options.bytes,
                   "About this many bytes (10GB, 64MB): layers are added until it is reached; the published number without it")
      ->transform(CLI::AsSizeValue(true));
  command->add_option("--shard-size", s->options.shard_bytes, "A new file begins when one would become larger")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", s->options.seed, "Of the random weights")->capture_default_str();
  command->footer("Example: swordfish synth --model qwen3-moe --scheme nvfp4 --size 10GB -o qwen3-synth");
  command->callback([s] { s->run(); });
}

}  // namespace swordfish::cli
