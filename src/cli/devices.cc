// `swordfish devices`: the hardware that was found, and what this build holds machine code for.
#include <fmt/format.h>
#include <hwy/targets.h>

#include <fstream>

#include "cli/common.h"

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
  print(format, {{"devices", rows}}, "devices",
        {{"device", "device", true},
         {"name", "name", true},
         {"threads", "threads"},
         {"machine_code", "build holds code for", true},
         {"uses", "runs", true}});
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
