// y[M,N] = x[M,K] · Wᵀ + bias on a packed weight: plan (which kernel, how), explain (why not the others), run.
//
// A plan is a plain printable struct chosen per call from the device, the packed weight and the true M. run() allocates nothing
// and synchronises nothing; it takes the plan, pointers, workspace and stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/dtype.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};
std::string to_string(Device device);                // "cpu", "cuda:0"
Result<Device> parse_device(std::string_view text);  // "cpu", "cuda", "cuda:N"

// What run() needs besides the problem: on the CPU, a thread pool. Several threads may use one Context; their calls take the pool
// in turn. threads 0: as many as the cores that this process may use.
class Context {
 public:
  explicit Context(int threads = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  int threads() const;
  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct GpuInfo;  // device.h

// One product, without its pointers.
struct Problem {
  const PackedView* weight = nullptr;  // plan() reads its shape, types and parts, not its planes
  std::int64_t m = 0;
  DType x_type = DType::bf16;  // bf16 or f16
  DType y_type = DType::bf16;  // bf16, f16 or f32
  bool has_bias = false;       // fp32 [n]
  Device device;
  int threads = 1;                     // of the Context that will run it
  const GpuInfo* described = nullptr;  // plan as if `device`, a CUDA device, were this GPU; such a plan cannot be run
};

struct Plan {
  int kernel = -1;  // row of the kernel table
  std::string_view kernel_name;
  std::int64_t m = 0;
  int tile_m = 0, tile_n = 0;  // rows of x and of W that one task takes
  int tasks = 0;               // pieces of work for the pool (CPU), or CTAs (GPU)
  int split_k = 1;
  std::size_t workspace = 0;    // bytes
  bool rounds_weights = false;  // each weight is rounded to the type of x before it is multiplied
  std::string_view reason;      // why this kernel; static, so that a Plan is trivially copyable
};
std::string to_string(const Plan& plan);

struct PlanOptions {
  std::string_view kernel;  // force a kernel of the table by name; empty: the first that can run
  int row = -1;             // force a row of the table (Plan::kernel of an earlier plan); such planning allocates nothing
};
Result<Plan> plan(const Problem& problem, const PlanOptions& options = {});

// One row per kernel of the table, in its order.
struct Explanation {
  std::string_view kernel;
  bool chosen = false;
  std::string reason;  // why it was chosen, why it cannot run, or that an earlier row was preferred
};
std::vector<Explanation> explain(const Problem& problem, const PlanOptions& options = {});

// A row of the kernel table, as `explain`, tests, benches and the README's support table see it. All text is static.
struct KernelInfo {
  std::string_view name;
  std::string_view device;       // "cpu", "cuda sm_80+", ...
  std::string_view regime;       // "any M", "M ≤ 16", ...
  std::string_view weights;      // "int4 int8 fp4"
  std::string_view zeros;        // "constant integers offsets"
  std::string_view groups;       // "multiple of 16, channelwise, act-order"
  std::string_view activations;  // "bf16 f16"
  std::string_view layout;
  std::string_view status;  // whether it has been run, emulated or only compiled, and where
};
std::vector<KernelInfo> kernels();

struct RunArgs {
  const void* x = nullptr;      // [m, k] x_type, row stride ldx elements
  std::int64_t ldx = 0;         // ≥ k
  void* y = nullptr;            // [m, n] y_type, row stride ldy elements
  std::int64_t ldy = 0;         // ≥ n
  const float* bias = nullptr;  // [n] or null
  void* workspace = nullptr;    // plan.workspace bytes, 64-byte aligned (on a GPU: 256); prepared once by workspace_init
  std::size_t workspace_size = 0;
  void* stream = nullptr;  // cudaStream_t on a GPU
  // Programmatic dependent launch (sm_90 and up): the kernel may start before the previous kernel in the stream has ended, and
  // fetches weights meanwhile; it touches x, bias, y and the workspace only after that. Turn it off where the previous kernel
  // writes the weight.
  bool dependent = true;
};
// Prepares a workspace once (zeroes its counters). Every run leaves it ready for the next one, for any plan on the same device that
// it is large enough for. Each call in flight needs a workspace of its own.
Status workspace_init(const Plan& plan, Device device, void* workspace, std::size_t size, void* stream = nullptr);
// Runs a plan made for this problem. M = 0 is a no-op. On the CPU it returns when y is written; on a GPU when the work is in the
// stream, and x, bias, y, the weight and the workspace must stay until the stream has passed it.
Status run(Context& context, const Problem& problem, const Plan& plan, const RunArgs& args);

}  // namespace swordfish
