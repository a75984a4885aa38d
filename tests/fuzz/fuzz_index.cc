// The input is a model.safetensors.index.json beside two good shards.
#include "checkpoint/container.h"
#include "fuzz.h"

using namespace swordfish;

namespace {

// A file of one U8 tensor of no bytes for each name.
std::string shard(std::initializer_list<std::string_view> names) {
  std::string header = "{";
  for (const std::string_view name : names) {
    if (header.size() > 1) header += ',';
    header.append("\"").append(name).append(R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  }
  header += '}';
  std::string out(8, '\0');
  out[0] = static_cast<char>(header.size());  // below 128 bytes
  return out + header;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder;
  static const bool written = [] {
    folder.write("a.safetensors", shard({"x", "y"}));
    folder.write("b.safetensors", shard({"z"}));
    return true;
  }();
  fuzz::check(written, "the shards are there");
  folder.write("model.safetensors.index.json", fuzz::text(data, size));
  const fuzz::AllocationGuard guard(size);
  const Result<Container> container = open_safetensors_folder(folder.root(), "", "");
  if (!container.ok()) {
    const std::string message = container.status().message();
    fuzz::check(message.find(folder.root()) != std::string::npos, "the message names the index or a shard");
    return 0;
  }
  for (const auto& file : container.value().files)
    fuzz::check(file->path() == folder.path("a.safetensors") || file->path() == folder.path("b.safetensors"),
                "only shards of the folder are opened");
  fuzz::check(container.value().tensors.size() == container.value().index.size(), "index and tensors agree");
  return 0;
}
