// Timing on a GPU: copies of the weight take turns in CUDA graphs; both ways of launching, and cuBLAS, in the same run.
#include "plan/bench_gpu.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "device/measure.h"
#include "kernels/kernel.h"
#include "plan/bench_sample.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

// A device buffer and what lies in it.
Result<DeviceBuffer> put(Device device, const void* data, std::size_t size) {
  SF_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device, size));
  SF_TRY(copy(device, buffer.data(), data, size));
  return buffer;
}

// w[n, k], each value rounded once to a 16-bit type.
Result<Buffer> dense(ThreadPool& threads, const PackedView& v, DType type) {
  Buffer out(static_cast<std::size_t>(v.n * v.k) * 2);
  for (std::int64_t p = 0; p < v.n_parts; ++p) {
    SF_ASSIGN(const QuantTensor tensor, unpack(v, p));
    constexpr std::int64_t kRows = 16;
    threads.parallel_for((tensor.n + kRows - 1) / kRows, [&](std::int64_t task, int) {
      const std::int64_t n0 = task * kRows, n = std::min(kRows, tensor.n - n0);
      std::vector<float> w(static_cast<std::size_t>(n * v.k));
      dequantize(tensor, n0, n, w.data(), v.k);
      auto* to = out.as<std::uint16_t>() + (v.parts[p].n0 + n0) * v.k;
      for (std::size_t i = 0; i < w.size(); ++i) to[i] = f32_to_half(type, w[i]);
    });
  }
  return out;
}

}  // namespace

Result<std::vector<BenchPoint>> bench_on_gpu(Context& context, const PackedWeight& weight, const BenchOptions& options,
                                             std::span<const std::pair<Problem, Plan>> calls) {
  const Device device = options.device;
  const PackedView& v = weight.view;
  SF_ASSIGN(const GpuInfo* gpu, usable_gpu(device));
  const std::uint64_t least = std::max<std::uint64_t>(4 * static_cast<std::uint64_t>(gpu->l2), 250'000'000);
  const std::uint64_t cold = options.cold_bytes != 0 ? options.cold_bytes : least;
  const std::size_t bytes = DeviceWeight::bytes(v);
  const auto copies_of = [cold](std::uint64_t size) {
    return static_cast<std::size_t>(std::max<std::uint64_t>((cold + size - 1) / size, 2));
  };

  std::vector<DeviceBuffer> memory;
  std::vector<DeviceWeight> weights;
  for (std::size_t i = 0; i < copies_of(bytes); ++i) {
    SF_ASSIGN(DeviceBuffer one, DeviceBuffer::allocate(device, bytes));
    if (i == 0) {
      SF_ASSIGN(DeviceWeight first, DeviceWeight::upload(weight, device, one.data(), one.size()));
      weights.push_back(std::move(first));
    } else {
      SF_TRY(copy(device, one.data(), memory[0].data(), bytes));
      SF_ASSIGN(DeviceWeight next, DeviceWeight::at(v, device, one.data(), one.size()));
      weights.push_back(std::move(next));
    }
    memory.push_back(std::move(one));
  }

  std::optional<Cublas> cublas;
  std::vector<DeviceBuffer> dense_weights;
  if (options.cublas) {
    if (options.y_type != options.x_type) return invalid_argument("cuBLAS is timed with y of the type of x");
    SF_ASSIGN(cublas, Cublas::open(device));
    SF_ASSIGN(const Buffer w, dense(pool(context), v, options.x_type));
    SF_ASSIGN(DeviceBuffer first, put(device, w.data(), w.size()));
    dense_weights.push_back(std::move(first));
    while (dense_weights.size() < copies_of(w.size())) {
      SF_ASSIGN(DeviceBuffer next, put(device, dense_weights[0].data(), w.size()));
      dense_weights.push_back(std::move(next));
    }
  }

  std::vector<BenchPoint> points;
  for (const auto& [problem, chosen] : calls) {
    const std::vector<std::uint16_t> x = random_x(options.x_type, problem.m * v.k);
    const std::size_t y_bytes = static_cast<std::size_t>(problem.m * v.n) * static_cast<std::size_t>(bits(options.y_type)) / 8;
    SF_ASSIGN(const DeviceBuffer gpu_x, put(device, x.data(), x.size() * 2));
    SF_ASSIGN(const DeviceBuffer gpu_y, DeviceBuffer::allocate(device, y_bytes));
    SF_ASSIGN(const DeviceBuffer peer_y, DeviceBuffer::allocate(device, cublas ? y_bytes : 0));
    SF_ASSIGN(const DeviceBuffer workspace, DeviceBuffer::allocate(device, chosen.workspace));
    SF_TRY(workspace_init(chosen, device, workspace.data(), workspace.size()));
    SF_TRY(synchronize(device));
    RunArgs args;
    args.x = gpu_x.data();
    args.ldx = v.k;
    args.y = gpu_y.data();
    args.ldy = v.n;
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();

    std::vector<bool> ways;
    if (options.dependent) ways.push_back(true);
    if (options.independent || ways.empty()) ways.push_back(false);
    std::vector<Launch> launches;
    launches.reserve(3);
    for (const bool dependent : ways)
      launches.emplace_back([&, dependent](std::size_t call, void* stream) {
        Problem turn = problem;
        turn.weight = &weights[call % weights.size()].view();
        RunArgs a = args;
        a.stream = stream;
        a.dependent = dependent;
        return run(context, turn, chosen, a);
      });
    if (cublas)
      launches.emplace_back([&](std::size_t call, void* stream) {
        return cublas->multiply(options.x_type, gpu_x.data(), dense_weights[call % dense_weights.size()].data(), peer_y.data(),
                                problem.m, v.n, v.k, stream);
      });
    // A graph ends with a whole turn of the copies, so that its replays follow each other cold.
    const std::size_t turns = (32 + weights.size() - 1) / weights.size();
    Sensors sensors;
    SF_ASSIGN(const std::vector<Timed> timed,
              time_graphs(device, turns * weights.size(), launches, options.seconds, [&] { sensors = read_sensors(device); }));

    std::vector<std::byte> y(y_bytes);
    for (std::size_t way = 0; way < ways.size(); ++way) {
      SF_TRY(fill(device, gpu_y.data(), 0xff, y_bytes));
      SF_TRY(synchronize(device));
      SF_TRY(launches[way](0, nullptr));
      SF_TRY(copy(device, y.data(), gpu_y.data(), y_bytes));
      BenchPoint point;
      point.m = problem.m;
      point.n = v.n;
      point.k = v.k;
      point.kernel = chosen.kernel_name;
      point.threads = context.threads();
      point.runs = static_cast<std::int64_t>(timed[way].replays * timed[way].calls);
      point.median = timed[way].median;
      point.p05 = timed[way].p05;
      point.p95 = timed[way].p95;
      point.weight_bytes = weight.bytes();
      point.dependent = ways[way];
      point.cublas = cublas ? timed.back().median : 0;
      point.sm_mhz = sensors.sm_mhz;
      point.watts = sensors.watts;
      SF_TRY(check_sample(weight, problem, chosen, x, y.data(), point));
      points.push_back(point);
    }
  }
  return points;
}

}  // namespace swordfish
