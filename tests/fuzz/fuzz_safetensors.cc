// The input is a safetensors file. An accepted one must cover its data section exactly, and every tensor can be read.
#include <cstring>

#include "checkpoint/container.h"
#include "fuzz.h"

using namespace swordfish;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder;
  folder.write("model.safetensors", fuzz::text(data, size));
  const fuzz::AllocationGuard guard(size);
  const Result<Container> container = open_safetensors_file(folder.path("model.safetensors"));
  if (!container.ok()) {
    fuzz::check(container.status().message().find("model.safetensors") != std::string::npos, "the message names the file");
    return 0;
  }
  std::uint64_t sum = 0;
  for (const Tensor& t : container.value().tensors) {
    fuzz::check(container.value().find(t.name) == &t, "the index finds the tensor");
    fuzz::check(container.value().read(t).ok(), "the tensor can be read");
    sum += t.bytes;
  }
  std::uint64_t header = 0;
  std::memcpy(&header, data, 8);
  fuzz::check(8 + header + sum == size, "the tensors cover the data section");
  return 0;
}
