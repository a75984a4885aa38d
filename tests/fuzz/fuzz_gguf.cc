// The input is a GGUF file, named as the first of two; the second is a good split with one tensor.
#include "checkpoint/container.h"
#include "fuzz.h"

using namespace swordfish;

namespace {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string string(std::string_view s) { return raw(std::uint64_t{s.size()}) + std::string(s); }

std::string second_part() {
  std::string out = "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{1}) + raw(std::uint64_t{2});
  out += string("split.no") + raw(std::uint32_t{2}) + raw(std::uint16_t{1}) + string("split.count") + raw(std::uint32_t{2}) +
         raw(std::uint16_t{2});
  out += string("second.weight") + raw(std::uint32_t{1}) + raw(std::uint64_t{1}) + raw(std::uint32_t{24}) + raw(std::uint64_t{0});
  out.resize((out.size() + 31) / 32 * 32 + 1);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder;
  static const bool written = [] {
    folder.write("m-00002-of-00002.gguf", second_part());
    return true;
  }();
  fuzz::check(written, "the second part is there");
  folder.write("m-00001-of-00002.gguf", fuzz::text(data, size));
  const fuzz::AllocationGuard guard(size);
  const Result<Container> container = open_gguf(folder.path("m-00001-of-00002.gguf"));
  if (!container.ok()) {
    fuzz::check(container.status().message().find(".gguf") != std::string::npos, "the message names the file");
    return 0;
  }
  for (const Tensor& t : container.value().tensors) {
    fuzz::check(container.value().find(t.name) == &t, "the index finds the tensor");
    fuzz::check(container.value().read(t).ok(), "the tensor can be read");
  }
  return 0;
}
