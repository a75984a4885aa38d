// Times ggml's matrix product (llama.cpp's operator; Q4_0, Q4_0 repacked, F16) and Swordfish's on the same N, K, M and threads.
//
// usage: compare N K M,M,... THREADS ROUNDS      prints one JSON document
//
// Both sides see cold weights: copies take turns until four times the largest cache lies between two uses of one. Sides alternate
// in rounds, so that a disturbance of the machine meets both; the median over all rounds' calls of ggml and of the rounds' medians
// of Swordfish is given, with the best. The two do not compute the same thing: for Q4_0 ggml rounds the activations to 8 bits in
// blocks of 32 and multiplies integers; Swordfish multiplies the 16-bit activations as they are, in fp32.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "swordfish/bench.h"

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t cold_bytes() { return 4 * static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 32L << 20)); }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "compare: %s\n", what.c_str());
  std::exit(1);
}

// The buffer type in which ggml's CPU backend interleaves Q4_0 rows for its fastest kernels, or null.
ggml_backend_buffer_type_t repack_type(ggml_backend_t backend) {
  ggml_backend_dev_t device = ggml_backend_get_device(backend);
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
  const auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts"));
  if (!get) return nullptr;
  for (ggml_backend_buffer_type_t* type = get(device); type && *type; ++type)
    if (std::strstr(ggml_backend_buft_name(*type), "REPACK")) return *type;
  return nullptr;
}

// One weight type of ggml: copies of a weight, each with the graph of one product for each M.
class Ggml {
 public:
  Ggml(ggml_backend_t backend, ggml_backend_buffer_type_t where, ggml_type type, std::int64_t n, std::int64_t k,
       const std::vector<std::int64_t>& ms)
      : backend_(backend) {
    const std::size_t bytes = ggml_row_size(type, k) * static_cast<std::size_t>(n);
    const std::size_t copies = std::max<std::size_t>(2, cold_bytes() / bytes + 1);
    std::vector<float> w(static_cast<std::size_t>(n * k));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.05f);
    for (float& f : w) f = normal(random);
    std::vector<std::byte> stored(bytes);
    ggml_quantize_chunk(type, w.data(), stored.data(), 0, n, k, nullptr);

    ggml_context* weights = context(copies + 1);
    std::vector<ggml_tensor*> tensors;
    for (std::size_t i = 0; i < copies; ++i) tensors.push_back(ggml_new_tensor_2d(weights, type, k, n));
    if (!ggml_backend_alloc_ctx_tensors_from_buft(weights, where)) die("ggml has no memory for its weights");
    for (ggml_tensor* t : tensors) ggml_backend_tensor_set(t, stored.data(), 0, bytes);

    for (const std::int64_t m : ms) {
      ggml_context* ctx = context(3 * copies + 2, copies);
      ggml_tensor* x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, m);
      std::vector<ggml_cgraph*> graphs;
      for (ggml_tensor* t : tensors) {
        ggml_cgraph* graph = ggml_new_graph_custom(ctx, 8, false);
        ggml_build_forward_expand(graph, ggml_mul_mat(ctx, t, x));
        graphs.push_back(graph);
      }
      if (!ggml_backend_alloc_ctx_tensors(ctx, backend)) die("ggml has no memory for its activations");
      ggml_backend_tensor_set(x, w.data(), 0, static_cast<std::size_t>(std::min(m, n) * k) * sizeof(float));
      graphs_.push_back(graphs);
    }
    times.resize(ms.size());
  }

  void round(std::size_t m, double seconds) {
    const auto begin = Clock::now();
    for (int i = 0; i < 6 || seconds_since(begin) < seconds; ++i) {
      ggml_cgraph* graph = graphs_[m][turn_++ % graphs_[m].size()];
      const auto start = Clock::now();
      if (ggml_backend_graph_compute(backend_, graph) != GGML_STATUS_SUCCESS) die("ggml failed");
      if (i > 0) times[m].push_back(seconds_since(start));
    }
  }

  std::vector<std::vector<double>> times;

 private:
  static ggml_context* context(std::size_t tensors, std::size_t graphs = 0) {
    const ggml_init_params params{ggml_tensor_overhead() * tensors + graphs * ggml_graph_overhead_custom(8, false), nullptr, true};
    return ggml_init(params);  // lives as long as the process
  }
  ggml_backend_t backend_;
  std::vector<std::vector<ggml_cgraph*>> graphs_;
  std::size_t turn_ = 0;
};

std::string first_line(const char* path, const char* key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return line.substr(line.find_first_not_of(" \t:", std::strlen(key)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) die("usage: compare N K M,M,... THREADS ROUNDS");
  const std::int64_t n = std::atoll(argv[1]), k = std::atoll(argv[2]);
  std::vector<std::int64_t> ms;
  std::stringstream list(argv[3]);
  for (std::string m; std::getline(list, m, ',');) ms.push_back(std::atoll(m.c_str()));
  const int threads = std::atoi(argv[4]), rounds = std::atoi(argv[5]);
  constexpr double kSeconds = 0.3;

  swordfish::Context context(threads);
  struct Ours {
    std::string name;
    swordfish::PackedWeight weight;
    std::vector<std::vector<double>> medians, best;
  };
  std::vector<Ours> ours;
  for (const auto& [name, code, group] :
       {std::tuple{"int4 group 32", swordfish::CodeType::int4, 32}, std::tuple{"int4 group 128", swordfish::CodeType::int4, 128}}) {
    auto weight = swordfish::random_weight(code, n, k, group);
    if (!weight.ok()) die(weight.status().message());
    ours.push_back({name, std::move(weight).value(), std::vector<std::vector<double>>(ms.size()),
                    std::vector<std::vector<double>>(ms.size())});
  }

  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, threads);
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  ggml_backend_cpu_set_threadpool(backend, ggml_threadpool_new(&params));
  ggml_backend_buffer_type_t plain = ggml_backend_get_default_buffer_type(backend), repack = repack_type(backend);
  std::vector<std::pair<std::string, Ggml>> theirs;
  theirs.emplace_back("ggml Q4_0", Ggml(backend, plain, GGML_TYPE_Q4_0, n, k, ms));
  if (repack) theirs.emplace_back("ggml Q4_0 repacked", Ggml(backend, repack, GGML_TYPE_Q4_0, n, k, ms));
  theirs.emplace_back("ggml F16", Ggml(backend, plain, GGML_TYPE_F16, n, k, ms));

  const swordfish::MachineRates rates = swordfish::measure_machine(context);
  double load[3] = {};
  (void)getloadavg(load, 3);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ms.size(); ++i) {
      for (Ours& o : ours) {
        swordfish::BenchOptions options;
        options.ms = {ms[i]};
        options.seconds = kSeconds;
        options.cold_bytes = cold_bytes();
        const auto points = swordfish::bench(context, o.weight, options);
        if (!points.ok()) die(points.status().message());
        o.medians[i].push_back((*points)[0].median);
        o.best[i].push_back((*points)[0].p05);
      }
      for (auto& [name, side] : theirs) side.round(i, kSeconds);
    }
  }

  Json out;
  out["cpu"] = first_line("/proc/cpuinfo", "model name");
  out["threads"] = threads;
  out["load_average_at_start"] = load[0];
  out["read_gb_per_second"] = rates.read_bytes_per_second * 1e-9;
  out["gfma_per_second"] = rates.fma_per_second * 1e-9;
  out["vectors"] = rates.vectors;
  out["note"] = "ggml rounds activations to 8 bits for Q4_0; Swordfish multiplies 16-bit activations as they are";
  Json rows = Json::array();
  const auto row = [&](const std::string& name, std::int64_t m, double med, double best) {
    const double fma = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    rows.push_back({{"what", name},
                    {"m", m},
                    {"n", n},
                    {"k", k},
                    {"median_us", med * 1e6},
                    {"p05_us", best * 1e6},
                    {"gfma_per_second", fma / med * 1e-9}});
  };
  for (std::size_t i = 0; i < ms.size(); ++i) {
    for (const Ours& o : ours)
      row("swordfish " + o.name, ms[i], median(o.medians[i]), *std::min_element(o.best[i].begin(), o.best[i].end()));
    for (auto& [name, side] : theirs) {
      std::vector<double> t = side.times[i];
      std::sort(t.begin(), t.end());
      row(name, ms[i], t[t.size() / 2], t[t.size() / 20]);
    }
  }
  out["results"] = rows;
  std::cout << out.dump(1) << "\n";
}
