// `swordfish pack`: a checkpoint, or a packed file of another layout, into one file of packed weights.
#include <fmt/format.h>

#include "base/try.h"
#include "cli/common.h"
#include "pack/pack_checkpoint.h"

namespace swordfish::cli {
namespace {

struct Pack {
  explicit Pack(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  std::string out;
  PackOptions options;
  Format format = Format::table;
  int& exit;

  void run() {
    Result<Source> source = Source::open(input.path, input.open);
    if (!source.ok()) {
      exit = fail(source.status());
      return;
    }
    options.layers = input.layers;
    if (source->layers().empty()) {
      exit = fail({Code::unavailable, "nothing in " + input.path + " can be packed: it holds no quantized layer"});
      return;
    }
    if (source->packed() && options.fuse) {
      exit = fail_usage(input.path + " is a packed file, whose weights stay fused or apart as they are: leave out --fuse");
      return;
    }
    Progress progress("packing");
    const auto update = [](std::uint64_t done, std::uint64_t total, void* bar) {
      static_cast<Progress*>(bar)->update(done, total);
      return true;
    };
    const Result<PackReport> report = source->packed() ? convert_packed(*source->packed(), out, options, update, &progress)
                                                       : pack_checkpoint(*source->checkpoint(), out, options, update, &progress);
    if (!report.ok()) {
      exit = fail(report.status(), true);
      return;
    }
    for (const std::string& note : report->notes) fmt::print(stderr, "swordfish: {}\n", note);
    const double rate = static_cast<double>(report->packed_bytes) / 1e9 / std::max(1e-9, report->pack_seconds);
    const Json row{{"out", out},
                   {"layers", report->layers},
                   {"source_bytes", report->source_bytes},
                   {"packed_bytes", report->packed_bytes},
                   {"read_seconds", report->read_seconds},
                   {"pack_seconds", report->pack_seconds},
                   {"write_seconds", report->write_seconds},
                   {"pack_gb_per_second", rate}};
    print(format, {{"pack", Json::array({row})}}, "pack",
          {{"out", "file", true},
           {"layers", "layers"},
           {"packed_bytes", "bytes"},
           {"read_seconds", "read s"},
           {"pack_seconds", "pack s"},
           {"write_seconds", "write s"},
           {"pack_gb_per_second", "pack GB/s"}});
  }
};

}  // namespace

void add_pack(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("pack", "Write a checkpoint's weights in the packed layout, as safetensors");
  auto s = std::make_shared<Pack>(exit);
  add_input(*command, s->input, true);
  command->get_option("path")->description(
      "Checkpoint folder, .safetensors or .gguf file, or a packed file to convert to another layout");
  add_format(*command, s->format);
  command->add_option("-o,--out", s->out, "The file to write; it appears whole or not at all")->required();
  add_layout(*command, s->options.layout,
             "mma64/1 is read by every W4A16 kernel; sm1xx-blockscaled/1 holds FP4 layers only, for block-scaled MMA (W4A4)");
  command->add_flag("--fuse", s->options.fuse, "Pack q|k|v and gate|up as one weight each");
  command->add_flag("--force", s->options.force, "Replace an existing file");
  add_threads(*command, s->options.threads);
  command->footer("Example: swordfish pack Llama-3-8B-GPTQ -o llama.safetensors --fuse");
  command->callback([s] { s->run(); });
}

}  // namespace swordfish::cli
