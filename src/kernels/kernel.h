// Kernel: one row of the kernel table. Selection, explain, run, tests, benches and the table of support all iterate the table.
#pragma once

#include <span>
#include <string>

#include "swordfish/gemm.h"

namespace swordfish {

class ThreadPool;

struct Kernel {
  KernelInfo info;
  Device::Kind device;
  // Empty when the kernel can do this problem on this machine, else one sentence why not. Reads no pointer of the weight but
  // `parts`.
  std::string (*can_run)(const Problem&);
  // Fills everything but `kernel` and `kernel_name`. A pure function of the problem (threads included), so that launch can lay out
  // its workspace again. Called only where can_run returned an empty string.
  Plan (*plan)(const Problem&);
  // Called by run() with m ≥ 1 once it has checked the arguments: pointers are set and aligned to their elements, strides and the
  // workspace's size hold. Allocates nothing.
  Status (*launch)(Context&, const Problem&, const Plan&, const RunArgs&);
  // Prepares a workspace once; null where a kernel needs nothing prepared.
  Status (*init)(const Plan&, Device, void* workspace, void* stream);
};

// The table, best first; the last row can run everything on the CPU.
std::span<const Kernel> kernel_table();

// The pool behind a Context.
ThreadPool& pool(Context& context);

}  // namespace swordfish
