// `swordfish verify`: proves each layer: the packed bytes unpack to exactly what was read, and the planned kernel multiplies within
// its bound of fp64 arithmetic on the checkpoint's own bytes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "cli/common.h"
#include "plan/error_bound.h"
#include "quant/numeric.h"
#include "swordfish/device.h"

namespace swordfish::cli {
namespace {

bool same_plane(const Plane& a, const Plane& b, std::int64_t n, std::int64_t rows) {
  if (bool(a) != bool(b)) return false;
  if (!a) return true;
  if (a.type != b.type) return false;
  const std::size_t size = static_cast<std::size_t>(bits(a.type)) / 8;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t r = 0; r < rows; ++r)
      if (std::memcmp(a.at(i, r), b.at(i, r), size) != 0) return false;
  return true;
}

// Empty when the packed weight gives back every code, scale, zero, offset, scale row and global; else the first difference.
std::string round_trip_difference(const QuantTensor& source, const QuantTensor& back) {
  if (source.n != back.n || source.k != back.k || source.code != back.code || source.rows != back.rows)
    return "shape or type differs";
  if (!(source.global == back.global)) return "global differs";
  if (!source.zeros && source.zero != back.zero) return "constant zero differs";
  if (!same_plane(source.scales, back.scales, source.n, source.rows)) return "scales differ";
  if (!same_plane(source.zeros, back.zeros, source.n, source.rows)) return "zeros differ";
  if (!same_plane(source.offsets, back.offsets, source.n, source.rows)) return "offsets differ";
  for (std::int64_t k = 0; k < source.k; ++k)
    if (source.row(k) != back.row(k)) return fmt::format("scale row of k={} differs", k);
  const std::int64_t chunk = 4096;  // columns compared at a time
  std::vector<std::uint8_t> a(static_cast<std::size_t>(64 * chunk)), b(a.size());
  for (std::int64_t n0 = 0; n0 < source.n; n0 += 64)
    for (std::int64_t k0 = 0; k0 < source.k; k0 += chunk) {
      const std::int64_t n = std::min<std::int64_t>(64, source.n - n0), k = std::min(chunk, source.k - k0);
      source.codes->read(n0, n, k0, k, a.data(), static_cast<std::size_t>(chunk));
      back.codes->read(n0, n, k0, k, b.data(), static_cast<std::size_t>(chunk));
      for (std::int64_t i = 0; i < n; ++i)
        if (std::memcmp(&a[static_cast<std::size_t>(i * chunk)], &b[static_cast<std::size_t>(i * chunk)],
                        static_cast<std::size_t>(k)) != 0)
          return fmt::format("codes of row {} differ between k={} and {}", n0 + i, k0, k0 + k);
    }
  return "";
}

// The exact product [m, n] in fp64, and what its error bound needs (plan/error_bound.h).
struct Reference {
  std::vector<double> y;          // Σ_k x[m,k]·w[n,k]
  std::vector<double> magnitude;  // Σ_k |x[m,k]|·added_magnitude[n,k]
  std::vector<double> weights;    // Σ_k |x[m,k]·w[n,k]|, for weight_rounding; only where asked for
  std::vector<double> sum_x;      // [m] Σ_k |x[m,k]|
};

double dot(const double* a, const double* b, std::int64_t k) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= k; i += 8)
    for (int j = 0; j < 8; ++j) lanes[j] += a[i + j] * b[i + j];
  for (; i < k; ++i) lanes[0] += a[i] * b[i];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

Reference multiply(ThreadPool& pool, const QuantTensor& tensor, const std::vector<double>& x, std::int64_t m, bool with_weights) {
  Reference out;
  out.y.resize(static_cast<std::size_t>(m * tensor.n));
  out.magnitude.resize(out.y.size());
  out.weights.resize(out.y.size());
  std::vector<double> abs_x(x.size());
  std::transform(x.begin(), x.end(), abs_x.begin(), [](double v) { return std::abs(v); });
  for (std::int64_t mm = 0; mm < m; ++mm)
    out.sum_x.push_back(std::accumulate(abs_x.begin() + mm * tensor.k, abs_x.begin() + (mm + 1) * tensor.k, 0.0));
  constexpr std::int64_t rows = 8;  // weight rows a task
  pool.parallel_for((tensor.n + rows - 1) / rows, [&](std::int64_t task, int) {
    const std::int64_t n0 = task * rows, n = std::min(rows, tensor.n - n0), k = tensor.k;
    std::vector<double> w(static_cast<std::size_t>(n * k)), added(w.size());
    dequantize(tensor, n0, n, w.data(), k);
    added_magnitude(tensor, n0, n, added.data(), k);
    const auto each = [&](auto&& set) {
      for (std::int64_t mm = 0; mm < m; ++mm)
        for (std::int64_t i = 0; i < n; ++i)
          set(static_cast<std::size_t>(mm * tensor.n + n0 + i), static_cast<std::size_t>(mm * k), static_cast<std::size_t>(i * k));
    };
    each([&](std::size_t at, std::size_t xm, std::size_t wi) {
      out.y[at] = dot(&x[xm], &w[wi], k);
      out.magnitude[at] = dot(&abs_x[xm], &added[wi], k);
    });
    if (!with_weights) return;
    for (double& v : w) v = std::abs(v);
    each([&](std::size_t at, std::size_t xm, std::size_t wi) { out.weights[at] = dot(&abs_x[xm], &w[wi], k); });
  });
  return out;
}

// A product held against the reference, element by element.
struct Comparison {
  bool ok = true;               // every element is within its bound
  double relative_error = 0;    // Frobenius norm of the error over that of the reference
  double error_over_bound = 0;  // of the worst element
  std::int64_t overflowed = 0;  // elements that are infinite because the exact value is beyond the range of the type
};

// y[m, n], row stride ldy, of a 16-bit type.
Comparison compare(const std::vector<std::uint16_t>& y, std::int64_t ldy, DType type, const QuantTensor& tensor,
                   const Reference& reference, const std::vector<float>* bias, std::int64_t m, bool rounds_weights) {
  // From here on a value rounds to infinity: half a unit in the last place above the largest finite one.
  const double overflow = type == DType::bf16 ? 0x1.ffp127 : 65520.0;
  Comparison out;
  double error2 = 0, norm2 = 0;
  for (std::int64_t mm = 0; mm < m; ++mm)
    for (std::int64_t n = 0; n < tensor.n; ++n) {
      const std::size_t at = static_cast<std::size_t>(mm * tensor.n + n);
      const double b = bias ? static_cast<double>((*bias)[static_cast<std::size_t>(n)]) : 0;
      const double expected = reference.y[at] + b;
      const double got = half_to_f32(type, y[static_cast<std::size_t>(mm * ldy + n)]);
      const double rounding = rounds_weights ? weight_rounding(type, reference.weights[at],
                                                               reference.sum_x[static_cast<std::size_t>(mm)], tensor.global)
                                             : 0;
      const double bound = error_bound(type, expected, reference.magnitude[at] + std::abs(b), tensor.k, rounding);
      if (std::isinf(got) && std::signbit(got) == std::signbit(expected) && std::abs(expected) + bound >= overflow) {
        ++out.overflowed;
        continue;
      }
      const double error = std::abs(got - expected);
      if (!(error <= bound)) out.ok = false;  // NaN fails
      const double ratio = bound > 0 ? error / bound : (error == 0 ? 0.0 : std::numeric_limits<double>::infinity());
      out.error_over_bound = std::max(out.error_over_bound, ratio);
      error2 += error * error;
      norm2 += expected * expected;
    }
  out.relative_error = norm2 > 0 ? std::sqrt(error2 / norm2) : std::sqrt(error2);
  return out;
}

// The shortest of three calls, in seconds.
template <class Call>
Result<double> best_of_three(Call call) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    SF_TRY(call());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct Verify {
  explicit Verify(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  Format format = Format::table;
  std::vector<std::int64_t> ms{1, 16, 64};
  DType activation = DType::bf16;
  std::string device = "cpu", kernel;
  int threads = 0;
  std::uint64_t seed = 0;
  int& exit;

  std::unique_ptr<Context> context;
  std::unique_ptr<ThreadPool> pool;
  Device where;

  // The product three times, into a poisoned y and with a poisoned workspace; returns the best time in seconds.
  Result<double> run_on_cpu(const Problem& problem, const Plan& chosen, const std::vector<std::uint16_t>& x,
                            const std::vector<float>* bias, std::vector<std::uint16_t>& y, std::int64_t ldy) const {
    Buffer workspace(std::max<std::size_t>(chosen.workspace, 64));
    std::memset(workspace.data(), 0xff, workspace.size());
    SF_TRY(workspace_init(chosen, where, workspace.data(), workspace.size()));
    const RunArgs args{x.data(),         problem.weight->k, y.data(), ldy, bias ? bias->data() : nullptr,
                       workspace.data(), workspace.size(),  nullptr};
    return best_of_three([&] { return swordfish::run(*context, problem, chosen, args); });
  }

  // The same on a GPU; the time includes a launch and the wait for it.
  Result<double> run_on_gpu(const PackedWeight& packed, Problem problem, const Plan& chosen, const std::vector<std::uint16_t>& x,
                            const std::vector<float>* bias, std::vector<std::uint16_t>& y, std::int64_t ldy) const {
    SF_ASSIGN(const DeviceWeight weight, DeviceWeight::upload(packed, where));
    problem.weight = &weight.view();
    const auto x_bytes = static_cast<std::size_t>(problem.m * packed.view.k) * 2;
    SF_ASSIGN(const DeviceBuffer gpu_x, DeviceBuffer::allocate(where, x_bytes));
    SF_ASSIGN(const DeviceBuffer gpu_y, DeviceBuffer::allocate(where, y.size() * 2));
    SF_ASSIGN(const DeviceBuffer gpu_bias, DeviceBuffer::allocate(where, bias ? bias->size() * sizeof(float) : 0));
    SF_ASSIGN(const DeviceBuffer workspace, DeviceBuffer::allocate(where, chosen.workspace));
    SF_TRY(copy(where, gpu_x.data(), x.data(), x_bytes));
    SF_TRY(copy(where, gpu_y.data(), y.data(), y.size() * 2));
    if (bias) SF_TRY(copy(where, gpu_bias.data(), bias->data(), gpu_bias.size()));
    SF_TRY(fill(where, workspace.data(), 0xff, workspace.size()));
    SF_TRY(workspace_init(chosen, where, workspace.data(), workspace.size()));
    const RunArgs args{gpu_x.data(),     packed.view.k,    gpu_y.data(), ldy, static_cast<const float*>(gpu_bias.data()),
                       workspace.data(), workspace.size(), nullptr};
    SF_TRY(synchronize(where));
    SF_ASSIGN(const double best, best_of_three([&]() -> Status {
                SF_TRY(swordfish::run(*context, problem, chosen, args));
                return synchronize(where);
              }));
    SF_TRY(copy(where, y.data(), gpu_y.data(), y.size() * 2));
    return best;
  }

  // One product checked against the reference; fills `check` and returns whether it is within the bound.
  Result<bool> check_product(const PackedWeight& packed, const QuantTensor& tensor, const std::vector<std::uint16_t>& x,
                             const Reference& reference, const std::vector<float>* bias, std::int64_t m, Json& check) const {
    const Problem problem{&packed.view, m, activation, activation, bias != nullptr, where, context->threads()};
    SF_ASSIGN(const Plan chosen, plan(problem, {kernel, -1}));
    const std::int64_t ldy = tensor.n + 8;
    std::vector<std::uint16_t> y(static_cast<std::size_t>(m * ldy), 0x7fff);  // NaN in both types
    double seconds = 0;
    if (where.kind == Device::Kind::cuda) {
      SF_ASSIGN(seconds, run_on_gpu(packed, problem, chosen, x, bias, y, ldy));
    } else {
      SF_ASSIGN(seconds, run_on_cpu(problem, chosen, x, bias, y, ldy));
    }
    const Comparison found = compare(y, ldy, activation, tensor, reference, bias, m, chosen.rounds_weights);
    check = {{"m", m},
             {"kernel", chosen.kernel_name},
             {"relative_error", found.relative_error},
             {"error_over_bound", found.error_over_bound},
             {"gb_per_second", static_cast<double>(packed.bytes()) / seconds / 1e9},
             {"seconds", seconds},
             {"overflowed", found.overflowed},
             {"ok", found.ok}};
    return found.ok;
  }

  // One matrix: round trip, then every M.
  Result<Json> check_matrix(const PackedWeight& packed, const QuantTensor& tensor, const std::vector<float>* bias,
                            std::uint64_t stream) const {
    SF_ASSIGN(const QuantTensor back, unpack(packed.view, 0));
    const std::string difference = round_trip_difference(tensor, back);
    Json result{{"round_trip", difference.empty()}, {"checks", Json::array()}};
    if (!difference.empty()) result["difference"] = difference;
    bool ok = difference.empty();

    const std::int64_t most = *std::max_element(ms.begin(), ms.end());
    std::mt19937_64 random(seed ^ (stream * 0x9e3779b97f4a7c15u));
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> x(static_cast<std::size_t>(most * tensor.k));
    std::vector<double> exact(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = f32_to_half(activation, normal(random));
      exact[i] = half_to_f32(activation, x[i]);
    }
    const Reference reference = multiply(*pool, tensor, exact, most, where.kind == Device::Kind::cuda);
    double relative = 0, over = 0;
    for (std::int64_t m : ms) {
      Json check;
      SF_ASSIGN(const bool within, check_product(packed, tensor, x, reference, bias, m, check));
      ok = ok && within;
      relative = std::max(relative, check["relative_error"].get<double>());
      over = std::max(over, check["error_over_bound"].get<double>());
      result["checks"].push_back(std::move(check));
    }
    result["relative_error"] = relative;
    result["error_over_bound"] = over;
    result["ok"] = ok;
    return result;
  }

  // One layer, every expert of it; the row shows the worst.
  Result<Json> check_layer(const Source& source, std::size_t index) const {
    const Source::Layer& layer = source.layers()[index];
    Json row{{"name", layer.name},
             {"scheme", layer.scheme},
             {"type", name(layer.code)},
             {"n", layer.n},
             {"k", layer.k},
             {"experts", layer.experts},
             {"shape", matrix_text(layer.experts, layer.n, layer.k)},
             {"round_trip", true},
             {"relative_error", 0.0},
             {"error_over_bound", 0.0},
             {"ok", true}};
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(1, layer.experts); ++expert) {
      SF_ASSIGN(const auto bias, source.load_bias(index, expert));
      std::vector<QuantTensor> parts;
      PackedWeight weight;
      if (source.packed()) {  // its parts are checked through slices of what was unpacked
        SF_ASSIGN(weight, source.packed()->load(index, expert));
        for (std::int64_t p = 0; p < weight.view.n_parts; ++p) {
          SF_ASSIGN(QuantTensor part, unpack(weight.view, p));
          parts.push_back(std::move(part));
        }
      } else {
        SF_ASSIGN(QuantTensor tensor, source.checkpoint()->load(index, expert));
        parts.push_back(std::move(tensor));
      }
      std::int64_t n0 = 0;
      for (const QuantTensor& part : parts) {
        PackedWeight repacked;
        // Other layouts have no kernel that runs everywhere: what they hold is multiplied in mma64/1.
        const bool whole = source.packed() && parts.size() == 1 && weight.view.layout == Layout::mma64_1;
        if (!whole) {
          SF_ASSIGN(repacked, pack(part, threads));
        }
        std::vector<float> part_bias;
        if (bias) part_bias.assign(bias->begin() + n0, bias->begin() + n0 + part.n);
        n0 += part.n;
        SF_ASSIGN(Json result, check_matrix(whole ? weight : repacked, part, bias ? &part_bias : nullptr,
                                            index * 4096 + static_cast<std::uint64_t>(expert)));
        row["round_trip"] = row["round_trip"].get<bool>() && result["round_trip"].get<bool>();
        row["ok"] = row["ok"].get<bool>() && result["ok"].get<bool>();
        for (const char* key : {"relative_error", "error_over_bound"})
          row[key] = std::max(row[key].get<double>(), result[key].get<double>());
        if (result.contains("difference")) row["difference"] = result["difference"];
        if (!row.contains("checks") || !result["ok"].get<bool>()) row["checks"] = result["checks"];
      }
    }
    row["kernel"] = row["checks"][0]["kernel"];
    row["gb_per_second"] = row["checks"][0]["gb_per_second"];
    return row;
  }

  Status run() {
    SF_ASSIGN(where, parse_device(device));
    if (where.kind == Device::Kind::cuda) SF_TRY(usable_gpu(where).status());
    SF_ASSIGN(const Source source, Source::open(input.path, input.open));
    SF_ASSIGN(const auto layers, select_layers(source, input.layers));
    context = std::make_unique<Context>(threads);
    pool = std::make_unique<ThreadPool>(threads);
    if (seed == 0) seed = std::random_device{}() | 1u;
    Json rows = Json::array();
    std::size_t failed = 0;
    std::int64_t overflowed = 0;
    double relative = 0, over = 0;
    {
      Progress progress("verifying");
      for (std::size_t i = 0; i < layers.size(); ++i) {
        Result<Json> row = check_layer(source, layers[i]);
        if (!row.ok()) return row.status();
        if (!(*row)["ok"].get<bool>()) ++failed;
        relative = std::max(relative, (*row)["relative_error"].get<double>());
        over = std::max(over, (*row)["error_over_bound"].get<double>());
        for (const Json& check : (*row)["checks"]) overflowed += check["overflowed"].get<std::int64_t>();
        rows.push_back(std::move(*row));
        progress.update(i + 1, layers.size());
      }
    }
    const Json document{{"path", input.path},
                        {"scheme", source.scheme()},
                        {"layers", rows},
                        {"summary",
                         {{"layers", layers.size()},
                          {"failed", failed},
                          {"overflowed", overflowed},
                          {"worst_relative_error", relative},
                          {"worst_error_over_bound", over},
                          {"m", ms},
                          {"activation", activation_name(activation)},
                          {"seed", seed}}}};
    print(format, document, "layers",
          {{"name", "layer", true},
           {"scheme", "scheme", true},
           {"type", "type", true},
           {"shape", "shape"},
           {"round_trip", "round trip", true},
           {"kernel", "kernel", true},
           {"gb_per_second", "GB/s"},
           {"relative_error", "rel. error"},
           {"error_over_bound", "of bound"},
           {"ok", "ok", true},
           {"difference", "difference", true}});
    if (format == Format::table)
      fmt::print(
          "\n{} layers verified, {} failed; worst relative error {:.2e}, at most {:.2f} of the bound (M = {}, {}, seed {})\n",
          layers.size(), failed, relative, over, fmt::join(ms, ", "), activation_name(activation), seed);
    if (format == Format::table && overflowed > 0)
      fmt::print("{} products are beyond the range of {} and are rightly infinite\n", overflowed, activation_name(activation));
    exit = failed ? kCheckFailed : kDone;
    return {};
  }
};

}  // namespace

void add_verify(CLI::App& app, int& exit) {
  CLI::App* command =
      app.add_subcommand("verify", "Pack, unpack and multiply each layer, and compare with fp64 on the checkpoint's own bytes");
  auto s = std::make_shared<Verify>(exit);
  add_input(*command, s->input, true);
  add_format(*command, s->format);
  add_rows(*command, s->ms, 1, 1 << 20);
  add_activation(*command, s->activation);
  command->add_option("--device", s->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--kernel", s->kernel, "Force a kernel of the table (see `explain --list`)");
  add_threads(*command, s->threads);
  command->add_option("--seed", s->seed, "Seed of the random activations; 0: a fresh one")->capture_default_str();
  command->footer("Example: swordfish verify Mixtral-NVFP4 --m 1,16,64 --layers 'experts\\.0\\.' --format json");
  command->callback([s] {
    if (const Status status = s->run(); !status.ok()) s->exit = fail(status);
  });
}

}  // namespace swordfish::cli
