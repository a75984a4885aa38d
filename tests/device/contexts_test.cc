// A process that works on one of several GPUs leaves the others alone. In a process of its own, since a context stays once it is
// made.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/library.h"
#include "swordfish/device.h"

namespace swordfish {
namespace {

// Of the GPU's primary context, by the driver.
bool has_context(int index) {
  const Result<Library> library = Library::open({"libcuda.so.1"});
  const auto get = library.ok() ? library->function<int(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState") : nullptr;
  unsigned flags = 0;
  int active = 1;
  return get == nullptr || get(index, &flags, &active) != 0 || active != 0;
}

[[noreturn]] void use_only(int index) {
  const Device device{Device::Kind::cuda, index};
  const Result<DeviceBuffer> buffer = DeviceBuffer::allocate(device, 4096);
  if (!buffer.ok() || !fill(device, buffer->data(), 0, buffer->size()).ok() || !synchronize(device).ok()) std::_Exit(2);
  for (int other = 0; other < static_cast<int>(gpus().found.size()); ++other)
    if (has_context(other) != (other == index)) std::_Exit(3);
  std::_Exit(0);
}

TEST(SeveralGpus, OnlyTheOneThatIsUsedGetsAContext) {
  if (gpus().found.size() < 2) GTEST_SKIP() << "not run, it needs two GPUs";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int index = 0; index < static_cast<int>(gpus().found.size()); ++index)
    EXPECT_EXIT(use_only(index), ::testing::ExitedWithCode(0), "") << index;
}

}  // namespace
}  // namespace swordfish
