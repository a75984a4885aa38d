// A whole checkpoint: opened, every layer loaded, by the format readers.
//
// The input: u16 length of config.json (little-endian) | config.json | model.safetensors, or model.gguf if it begins with "GGUF".
// The mutator keeps the parts apart and the lengths right, so that most inputs pass the container and reach a format reader.
#include <algorithm>
#include <cstring>

#include "fuzz.h"
#include "swordfish/checkpoint.h"

using namespace swordfish;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

struct Parts {
  std::string config;
  std::string weights;
};

Parts split(std::string_view input) {
  if (input.size() < 2) return {};
  const std::size_t claimed = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
  const std::size_t length = std::min(claimed, input.size() - 2);
  return {std::string(input.substr(2, length)), std::string(input.substr(2 + length))};
}

std::string join(const Parts& parts) {
  const std::size_t length = std::min<std::size_t>(parts.config.size(), 0xffff);
  return std::string{static_cast<char>(length), static_cast<char>(length >> 8)} + parts.config.substr(0, length) + parts.weights;
}

void mutate(std::string& text, std::size_t growth) {
  const std::size_t size = text.size();
  text.resize(size + growth);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
}

// Length of the safetensors header, or 0 if the bytes hold none.
std::size_t header_length(const std::string& weights) {
  std::uint64_t length = 0;
  if (weights.size() < 8) return 0;
  std::memcpy(&length, weights.data(), 8);
  return length > weights.size() - 8 ? 0 : static_cast<std::size_t>(length);
}

void mutate_header(std::string& weights) {
  const std::size_t length = header_length(weights);
  std::string header = weights.substr(8, length);
  mutate(header, 64);
  const std::uint64_t now = header.size();
  std::string word(8, '\0');
  std::memcpy(word.data(), &now, 8);
  weights = word + header + weights.substr(8 + length);
}

// The bytes of the tensors; their number stays, so that the header stays true.
void mutate_values(std::string& weights) {
  const std::size_t begin = 8 + header_length(weights);
  std::string values = weights.substr(begin);
  const std::size_t size = values.size();
  mutate(values, 0);
  values.resize(size);
  weights = weights.substr(0, begin) + values;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  Parts parts = split(fuzz::text(data, size));
  const bool gguf = parts.weights.rfind("GGUF", 0) == 0;
  if (seed % 16 == 0 || (!gguf && header_length(parts.weights) == 0)) return LLVMFuzzerMutate(data, size, max_size);
  if (gguf)
    mutate(parts.weights, 64);
  else if (seed % 3 == 0)
    mutate(parts.config, 64);
  else if (seed % 3 == 1)
    mutate_header(parts.weights);
  else
    mutate_values(parts.weights);
  const std::string joined = join(parts);
  const std::size_t kept = std::min(joined.size(), max_size);
  std::memcpy(data, joined.data(), kept);
  return kept;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder;
  const Parts parts = split(fuzz::text(data, size));
  const bool gguf = parts.weights.rfind("GGUF", 0) == 0;
  const char* name = gguf ? "model.gguf" : "model.safetensors";
  folder.write(name, parts.weights);
  folder.write("config.json", parts.config);

  const fuzz::AllocationGuard guard(size);
  Status problem;
  const Checkpoint checkpoint = Checkpoint::open_partial(gguf ? folder.path(name) : folder.root(), {}, problem);
  fuzz::check(problem.ok() || !problem.message().empty(), "a refusal says why");
  fuzz::check(problem.code() != Code::internal, "no defect of Swordfish");
  for (std::size_t layer = 0; layer < checkpoint.layers().size(); ++layer) {
    const std::int64_t experts = std::clamp<std::int64_t>(checkpoint.layers()[layer].experts, 1, 4);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      (void)checkpoint.load(layer, expert).ok();
      (void)checkpoint.load_bias(layer, expert).ok();
    }
    (void)checkpoint.hf_name(layer);
  }
  return 0;
}
