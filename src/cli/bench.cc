// `swordfish bench`: times planned kernels with cold weights, over named model shapes, shapes given, or a checkpoint's own.
#include "swordfish/bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <set>

#include "base/error.h"
#include "base/try.h"
#include "cli/common.h"
#include "commit.h"
#include "device/measure.h"

namespace swordfish::cli {
namespace {

struct Shape {
  std::string name;
  std::int64_t n, k;
};

// The linear layers of well-known models, fused the way engines fuse them.
const std::map<std::string, std::vector<Shape>>& named_shapes() {
  static const std::map<std::string, std::vector<Shape>> shapes{
      {"llama-8b", {{"l8_qkv", 6144, 4096}, {"l8_o", 4096, 4096}, {"l8_gate_up", 28672, 4096}, {"l8_down", 4096, 14336}}},
      {"llama-70b", {{"l70_qkv", 10240, 8192}, {"l70_o", 8192, 8192}, {"l70_gate_up", 57344, 8192}, {"l70_down", 8192, 28672}}},
      {"smollm-135m", {{"s_qkv", 960, 576}, {"s_o", 576, 576}, {"s_gate_up", 3072, 576}, {"s_down", 576, 1536}}}};
  return shapes;
}

// "4096x14336" (N x K), or the name of a model.
Result<std::vector<Shape>> parse_shapes(const std::string& text) {
  if (const auto named = named_shapes().find(text); named != named_shapes().end()) return named->second;
  Shape shape{text, 0, 0};
  const char* end = text.data() + text.size();
  const auto n = std::from_chars(text.data(), end, shape.n);
  if (n.ec == std::errc() && n.ptr != end && *n.ptr == 'x') {
    const auto k = std::from_chars(n.ptr + 1, end, shape.k);
    if (k.ec == std::errc() && k.ptr == end && shape.n > 0 && shape.k > 0) return std::vector<Shape>{shape};
  }
  std::string names;
  for (const auto& [model, unused] : named_shapes()) names += " " + model;
  return invalid_argument("shape '{}': give NxK, or one of:{}", text, names);
}

struct Bench {
  explicit Bench(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  std::string format = "table", device = "cpu", kernel, pdl = "both", peer;
  DType activation = DType::bf16;
  std::vector<std::string> shapes;
  std::vector<std::int64_t> ms{1, 16, 64};
  CodeType type = CodeType::int4;
  std::int64_t group = 128;
  double seconds = 0.5;
  int threads = 0;
  int& exit;

  Device where;

  // Appends the points of one weight.
  Status measure(Context& context, const MachineRates& machine, const std::string& layer, const PackedWeight& weight,
                 Json& points) const {
    BenchOptions options;
    options.ms = ms;
    options.x_type = options.y_type = activation;
    options.kernel = kernel;
    options.seconds = seconds;
    options.device = where;
    options.dependent = pdl != "off";
    options.independent = pdl != "on";
    options.cublas = peer == "cublas";
    SF_ASSIGN(const std::vector<BenchPoint> measured, swordfish::bench(context, weight, options));
    for (const BenchPoint& p : measured) {
      Json point{{"layer", layer},
                 {"n", p.n},
                 {"k", p.k},
                 {"m", p.m},
                 {"weight", name(weight.view.code)},
                 {"group", weight.view.rows == 1 ? p.k : weight.view.group_size},
                 {"act", activation_name(activation)},
                 {"kernel", p.kernel},
                 {"threads", p.threads},
                 {"runs", p.runs},
                 {"us", p.median * 1e6},
                 {"us_p05", p.p05 * 1e6},
                 {"us_p95", p.p95 * 1e6},
                 {"gb_per_second", p.bytes_per_second() / 1e9},
                 {"rel_err", p.relative_error},
                 {"bound_ok", p.bound_ok}};
      if (where.kind == Device::Kind::cpu) {
        point["of_read"] = p.bytes_per_second() / machine.read_bytes_per_second;
        point["of_fma"] = p.fma_per_second() / machine.fma_per_second;
      } else {
        point["pdl"] = p.dependent;
        point["cublas_us"] = p.cublas > 0 ? Json(p.cublas * 1e6) : Json();
        point["sm_mhz"] = p.sm_mhz;
        point["watts"] = p.watts;
      }
      points.push_back(std::move(point));
    }
    return {};
  }

  Status run() {
    SF_ASSIGN(where, parse_device(device));
    const bool on_gpu = where.kind == Device::Kind::cuda;
    if (on_gpu) SF_TRY(usable_gpu(where).status());
    if (!peer.empty() && !on_gpu) return invalid_argument("--peer {} needs --device cuda", peer);
    Context context(threads);
    const MachineRates machine = on_gpu ? MachineRates{} : measure_machine(context);
    Json points = Json::array();
    Progress progress("timing");
    if (!input.path.empty()) {
      SF_ASSIGN(const Source source, Source::open(input.path, input.open));
      SF_ASSIGN(const auto layers, select_layers(source, input.layers));
      std::set<std::tuple<std::int64_t, std::int64_t, CodeType, std::int64_t>> seen;  // one of each shape
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const Source::Layer& layer = source.layers()[layers[i]];
        if (!seen.insert({layer.n, layer.k, layer.code, layer.group_size}).second) continue;
        SF_ASSIGN(const PackedWeight weight, source.load_packed(layers[i], threads));
        SF_TRY(measure(context, machine, layer.name, weight, points));
        progress.update(i + 1, layers.size());
      }
    } else {
      if (shapes.empty()) shapes = {"llama-8b"};
      std::vector<Shape> all;
      for (const std::string& text : shapes) {
        SF_ASSIGN(const std::vector<Shape> some, parse_shapes(text));
        all.insert(all.end(), some.begin(), some.end());
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        SF_ASSIGN(const PackedWeight weight, random_weight(type, all[i].n, all[i].k, group));
        SF_TRY(measure(context, machine, all[i].name, weight, points));
        progress.update(i + 1, all.size());
      }
    }
    if (format == "benchmark") {
      print_google(machine, points);
      return {};
    }
    const Json document{{"device", to_string(where)},
                        {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                        {"commit", SWORDFISH_COMMIT},
                        {"machine", on_gpu ? describe(where)
                                           : Json{{"threads", machine.threads},
                                                  {"vectors", machine.vectors},
                                                  {"read_gb_per_second", machine.read_bytes_per_second / 1e9},
                                                  {"fma_per_second", machine.fma_per_second}}},
                        {"points", points}};
    print(format == "json"  ? Format::json
          : format == "csv" ? Format::csv
                            : Format::table,
          document, "points",
          {{"layer", "layer", true},
           {"n", "N"},
           {"k", "K"},
           {"m", "M"},
           {"weight", "weight", true},
           {"group", "group"},
           {"kernel", "kernel", true},
           {"pdl", "PDL", true},
           {"us", "us"},
           {"us_p05", "p05"},
           {"us_p95", "p95"},
           {"cublas_us", "cuBLAS us"},
           {"gb_per_second", "GB/s"},
           {"rel_err", "rel. error"},
           {"bound_ok", "in bound", true},
           {"of_read", "of read"},
           {"of_fma", "of FMA"}});
    if (format == "table" && !on_gpu)
      fmt::print("\n{} threads, {}: reads {:.1f} GB/s, {:.1f} G fp32 FMA/s\n", machine.threads, machine.vectors,
                 machine.read_bytes_per_second / 1e9, machine.fma_per_second / 1e9);
    return {};
  }

  // The GPU, its driver, and its clocks and power at the end.
  static Json describe(Device device) {
    const GpuInfo& gpu = gpus().found[static_cast<std::size_t>(device.index)];
    const Sensors s = read_sensors(device);
    return {{"name", gpu.name},
            {"sms", gpu.sms},
            {"memory", gpu.memory},
            {"l2", gpu.l2},
            {"compute_capability", gpu.arch},
            {"driver", s.driver},
            {"cuda_driver", gpus().driver},
            {"cuda_runtime", gpus().runtime},
            {"clocks", {{"sm_mhz", s.sm_mhz}, {"memory_mhz", s.memory_mhz}, {"max_sm_mhz", s.max_sm_mhz}}},
            {"power", {{"watts", s.watts}, {"limit_watts", s.limit_watts}}},
            {"celsius", s.celsius}};
  }

  // The JSON of Google Benchmark, so that its compare.py and plotting tools read it.
  static void print_google(const MachineRates& machine, const Json& points) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    Json benchmarks = Json::array();
    for (const Json& p : points) {
      const std::string name =
          fmt::format("{}/M:{}/{}", p["layer"].get<std::string>(), p["m"].get<std::int64_t>(), p["kernel"].get<std::string>());
      benchmarks.push_back({{"name", name},
                            {"run_name", name},
                            {"run_type", "aggregate"},
                            {"aggregate_name", "median"},
                            {"repetitions", 1},
                            {"threads", p["threads"]},
                            {"iterations", p["runs"]},
                            {"real_time", p["us"]},
                            {"cpu_time", p["us"]},
                            {"time_unit", "us"},
                            {"bytes_per_second", p["gb_per_second"].get<double>() * 1e9}});
    }
    const Json document{{"context",
                         {{"date", std::to_string(std::time(nullptr))},
                          {"host_name", host},
                          {"executable", "swordfish bench"},
                          {"num_cpus", machine.threads},
                          {"library_build_type", "release"}}},
                        {"benchmarks", benchmarks}};
    fmt::print("{}\n", document.dump(2));
  }
};

}  // namespace

void add_bench(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand(
      "bench", "Time the planned kernels with cold weights: median and spread, GB/s, and the share of this machine's peak rates");
  auto s = std::make_shared<Bench>(exit);
  add_input(*command, s->input, true);
  command->get_option("path")->required(false);
  command->add_option("--format", s->format, "table, json, csv, or benchmark (JSON as Google Benchmark writes it)")
      ->check(CLI::IsMember({"table", "json", "csv", "benchmark"}))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--shapes", [s](const std::string& text) { s->shapes = split_list("--shapes", text); },
          "Without a checkpoint: NxK, llama-8b, llama-70b or smollm-135m; several separated by commas")
      ->type_name("TEXT,...")
      ->default_str("llama-8b")
      ->excludes("path");
  add_rows(*command, s->ms, 1, 1 << 20);
  add_code_type(*command, s->type);
  command->add_option("--group", s->group, "Columns per scale; 0: one scale per output row")->capture_default_str();
  add_activation(*command, s->activation);
  command->add_option("--device", s->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--pdl", s->pdl, "On a GPU, programmatic dependent launch: on, off, or both (one row each)")
      ->check(CLI::IsMember({"on", "off", "both"}))
      ->capture_default_str();
  command->add_option("--peer", s->peer, "On a GPU, also time this library on the dequantized weight")
      ->check(CLI::IsMember({"cublas"}));
  command->add_option("--kernel", s->kernel, "Force a kernel by name");
  add_threads(*command, s->threads);
  command->add_option("--seconds", s->seconds, "Time spent on each row of the result")
      ->check([](const std::string& text) {  // CLI::Range lets NaN through
        double seconds = 0;
        const bool good = CLI::detail::lexical_cast(text, seconds) && seconds >= 0.001 && seconds <= 3600;
        return good ? std::string() : "'" + text + "' is not a number from 0.001 to 3600";
      })
      ->capture_default_str();
  command->footer("Example: swordfish bench --shapes llama-8b,4096x11008 --m 1,16,64 --format json");
  command->callback([s] {
    if (const Status status = s->run(); !status.ok()) s->exit = fail(status);
  });
}

}  // namespace swordfish::cli
