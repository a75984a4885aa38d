// `swordfish explain`: which kernel is chosen for a layer or a shape, and why not each of the others.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "cli/common.h"
#include "swordfish/device.h"

namespace swordfish::cli {
namespace {

struct Explain {
  explicit Explain(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  Format format = Format::table;
  std::vector<std::int64_t> ms{1};
  std::int64_t n = 0, k = 0, group = 128;
  CodeType type = CodeType::int4;
  DType activation = DType::bf16;
  std::string device = "cpu", kernel, described;
  int threads = 0;
  bool list = false;
  int& exit;

  void print_table() const {
    Json rows = Json::array();
    for (const KernelInfo& info : kernels())
      rows.push_back({{"kernel", info.name},
                      {"device", info.device},
                      {"rows", info.regime},
                      {"weights", info.weights},
                      {"zeros", info.zeros},
                      {"groups", info.groups},
                      {"activations", info.activations},
                      {"layout", info.layout},
                      {"status", info.status}});
    print(format, {{"kernels", rows}}, "kernels",
          {{"kernel", "kernel", true},
           {"device", "device", true},
           {"rows", "M", true},
           {"weights", "weights", true},
           {"zeros", "zeros", true},
           {"groups", "groups", true},
           {"activations", "x", true},
           {"layout", "layout", true},
           {"status", "status", true}});
  }

  // The layers of the input, or the one that --n and --k describe.
  Result<std::vector<PackedWeight>> weights() const {
    std::vector<PackedWeight> all;
    if (input.path.empty()) {
      if (n == 0 || k == 0) return invalid_argument("give a checkpoint, or --n and --k");
      SF_ASSIGN(PackedWeight w, describe(type, n, k, group));
      w.name = fmt::format("{}x{} {} group {}", n, k, name(type), group == 0 ? "channel" : std::to_string(group));
      all.push_back(std::move(w));
      return all;
    }
    SF_ASSIGN(const Source source, Source::open(input.path, input.open));
    SF_ASSIGN(const auto layers, select_layers(source, input.layers));
    for (std::size_t i : layers) {
      SF_ASSIGN(PackedWeight w, source.load_packed(i, threads));
      all.push_back(std::move(w));
    }
    return all;
  }

  Status run() {
    if (list) {
      print_table();
      return {};
    }
    SF_ASSIGN(const std::vector<PackedWeight> explained, weights());
    SF_ASSIGN(Device where, parse_device(device));
    GpuInfo gpu;
    if (!described.empty()) {
      SF_ASSIGN(gpu, describe_gpu(described));
      where = {Device::Kind::cuda, 0};
    }
    const Context context(threads);
    Json rows = Json::array();
    for (const PackedWeight& w : explained)
      for (std::int64_t m : ms) {
        const Problem problem{&w.view, m,     activation,        activation,
                              false,   where, context.threads(), described.empty() ? nullptr : &gpu};
        const Result<Plan> chosen = plan(problem, {kernel, -1});
        if (!chosen.ok()) exit = fail(chosen.status());
        for (const Explanation& e : explain(problem, {kernel, -1}))
          rows.push_back({{"layer", w.name},
                          {"m", m},
                          {"kernel", e.kernel},
                          {"chosen", e.chosen},
                          {"reason", e.reason},
                          {"plan", e.chosen && chosen.ok() ? to_string(*chosen) : ""}});
      }
    print(format, {{"explain", rows}}, "explain",
          {{"layer", "layer", true},
           {"m", "M"},
           {"kernel", "kernel", true},
           {"chosen", "chosen", true},
           {"reason", "reason", true},
           {"plan", "plan", true}});
    return {};
  }
};

}  // namespace

void add_explain(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("explain", "Show the chosen plan, and why each other kernel was not chosen");
  auto s = std::make_shared<Explain>(exit);
  add_input(*command, s->input, true);
  command->get_option("path")->required(false);
  add_format(*command, s->format);
  add_rows(*command, s->ms, 0, std::int64_t{1} << 40);
  command->add_option("--n", s->n, "Output features, when no checkpoint is given")->excludes("path");
  command->add_option("--k", s->k, "Input features")->excludes("path");
  command->add_option("--group", s->group, "Columns per scale; 0: one scale per output row")->capture_default_str();
  add_code_type(*command, s->type);
  add_activation(*command, s->activation);
  command->add_option("--device", s->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--gpu", s->described, "Plan for this GPU, which need not be present: sm_ARCH:SMS, such as sm_90:132");
  command->add_option("--kernel", s->kernel, "Force a kernel by name");
  add_threads(*command, s->threads);
  command->add_flag("--list", s->list, "Print the kernel table");
  command->footer("Example: swordfish explain --m 1,64 --n 4096 --k 4096 --type int4 --group 128");
  command->callback([s] {
    if (const Status status = s->run(); !status.ok()) s->exit = fail(status);
  });
}

}  // namespace swordfish::cli
