// container_tool: what the container readers say, as JSON, for the differential tests.
//
//   container_tool list PATH...     one line a path: {"tensors": [{name, type, shape, file, offset, bytes}...]} or {"error":
//   message} container_tool read PATH NAME   the raw bytes of one tensor on stdout
//
// PATH: a folder of safetensors, a .safetensors file or a .gguf file.
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/container.h"

namespace {

using swordfish::Container;
using swordfish::Result;

Result<Container> open(const std::string& path) {
  if (swordfish::io::is_directory(path)) return swordfish::open_safetensors_folder(path, "", "");
  return path.ends_with(".gguf") ? swordfish::open_gguf(path) : swordfish::open_safetensors_file(path);
}

nlohmann::json list(const std::string& path) {
  const Result<Container> container = open(path);
  if (!container.ok()) return {{"error", container.status().message()}};
  nlohmann::json tensors = nlohmann::json::array();
  for (const swordfish::Tensor& t : container.value().tensors)
    tensors.push_back({{"name", t.name},
                       {"type", type_name(t)},
                       {"shape", t.shape},
                       {"file", container.value().path_of(t)},
                       {"offset", t.offset},
                       {"bytes", t.bytes}});
  return {{"tensors", std::move(tensors)}, {"metadata", container.value().metadata}, {"warnings", container.value().warnings}};
}

int read(const std::string& path, const std::string& name) {
  const Result<Container> container = open(path);
  const swordfish::Tensor* t = container.ok() ? container.value().find(name) : nullptr;
  if (t == nullptr) return 1;
  const auto bytes = container.value().read(*t);
  return bytes.ok() && std::fwrite(bytes.value().data(), 1, bytes.value().size(), stdout) == t->bytes ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "read") == 0) return read(argv[2], argv[3]);
  if (argc < 2 || std::strcmp(argv[1], "list") != 0) return 2;
  for (int i = 2; i < argc; ++i) std::puts(list(argv[i]).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  return 0;
}
