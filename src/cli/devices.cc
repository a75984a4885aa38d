// `swordfish devices`: the hardware that was found, and what this build holds machine code for.
#include <fmt/format.h>
#include <hwy/targets.h>

#include <fstream>

#include "cli/common.h"
#include "swordfish/device.h"

namespace swordfish::cli {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

// Names of the Highway targets in a bit mask, best first.
std::string target_names(std::int64_t mask) {
  std::string names;
  for (std::int64_t bit = 1; bit != 0 && bit <= HWY_SCALAR; bit <<= 1)
    if (mask & bit) names += (names.empty() ? "" : " ") + std::string(hwy::TargetName(bit));
  return names;
}

void run(Format format) {
  const std::int64_t supported = hwy::SupportedTargets();
  Json rows = Json::array();
  rows.push_back({{"device", "cpu"},
                  {"name", cpu_name()},
                  {"threads", Context(0).threads()},
                  {"machine_code", target_names(HWY_TARGETS)},
                  {"uses", target_names(supported & -supported)}});
  const Gpus& all = gpus();
  const std::string code = all.machine_code.empty() ? "" : fmt::format("sm {}", all.machine_code);
  for (const GpuInfo& gpu : all.found)
    rows.push_back({{"device", fmt::format("cuda:{}", gpu.index)},
                    {"name", gpu.name},
                    {"sms", gpu.sms},
                    {"memory", gpu.memory},
                    {"l2", gpu.l2},
                    {"compute_capability", fmt::format("{}.{}", gpu.arch / 10, gpu.arch % 10)},
                    {"driver", all.driver},
                    {"runtime", all.runtime},
                    {"machine_code", code},
                    {"uses", why_unusable(gpu.index).empty() ? fmt::format("sm_{}", gpu.arch) : ""},
                    {"unusable", why_unusable(gpu.index)}});
  if (all.found.empty())
    rows.push_back(
        {{"device", "cuda"}, {"driver", all.driver}, {"runtime", all.runtime}, {"machine_code", code}, {"unusable", all.none}});
  print(format, {{"devices", rows}}, "devices",
        {{"device", "device", true},
         {"name", "name", true},
         {"threads", "threads"},
         {"sms", "SMs"},
         {"memory", "bytes"},
         {"l2", "L2 bytes"},
         {"compute_capability", "compute"},
         {"driver", "CUDA of the driver"},
         {"runtime", "of the build"},
         {"machine_code", "build holds code for", true},
         {"uses", "runs", true},
         {"unusable", "why not", true}});
}

}  // namespace

void add_devices(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("devices", "Show the devices found and what this build holds machine code for");
  auto format = std::make_shared<Format>(Format::table);
  add_format(*command, *format);
  command->footer("Example: swordfish devices --format json");
  command->callback([format, &exit] {
    run(*format);
    exit = kDone;
  });
}

}  // namespace swordfish::cli
