// CurrentDevice: pushes the device's primary context. cudaSetDevice() would do for the way there, but on the way back it makes a
// context on the device that was current before, whether anybody uses that one or not.
#include <mutex>
#include <vector>

#include "base/library.h"
#include "base/try.h"
#include "device/cuda/runtime.h"

namespace swordfish {
namespace {

// Declarations of cuda.h, opened at run time as everything of the driver is.
using DriverContext = struct CUctx_st*;
struct Driver {
  int (*device)(int*, int) = nullptr;
  int (*retain)(DriverContext*, int) = nullptr;
  int (*push)(DriverContext) = nullptr;
  int (*pop)(DriverContext*) = nullptr;
};
const Driver& driver() {
  static const Driver found = [] {
    Driver d;
    const Result<Library> library = Library::open({"libcuda.so.1"});
    if (!library.ok()) return d;
    d.device = library->function<int(int*, int)>("cuDeviceGet");
    d.retain = library->function<int(DriverContext*, int)>("cuDevicePrimaryCtxRetain");
    d.push = library->function<int(DriverContext)>("cuCtxPushCurrent_v2");
    d.pop = library->function<int(DriverContext*)>("cuCtxPopCurrent_v2");
    return d;
  }();
  return found;
}

// The context that the CUDA runtime has on a device too; null where there is none to be had. Never given back.
DriverContext primary_context(int index) {
  struct Slot {
    std::once_flag once;
    DriverContext context = nullptr;
  };
  static std::vector<Slot> slots(gpus().found.size());
  if (index < 0 || static_cast<std::size_t>(index) >= slots.size()) return nullptr;
  Slot& slot = slots[static_cast<std::size_t>(index)];
  std::call_once(slot.once, [&] {
    const Driver& d = driver();
    int device = 0;
    if (!d.device || !d.retain || !d.push || !d.pop || d.device(&device, index) != 0) return;
    if (d.retain(&slot.context, device) != 0) slot.context = nullptr;
  });
  return slot.context;
}

}  // namespace

CurrentDevice::CurrentDevice(Device device) {
  int before = 0;
  error_ = cudaGetDevice(&before);
  if (error_ != cudaSuccess || before == device.index) return;
  const DriverContext context = primary_context(device.index);
  pushed_ = context != nullptr && driver().push(context) == 0;
  if (!pushed_) error_ = cudaErrorInvalidDevice;
}

CurrentDevice::~CurrentDevice() {
  DriverContext popped = nullptr;
  if (pushed_) driver().pop(&popped);
}

Status CurrentDevice::status() const {
  const auto error = static_cast<cudaError_t>(error_);
  return error == cudaSuccess ? Status() : cuda_failed("making the device current", error);
}

}  // namespace swordfish
