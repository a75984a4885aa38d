// Memory while packing: a layer at a time, whatever the size of the file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "pack/pack_checkpoint.h"
#include "quant/nibble_rows.h"
#include "sanitizer.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

// It reserves terabytes of addresses and keeps freed memory: address space and peaks say nothing.
constexpr bool kSanitized = SWORDFISH_ASAN;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The largest resident size so far of this process, in bytes.
std::uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

// Runs `child` in a process of its own; what it returns is sent back as text. An empty text means success.
template <class F>
std::string report_of_child(F child) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    const std::string text = child();
    const auto wrote = write(ends[1], text.data(), text.size());
    _exit(wrote == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = -1;
  waitpid(pid, &status, 0);
  return status == 0 ? text : "the process ended with status " + std::to_string(status) + ": " + text;
}

// A compressed-tensors file of 128 layers of 16384 x 8192: 8.5 GiB of which nearly all is a hole.
void write_sparse_checkpoint(const std::string& folder) {
  constexpr std::int64_t n = 16384, k = 8192, layers = 128;
  std::string header = "{";
  std::uint64_t end = 0;
  std::vector<std::uint64_t> shapes;
  const auto add = [&](const std::string& name, const std::string& type, const std::string& shape, std::uint64_t bytes) {
    header += (end == 0 ? "\"" : ",\"") + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
              std::to_string(end) + "," + std::to_string(end + bytes) + "]}";
    end += bytes;
  };
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".mlp.down_proj.";
    shapes.push_back(end);
    add(name + "weight_shape", "I64", "[2]", 16);
    add(name + "weight_packed", "I32", "[16384,1024]", n * k / 2);
    add(name + "weight_scale", "F16", "[16384,64]", n * k / 64);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::ofstream file(folder + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8) << header;
  const std::int64_t shape[2] = {n, k};
  for (const std::uint64_t at : shapes) {
    file.seekp(static_cast<std::streamoff>(8 + length + at));
    file.write(reinterpret_cast<const char*>(shape), sizeof shape);
  }
  file.close();
  std::filesystem::resize_file(folder + "/model.safetensors", 8 + length + end);
  std::ofstream(folder + "/config.json") << R"({"model_type":"llama","quantization_config":{"quant_method":"compressed-tensors",
    "format":"pack-quantized","quantization_status":"compressed","ignore":[],"config_groups":{"group_0":{"targets":["Linear"],
    "weights":{"num_bits":4,"type":"int","symmetric":true,"strategy":"group","group_size":128}}}}})";
}

TEST(PackMemory, ASparseShardOf8GiBUnder512MiB) {
  const TempFolder folder;
  write_sparse_checkpoint(folder.root());
  ASSERT_GT(std::filesystem::file_size(folder.path("model.safetensors")), 8192 * kMiB);
  const std::string problem = report_of_child([&]() -> std::string {
    const rlimit limit{512 * kMiB, 512 * kMiB};
    if (!kSanitized && setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit failed";
    const auto checkpoint = Checkpoint::open(folder.root());
    if (!checkpoint.ok()) return checkpoint.status().message();
    if (checkpoint->layers().size() != 128) return "layers: " + std::to_string(checkpoint->layers().size());
    PackOptions options;
    options.layers = "\\.77\\.";
    options.threads = 2;
    const auto report = pack_checkpoint(*checkpoint, folder.path("out.safetensors"), options);
    if (!report.ok()) return report.status().message();
    if (!kSanitized && peak_memory() > 512 * kMiB) return "peak " + std::to_string(peak_memory());
    return "";
  });
  EXPECT_EQ(problem, "");
  const auto file = PackedFile::open(folder.path("out.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->layers().size(), 1u);
  EXPECT_EQ(file->layers()[0].name, "model.layers.77.mlp.down_proj");
}

TEST(PackMemory, PeakIsBoundedByTheLargestMatrix) {
  const TempFolder folder;
  constexpr std::int64_t n = 16384, k = 8192;
  const std::string problem = report_of_child([&]() -> std::string {
    std::vector<LayerInfo> layers(2);
    for (std::size_t i = 0; i < 2; ++i) {
      layers[i].name = "layer" + std::to_string(i);
      layers[i].n = n;
      layers[i].k = k;
    }
    std::uint64_t source_bytes = 0;
    LayerSource source{"synthetic", &layers, {}, {}};
    source.load = [&](std::size_t layer, std::int64_t) -> Result<QuantTensor> {
      QuantTensor t;
      t.name = layers[layer].name;
      t.n = n;
      t.k = k;
      t.group_size = 128;
      t.rows = k / 128;
      auto codes = std::make_shared<Buffer>(n * k / 2);
      auto scales = std::make_shared<Buffer>(n * t.rows * 2);
      std::memset(codes->data(), 0x77, codes->size());
      std::memset(scales->data(), 0, scales->size());
      source_bytes = codes->size() + scales->size();
      t.codes = nibble_rows(codes->data(), k / 2, codes);
      t.scales = {DType::f16, scales->data(), t.rows * 2, 2};
      t.keep_alive.push_back(scales);
      // The second layer has act-order, whose rows are permuted in scratch memory.
      for (std::int64_t j = 0; layer == 1 && j < k; ++j) t.row_of_k.push_back(static_cast<std::int32_t>(j % t.rows));
      return t;
    };
    const std::uint64_t before = peak_memory();
    const auto report = pack_layers(source, folder.path("out"), {}, nullptr, nullptr);
    if (!report.ok()) return report.status().message();
    const std::uint64_t packed_bytes = report->packed_bytes / 2, peak = peak_memory() - before;
    const std::uint64_t bound = (source_bytes + packed_bytes) * 12 / 10 + 64 * kMiB;
    if (kSanitized || peak <= bound) return "";
    return "peak " + std::to_string(peak) + " bytes, bound " + std::to_string(bound);
  });
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace swordfish
