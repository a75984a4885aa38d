// `swordfish load`: a checkpoint to packed weights in memory, with where the time went.
#include "swordfish/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "load/resident.h"

namespace swordfish::cli {
namespace {

// "r/R"
struct RankText {
  int rank = 0, ranks = 1;
};
bool parse(const std::string& text, RankText& out) {
  const char* end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, out.rank);
  if (rank.ec != std::errc() || rank.ptr == end || *rank.ptr != '/') return false;
  const auto ranks = std::from_chars(rank.ptr + 1, end, out.ranks);
  return ranks.ec == std::errc() && ranks.ptr == end && out.rank >= 0 && out.rank < out.ranks;
}

// The rate of each stage so far, for the progress bar.
std::string rates(const LoadProgress& now) {
  const double seconds = std::max(now.seconds, 1e-9);
  return fmt::format("  read {:.2f} GB/s, packed {:.2f} GB/s", static_cast<double>(now.read) / 1e9 / seconds,
                     static_cast<double>(now.packed) / 1e9 / seconds);
}

struct Load {
  explicit Load(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  std::string rank = "0/1", device = "cpu";
  bool no_direct = false, no_uring = false, checksum = false;
  LoadOptions options;
  Format format = Format::table;
  int& exit;

  void run() {
    options.open = input.open;
    options.layers = input.layers;
    options.direct = !no_direct;
    options.uring = !no_uring;
    const Result<Device> parsed_device = parse_device(device);
    if (!parsed_device.ok()) {
      exit = fail(parsed_device.status());
      return;
    }
    options.device = *parsed_device;
    RankText parsed;
    parse(rank, parsed);
    options.rank = parsed.rank;
    options.ranks = parsed.ranks;
    Progress bar(options.raw ? "reading" : "loading");
    options.user = &bar;
    options.progress = [](const LoadProgress& now, void* user) {
      static_cast<Progress*>(user)->update(now.packed, now.total, rates(now));
      return !FirstInterrupt::happened();
    };
    const FirstInterrupt guard;
    const Result<LoadedModel> model = load(input.path, options);
    bar.clear();
    if (!model.ok()) {
      exit = fail(model.status());
      return;
    }
    for (const std::string& note : model->report.notes) fmt::print(stderr, "swordfish: {}\n", note);
    std::string sum;
    if (checksum) {
      Result<std::string> computed = resident_sum(*model);
      if (!computed.ok()) {
        exit = fail(computed.status());
        return;
      }
      sum = *computed;
    }
    report(model->report, sum);
  }

  void report(const LoadReport& r, const std::string& sum) {
    const double seconds = std::max(r.seconds, 1e-9), bytes = static_cast<double>(r.source_bytes);
    // What the disk gave while it was reading; all of the time against that.
    const double disk_rate = r.disk_seconds > 0 ? static_cast<double>(r.disk_bytes) / 1e9 / r.disk_seconds : 0;
    Json row{{"path", input.path},
             {"device", device},
             {"layers", r.layers},
             {"tensors", r.tensors},
             {"bytes", r.source_bytes},
             {"packed_bytes", r.packed_bytes},
             {"device_bytes", r.device_bytes},
             {"seconds", r.seconds},
             {"gb_per_second", bytes / 1e9 / seconds},
             {"disk_bytes", r.disk_bytes},
             {"cached_bytes", r.cached_bytes},
             {"past_ring_bytes", r.past_ring_bytes},
             {"direct_bytes", r.direct_bytes},
             {"unplanned_bytes", r.unplanned_bytes},
             {"strided_bytes", r.strided_bytes},
             {"engine", r.engine},
             {"threads", r.threads},
             {"from_packed", r.from_packed},
             {"cache_written", r.cache_written},
             {"open_seconds", r.open_seconds},
             {"device_seconds", r.device_seconds},
             {"disk_seconds", r.disk_seconds},
             {"disk_gb_per_second", disk_rate},
             {"full_seconds", r.full_seconds},
             {"wait_seconds", r.wait_seconds},
             {"copy_seconds", r.copy_seconds},
             {"pack_seconds", r.pack_seconds},
             {"upload_seconds", r.upload_seconds},
             {"cache_seconds", r.cache_seconds}};
    if (checksum) row["checksum"] = sum;
    print(format, {{"load", Json::array({row})}}, "load",
          {{"path", "path", true},
           {"layers", "layers"},
           {"tensors", "tensors"},
           {"bytes", "bytes"},
           {"packed_bytes", "packed bytes"},
           {"seconds", "s"},
           {"gb_per_second", "GB/s"},
           {"engine", "read by", true}});
    if (format != Format::table) return;
    std::string line = fmt::format("{} in {:.2f} s, {:.2f} GB/s", si_bytes(bytes), r.seconds, bytes / 1e9 / seconds);
    if (r.disk_seconds > 0) {
      line += fmt::format("; the disk gave {:.2f} GB/s in {:.2f} s of reading: {:.0f} % of the time", disk_rate, r.disk_seconds,
                          100 * r.disk_seconds / seconds);
    }
    if (r.cached_bytes > 0) line += fmt::format("; {} from the page cache", si_bytes(static_cast<double>(r.cached_bytes)));
    fmt::print("\n{}\n", line);
    fmt::print(
        "headers and plan {:.2f} s, ring full {:.2f} s; summed over {} threads: waiting for bytes {:.2f} s, copying {:.2f} s, "
        "packing {:.2f} s{}{}\n",
        r.open_seconds, r.full_seconds, r.threads, r.wait_seconds, r.copy_seconds, r.pack_seconds,
        r.device_bytes > 0 ? fmt::format(", copying to the GPU {:.2f} s", r.upload_seconds) : "",
        r.from_packed ? " (packed already)" : "");
    if (r.cache_written) fmt::print("packed cache written in {:.2f} s\n", r.cache_seconds);
  }
};

}  // namespace

void add_load(CLI::App& app, int& exit) {
  CLI::App* command =
      app.add_subcommand("load", "Load a checkpoint as packed weights at the speed of the disk, and say where the time went");
  auto s = std::make_shared<Load>(exit);
  add_input(*command, s->input, true);
  add_format(*command, s->format);
  command->add_option("--device", s->device, "Where the packed weights go: cpu, cuda or cuda:N")->capture_default_str();
  add_layout(*command, s->options.layout, "Layout to pack into; see pack --help");
  command->add_flag("--fuse", s->options.fuse, "Pack q|k|v and gate|up as one weight each");
  command->add_option("--rank", s->rank, "r/R: only what rank r of R tensor-parallel ranks holds; from 0")
      ->check([](const std::string& text) {
        RankText parsed;
        return parse(text, parsed) ? std::string() : "expected r/R with 0 <= r < R, such as 0/2";
      })
      ->capture_default_str();
  command->add_flag("--whole-experts", s->options.whole_experts, "With --rank: deal experts out whole instead of cutting each");
  command->add_flag("--raw", s->options.raw, "Only read the same bytes, with no packing");
  command->add_option("--cache", s->options.cache,
                      "Folder of packed caches: the next load with the same files and options reads packed bytes");
  command->add_flag("--checksum", s->checksum, "Print a checksum of everything that is resident, the same on every device");
  command->add_option("--ring", s->options.ring_bytes, "Memory that reads land in")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256 MiB");
  command->add_option("--depth", s->options.depth, "Reads in flight")->check(CLI::Range(1, 4096))->capture_default_str();
  add_threads(*command, s->options.threads);
  command->add_flag("--no-direct", s->no_direct, "Read through the page cache instead of O_DIRECT");
  command->add_flag("--no-uring", s->no_uring, "Read with threads instead of io_uring");
  command->footer("Example: swordfish load Mixtral-8x7B-NVFP4 --rank 0/2 --whole-experts");
  command->callback([s] { s->run(); });
}

}  // namespace swordfish::cli
