// Chooses a kernel and says why, and checks what a caller hands to it.
#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "base/error.h"
#include "base/try.h"
#include "device/device.h"
#include "kernels/kernel.h"
#include "pack/packed_format.h"

namespace swordfish {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;  // of x or y: byte offsets stay within 63 bits

std::int64_t element_bytes(DType type) { return bits(type) / 8; }

bool is_output(DType t) { return t == DType::bf16 || t == DType::f16 || t == DType::f32; }

// The fields of a weight that every kernel relies on. No pointer is followed.
Status check_shape(const PackedView& w) {
  if (w.n <= 0 || w.k <= 0 || w.n_blocks <= 0 || w.k_blocks <= 0 || w.rows <= 0)
    return invalid_argument("the packed weight has n = {}, k = {}, {} x {} blocks, {} scale rows: all must be positive", w.n, w.k,
                            w.n_blocks, w.k_blocks, w.rows);
  if (w.n > kMaxElements || w.k_blocks > kMaxElements / 2048 || w.n_blocks > kMaxElements / 2048 / w.k_blocks)
    return invalid_argument("the packed weight is too large: {} x {} blocks", w.n_blocks, w.k_blocks);
  // Act-order pads inside K, so packed K may exceed k by more than a block; it can never be less.
  if (w.packed_k() < w.k) return invalid_argument("the packed weight has k = {} but only {} packed columns", w.k, w.packed_k());
  if (!w.row_of_slice && w.group_size <= 0)
    return invalid_argument("the packed weight has group_size {}: it must be positive", w.group_size);
  if (w.offsets && w.zero != 0)
    return invalid_argument("the packed weight has offsets and a constant zero point {}: it must be 0", w.zero);
  if (w.zeros && w.offsets)
    return invalid_argument("the packed weight has both zero points and offsets: it may have one of the two");
  return {};
}

Status check_parts(const PackedView& w) {
  if (!w.parts || w.n_parts <= 0) return invalid_argument("the packed weight has no part table");
  std::int64_t n = 0, block = 0;
  for (std::int64_t i = 0; i < w.n_parts; ++i) {
    const PackedPart& part = w.parts[i];
    if (part.n0 != n || part.n <= 0 || part.n > w.n - n || part.block0 != block)
      return invalid_argument(
          "part {} ({}) of the packed weight has n0 = {}, n = {}, block0 = {}; expected n0 = {}, block0 = {}, n "
          "in 1..{}",
          i, part.name, part.n0, part.n, part.block0, n, block, w.n - n);
    n += part.n;
    block += ceil_div(part.n, block_rows(w.layout));
  }
  if (n != w.n || block != w.n_blocks)
    return invalid_argument("the parts of the packed weight have {} rows in {} blocks; it has {} in {}", n, block, w.n, w.n_blocks);
  return {};
}

Status check_problem(const Problem& p) {
  if (!p.weight) return invalid_argument("the problem has no weight");
  if (p.m < 0) return invalid_argument("m is {}: it must not be negative", p.m);
  SF_TRY(check_shape(*p.weight));
  if (p.m > kMaxElements / p.weight->k || p.m > kMaxElements / p.weight->n)
    return invalid_argument("m = {} is too large for k = {} and n = {}", p.m, p.weight->k, p.weight->n);
  if (p.x_type != DType::bf16 && p.x_type != DType::f16) return invalid_argument("x must be BF16 or F16, not {}", name(p.x_type));
  if (!is_output(p.y_type)) return invalid_argument("y must be BF16, F16 or F32, not {}", name(p.y_type));
  if (p.device.kind == Device::Kind::cpu && p.device.index != 0)
    return invalid_argument("the CPU is one device: its index is 0, not {}", p.device.index);
  if (p.described && p.device.kind != Device::Kind::cuda)
    return invalid_argument("the problem describes a GPU, and its device is {}", to_string(p.device));
  if (p.device.index < 0) return invalid_argument("device index {} must not be negative", p.device.index);
  return {};
}

// Ok when kernels can run on the problem's device at all.
Status check_device(const Problem& p) {
  return p.device.kind == Device::Kind::cpu || p.described ? Status() : usable_gpu(p.device).status();
}

// What a workspace must be aligned to.
std::uintptr_t workspace_alignment(Device::Kind kind) { return kind == Device::Kind::cpu ? 64 : 256; }

// [m, columns] elements with row stride `ld` at `p`.
Status check_matrix(const char* what, const char* ld_name, const void* p, std::int64_t m, std::int64_t columns, std::int64_t ld,
                    DType type) {
  if (!p) return invalid_argument("{} is a null pointer", what);
  if (ld < columns) return invalid_argument("{} = {} is less than the {} columns of {}", ld_name, ld, columns, what);
  if (m - 1 > (kMaxElements - columns) / ld)
    return invalid_argument("{} x {} rows of {} overflow: {} is too large", m, ld, what, ld_name);
  if (reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(element_bytes(type)) != 0)
    return invalid_argument("{} is not aligned to its {}-byte elements", what, element_bytes(type));
  return {};
}

Status check_pointers(const PackedView& w, Device device) {
  if (w.cuda_device != (device.kind == Device::Kind::cpu ? -1 : device.index))
    return invalid_argument("the packed weight is in {}; the problem is on {}: {}",
                            w.cuda_device < 0 ? "host memory" : fmt::format("memory of cuda:{}", w.cuda_device), to_string(device),
                            device.kind == Device::Kind::cpu ? "run the host's weight" : "upload it there first");
  if (!w.codes) return invalid_argument("the packed weight's codes are a null pointer");
  if (!w.scales) return invalid_argument("the packed weight's scales are a null pointer");
  for (const void* p : {w.codes, w.scales, w.zeros, w.offsets})
    if (reinterpret_cast<std::uintptr_t>(p) % 64 != 0)
      return invalid_argument("a plane of the packed weight is not 64-byte aligned");
  return {};
}

Status check_workspace(const Plan& plan, const void* workspace, std::size_t size, Device::Kind kind) {
  if (plan.workspace == 0) return {};
  if (!workspace) return invalid_argument("the workspace is a null pointer; the plan needs {} bytes", plan.workspace);
  if (size < plan.workspace) return invalid_argument("the workspace has {} bytes; the plan needs {}", size, plan.workspace);
  if (reinterpret_cast<std::uintptr_t>(workspace) % workspace_alignment(kind) != 0)
    return invalid_argument("the workspace is not {}-byte aligned", workspace_alignment(kind));
  return {};
}

Result<const Kernel*> kernel_of(const Plan& plan) {
  const auto table = kernel_table();
  if (plan.kernel < 0 || static_cast<std::size_t>(plan.kernel) >= table.size())
    return invalid_argument("the plan names kernel {}, and the table has {}: use a plan that plan() returned", plan.kernel,
                            table.size());
  return &table[static_cast<std::size_t>(plan.kernel)];
}

std::string names() {
  std::string all;
  for (const Kernel& kernel : kernel_table()) all += fmt::format("{}{}", all.empty() ? "" : ", ", kernel.info.name);
  return all;
}

}  // namespace

std::string to_string(Device device) { return device.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", device.index); }

Result<Device> parse_device(std::string_view text) {
  if (text == "cpu") return Device{};
  if (text == "cuda") return Device{Device::Kind::cuda, 0};
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    const char* const end = text.data() + text.size();
    int index = -1;
    const auto [stop, error] = std::from_chars(text.data() + prefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) return Device{Device::Kind::cuda, index};
  }
  return invalid_argument("'{}' is no device: use cpu, cuda or cuda:N", text);
}

std::string to_string(const Plan& plan) {
  return fmt::format("{}: M = {}, tiles of {} x {}, {} tasks, split-K {}, workspace {} bytes: {}", plan.kernel_name, plan.m,
                     plan.tile_m, plan.tile_n, plan.tasks, plan.split_k, plan.workspace, plan.reason);
}

Result<Plan> plan(const Problem& problem, const PlanOptions& options) {
  SF_TRY(check_problem(problem));
  const auto table = kernel_table();
  if (options.row >= static_cast<int>(table.size()))
    return invalid_argument("there is no row {} in the kernel table; it has {}", options.row, table.size());
  std::string reasons;
  bool known = options.kernel.empty();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Kernel& kernel = table[i];
    if (options.row >= 0 && static_cast<int>(i) != options.row) continue;
    if (!options.kernel.empty() && kernel.info.name != options.kernel) continue;
    known = true;
    if (const std::string why = kernel.can_run(problem); !why.empty()) {
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : "; ", kernel.info.name, why);
      continue;
    }
    Plan plan = kernel.plan(problem);
    plan.kernel = static_cast<int>(i);
    plan.kernel_name = kernel.info.name;
    return plan;
  }
  if (!known) return invalid_argument("there is no kernel '{}'; there are {}", options.kernel, names());
  SF_TRY(check_device(problem));
  return unavailable("no kernel can run this problem: {}", reasons);
}

std::vector<Explanation> explain(const Problem& problem, const PlanOptions& options) {
  std::vector<Explanation> rows;
  const bool forced = !options.kernel.empty() || options.row >= 0;
  const auto chosen = plan(problem, options);
  const Status bad = check_problem(problem);
  const auto table = kernel_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Kernel& kernel = table[i];
    Explanation row{kernel.info.name, false, {}};
    if (!bad.ok()) {
      row.reason = bad.message();
    } else if (chosen.ok() && chosen->kernel == static_cast<int>(i)) {
      row.chosen = true;
      row.reason = fmt::format("{}{}", forced ? "forced; " : "", chosen->reason);
    } else if (row.reason = kernel.can_run(problem); row.reason.empty()) {
      row.reason = chosen.ok() ? fmt::format("can run, but {} was {}", chosen->kernel_name, forced ? "forced" : "preferred")
                               : "can run, but another kernel was asked for";
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Status workspace_init(const Plan& plan, Device device, void* workspace, std::size_t size, void* stream) {
  SF_ASSIGN(const Kernel* kernel, kernel_of(plan));
  if (kernel->device != device.kind)
    return unavailable("the plan is for kernel {}: its workspace cannot be prepared on {}", kernel->info.name, to_string(device));
  SF_TRY(check_workspace(plan, workspace, size, device.kind));
  return kernel->init ? kernel->init(plan, device, workspace, stream) : Status();
}

Status run(Context& context, const Problem& problem, const Plan& plan, const RunArgs& args) {
  SF_TRY(check_problem(problem));
  SF_TRY(check_device(problem));
  SF_ASSIGN(const Kernel* kernel, kernel_of(plan));
  if (kernel->device != problem.device.kind)
    return unavailable("kernel {} does not run on {}", kernel->info.name, to_string(problem.device));
  if (plan.m != problem.m) return invalid_argument("the plan is for m = {}, the problem has m = {}", plan.m, problem.m);
  if (problem.m == 0) return {};
  if (const std::string why = kernel->can_run(problem); !why.empty())
    return invalid_argument("the plan does not fit the problem: kernel {} {}", kernel->info.name, why);
  const PackedView& w = *problem.weight;
  SF_TRY(check_parts(w));
  SF_TRY(check_pointers(w, problem.device));
  SF_TRY(check_matrix("x", "ldx", args.x, problem.m, w.k, args.ldx, problem.x_type));
  SF_TRY(check_matrix("y", "ldy", args.y, problem.m, w.n, args.ldy, problem.y_type));
  if (problem.has_bias != (args.bias != nullptr))
    return invalid_argument("the problem says that it has {} bias, and the bias pointer is {}", problem.has_bias ? "a" : "no",
                            args.bias ? "set" : "null");
  if (reinterpret_cast<std::uintptr_t>(args.bias) % alignof(float) != 0)
    return invalid_argument("the bias is not aligned to its 4-byte elements");
  SF_TRY(check_workspace(plan, args.workspace, args.workspace_size, problem.device.kind));
  if (problem.device.kind == Device::Kind::cpu)
    SF_TRY(check_on_host({{"x", args.x}, {"y", args.y}, {"the bias", args.bias}, {"the workspace", args.workspace}}));
  if (const std::size_t needed = kernel->plan(problem).workspace; needed > plan.workspace)
    return invalid_argument("the plan has a workspace of {} bytes, and this problem needs {}: plan again", plan.workspace, needed);
  return kernel->launch(context, problem, plan, args);
}

}  // namespace swordfish
