// Timing by CUDA graphs and events; clocks and power by NVML.
#include <algorithm>
#include <chrono>

#include "base/library.h"
#include "base/try.h"
#include "device/cuda/runtime.h"
#include "device/measure.h"

namespace swordfish {
namespace {

struct Graph {
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  std::vector<double> times;
  Graph() = default;
  Graph(Graph&& other) noexcept
      : exec(std::exchange(other.exec, nullptr)),
        start(std::exchange(other.start, nullptr)),
        stop(std::exchange(other.stop, nullptr)),
        times(std::move(other.times)) {}
  Graph& operator=(Graph&&) = delete;
  ~Graph() {
    if (exec) cudaGraphExecDestroy(exec);
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
  }
};

Result<Graph> capture(const Launch& launch, std::size_t calls, cudaStream_t stream) {
  Graph graph;
  SF_CUDA("creating an event", cudaEventCreate(&graph.start));
  SF_CUDA("creating an event", cudaEventCreate(&graph.stop));
  SF_TRY(launch(0, stream));  // the first launch of a kernel loads it
  SF_CUDA("the first call", cudaStreamSynchronize(stream));
  SF_CUDA("capturing", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Status launched;
  for (std::size_t i = 0; i < calls && launched.ok(); ++i) launched = launch(i, stream);
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  if (!launched.ok() || ended != cudaSuccess) {
    if (captured) cudaGraphDestroy(captured);
    return launched.ok() ? cuda_failed("capturing", ended) : launched;
  }
  const cudaError_t made = cudaGraphInstantiate(&graph.exec, captured, 0);
  cudaGraphDestroy(captured);
  if (made != cudaSuccess) return cuda_failed("instantiating the graph", made);
  return graph;
}

}  // namespace

Result<std::vector<Timed>> time_graphs(Device device, std::size_t calls, std::span<const Launch> launches, double seconds,
                                       const std::function<void()>& busy) {
  SF_TRY(usable_gpu(device).status());
  const CurrentDevice current(device);
  SF_TRY(current.status());
  SF_ASSIGN(const Stream own, Stream::create(device));
  const auto stream = static_cast<cudaStream_t>(own.get());
  std::vector<Graph> graphs;
  for (const Launch& launch : launches) {
    SF_ASSIGN(Graph graph, capture(launch, calls, stream));
    graphs.push_back(std::move(graph));
  }
  constexpr std::size_t kLeast = 20, kWarmUp = 3;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  for (std::size_t round = 0; round < kWarmUp + kLeast || elapsed() < seconds; ++round) {
    // While one runs, the host gets ahead: then no event waits for a launch that has not been made yet.
    SF_CUDA("timing", cudaGraphLaunch(graphs[round % graphs.size()].exec, stream));
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      Graph& graph = graphs[(i + round) % graphs.size()];  // each comes first in its turn
      SF_CUDA("timing", cudaEventRecord(graph.start, stream));
      SF_CUDA("timing", cudaGraphLaunch(graph.exec, stream));
      SF_CUDA("timing", cudaEventRecord(graph.stop, stream));
    }
    if (round == kWarmUp + kLeast / 2 && busy) busy();
    SF_CUDA("timing", cudaStreamSynchronize(stream));
    if (round < kWarmUp) continue;
    for (Graph& graph : graphs) {
      float ms = 0;
      SF_CUDA("timing", cudaEventElapsedTime(&ms, graph.start, graph.stop));
      graph.times.push_back(static_cast<double>(ms) * 1e-3 / static_cast<double>(calls));
    }
  }
  std::vector<Timed> out;
  for (Graph& graph : graphs) {
    std::sort(graph.times.begin(), graph.times.end());
    out.push_back(
        {calls, graph.times.size(), quantile(graph.times, 0.5), quantile(graph.times, 0.05), quantile(graph.times, 0.95)});
  }
  return out;
}

Sensors read_sensors(Device device) {
  // Declarations of nvml.h, which is not part of every toolkit.
  using Handle = struct NvmlDevice*;
  constexpr unsigned kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;
  Sensors s;
  const Result<Library> opened = Library::open({"libnvidia-ml.so.1"});
  if (!opened.ok()) return s;
  const Library& nvml = *opened;
  const auto init = nvml.function<int()>("nvmlInit_v2");
  const auto shutdown = nvml.function<int()>("nvmlShutdown");
  const auto by_bus = nvml.function<int(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto clock = nvml.function<int(Handle, unsigned, unsigned*)>("nvmlDeviceGetClockInfo");
  const auto max_clock = nvml.function<int(Handle, unsigned, unsigned*)>("nvmlDeviceGetMaxClockInfo");
  const auto power = nvml.function<int(Handle, unsigned*)>("nvmlDeviceGetPowerUsage");
  const auto limit = nvml.function<int(Handle, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit");
  const auto temperature = nvml.function<int(Handle, unsigned, unsigned*)>("nvmlDeviceGetTemperature");
  const auto driver = nvml.function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (!init || !shutdown || !by_bus || init() != 0) return s;
  char bus[32] = {}, text[96] = {};
  Handle handle = nullptr;
  if (driver && driver(text, sizeof text) == 0) s.driver = text;
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, device.index) == cudaSuccess && by_bus(bus, &handle) == 0) {
    unsigned v = 0;
    if (clock && clock(handle, kClockSm, &v) == 0) s.sm_mhz = static_cast<int>(v);
    if (clock && clock(handle, kClockMemory, &v) == 0) s.memory_mhz = static_cast<int>(v);
    if (max_clock && max_clock(handle, kClockSm, &v) == 0) s.max_sm_mhz = static_cast<int>(v);
    if (power && power(handle, &v) == 0) s.watts = v * 1e-3;
    if (limit && limit(handle, &v) == 0) s.limit_watts = v * 1e-3;
    if (temperature && temperature(handle, kTemperatureGpu, &v) == 0) s.celsius = static_cast<int>(v);
  }
  shutdown();
  return s;
}

}  // namespace swordfish
