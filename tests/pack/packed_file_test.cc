// Packed files: what is written is read back bit for bit, by layer, expert and part; and nothing but a whole file ever appears.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "checkpoint/container.h"
#include "pack/pack_checkpoint.h"
#include "pack/packed_files.h"
#include "pack/same_weight.h"
#include "pack/synthetic.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

namespace fs = std::filesystem;
using test::expect_same;
using test::Model;
using test::random_tensor;
using test::Zeros;

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Layers of every kind: plain, act-order, g = 48, channelwise, offsets, wide zeros, experts, with and without bias.
Model mixed_model() {
  Model model;
  model.add("a", {CodeType::int4, 100, 300, 32, Zeros::u8, DType::f16, false});
  model.add("b.actorder", {CodeType::int4, 64, 200, 40, Zeros::constant, DType::bf16, true});
  model.add("b.g48", {CodeType::int8, 10, 200, 48, Zeros::constant, DType::f32, false});
  model.add("c.channel", {CodeType::int8, 65, 33, 33, Zeros::i16, DType::f32, false});
  model.add("c.offsets", {CodeType::int4, 64, 256, 32, Zeros::offsets, DType::f16, false});
  model.add("d.nvfp4", {CodeType::fp4, 128, 96, 16, Zeros::constant, DType::f8_e4m3, false});
  model.add("d.mxfp4", {CodeType::fp4, 30, 96, 32, Zeros::constant, DType::f8_e8m0, false});
  model.add("e.experts", {CodeType::fp4, 48, 64, 16, Zeros::constant, DType::f8_e4m3, false}, 3);
  model.add("e.actorder_experts", {CodeType::int4, 48, 80, 20, Zeros::u8, DType::f16, true}, 2);
  for (std::size_t i = 0; i < model.layers.size(); i += 2) model.add_bias(i);
  return model;
}

TEST(PackedFile, ReadsBackWhatWasPacked) {
  const TempFolder folder;
  const Model model = mixed_model();
  const std::string path = folder.path("out.safetensors");
  EXPECT_FALSE(PackedFile::is_packed(path));
  const auto report = pack_layers(model.source(), path, {}, nullptr, nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->layers, 9);
  EXPECT_EQ(entries(folder.root()), std::vector<std::string>{"out.safetensors"});
  EXPECT_TRUE(PackedFile::is_packed(path));
  const auto file = PackedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->path(), path);
  ASSERT_EQ(file->layers().size(), model.layers.size());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const PackedFile::Layer& layer = file->layers()[i];
    const LayerInfo& info = model.layers[i];
    EXPECT_EQ(layer.name, info.name);
    EXPECT_EQ(layer.scheme, info.scheme);
    EXPECT_EQ(layer.experts, info.experts);
    EXPECT_EQ(layer.weight_names, std::vector<std::string>{info.weight_name});
    EXPECT_EQ(layer.shape.codes, nullptr);
    bytes += layer.bytes;
    for (std::int64_t e = 0; e < std::max<std::int64_t>(1, info.experts); ++e) {
      const auto loaded = file->load(i, e);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      expect_same(*pack(model.tensors[i][static_cast<std::size_t>(e)], 1), *loaded);
      if (e == 0) {
        EXPECT_EQ(layer.parts, loaded->parts);
      }
      const auto bias = file->load_bias(i, e);
      ASSERT_TRUE(bias.ok());
      EXPECT_EQ(*bias, *model.load_bias(i, e));
    }
    EXPECT_FALSE(file->load(i, std::max<std::int64_t>(1, info.experts)).ok());
    EXPECT_FALSE(file->load(i, -1).ok());
  }
  EXPECT_EQ(bytes, report->packed_bytes);
  EXPECT_EQ(file->load(model.layers.size()).status().code(), Code::invalid_argument);
  EXPECT_EQ(file->load_bias(model.layers.size()).status().code(), Code::invalid_argument);
}

TEST(PackedFile, IsAValidSafetensorsFileWithAlignedData) {
  const TempFolder folder;
  const std::string path = folder.path("out.safetensors");
  ASSERT_TRUE(pack_layers(mixed_model().source(), path, {}, nullptr, nullptr).ok());
  const auto container = open_safetensors_file(path);
  ASSERT_TRUE(container.ok()) << container.status().message();
  EXPECT_EQ(container->metadata.at("swordfish.layout"), "mma64/1");
  EXPECT_FALSE(container->metadata.at("swordfish.version").empty());
  bool bias = false;
  for (const Tensor& t : container->tensors) {
    if (t.name == "a.codes") {
      EXPECT_EQ(t.offset % 4096, 0u);
    }
    if (t.name.ends_with(".bias")) bias = true;
    if (!bias) {
      EXPECT_EQ(t.offset % 64, 0u) << t.name;
    }
  }
}

TEST(PackedFile, FusesPartsAndKeepsTheirGlobals) {
  const TempFolder folder;
  Model model;
  const test::Shape shape{CodeType::fp4, 64, 96, 16, Zeros::constant, DType::f8_e4m3, false};
  model.add("m.up_proj", shape);
  model.add("m.gate_proj", shape);
  model.add("m.down_proj", shape);
  for (std::size_t i = 0; i < 2; ++i) {
    model.layers[i].fused_into = "m.gate_up_proj";
    model.layers[i].fused_index = i == 0 ? 1 : 0;
    model.tensors[i][0].global = {static_cast<float>(i) + 0.1f, i == 0 ? Global::Op::multiply : Global::Op::divide};
  }
  model.add_bias(0);
  PackOptions options;
  options.fuse = true;
  const std::string path = folder.path("fused");
  const auto report = pack_layers(model.source(), path, options, nullptr, nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->notes.empty());
  const auto file = PackedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->layers().size(), 2u);
  const PackedFile::Layer& layer = file->layers()[0];
  EXPECT_EQ(layer.name, "m.gate_up_proj");
  EXPECT_EQ(layer.weight_names, (std::vector<std::string>{"m.gate_proj.weight", "m.up_proj.weight"}));
  const std::vector<QuantTensor> parts{model.tensors[1][0], model.tensors[0][0]};
  expect_same(*pack(parts, "m.gate_up_proj"), *file->load(0));
  EXPECT_EQ(layer.parts[1].global, (Global{0.1f, Global::Op::multiply}));
  // The bias of up follows zeros for gate, which has none.
  std::vector<float> bias(64);
  bias.insert(bias.end(), model.biases[0].begin(), model.biases[0].end());
  EXPECT_EQ(*file->load_bias(0), bias);
  EXPECT_EQ(*file->load_bias(1), std::nullopt);
  EXPECT_EQ(file->layers()[1].name, "m.down_proj");
}

TEST(PackedFile, PartsThatDoNotFitStayApart) {
  const TempFolder folder;
  PackOptions options;
  options.fuse = true;
  const auto names = [&](const Model& model, std::size_t notes) {
    options.force = true;
    const std::string path = folder.path("out");
    const auto report = pack_layers(model.source(), path, options, nullptr, nullptr);
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->notes.size(), notes);
    std::vector<std::string> found;
    const auto file = PackedFile::open(path);
    for (const auto& layer : file->layers()) found.push_back(layer.name);
    return found;
  };
  const test::Shape shape{CodeType::int4, 64, 96, 16, Zeros::constant, DType::f16, false};
  test::Shape other = shape;
  const auto pair = [&] {
    Model model;
    model.add("q", shape);
    model.add("k", other);
    for (auto& layer : model.layers) layer.fused_into = "qk";
    model.layers[1].fused_index = 1;
    return model;
  };
  const std::vector<std::string> fused{"qk"}, apart{"q", "k"};
  EXPECT_EQ(names(pair(), 0), fused);
  other.group = 32;  // the headers tell
  EXPECT_EQ(names(pair(), 1), apart);
  other = shape;
  other.act_order = true;  // only the contents tell
  EXPECT_EQ(names(pair(), 1), apart);
  other = shape;
  options.layers = "^q$";  // a part alone is no fused module
  EXPECT_EQ(names(pair(), 0), std::vector<std::string>{"q"});
}

TEST(PackedFile, ChoosesLayersByPattern) {
  const TempFolder folder;
  const Model model = mixed_model();
  PackOptions options;
  options.layers = "^b\\.|experts$";
  const std::string path = folder.path("out");
  const auto report = pack_layers(model.source(), path, options, nullptr, nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->layers, 4);
  EXPECT_EQ(PackedFile::open(path)->layers()[2].name, "e.experts");
  options.layers = "nothing";
  EXPECT_EQ(pack_layers(model.source(), path + "2", options, nullptr, nullptr).status().code(), Code::invalid_argument);
  options.layers = "(";
  EXPECT_FALSE(pack_layers(model.source(), path + "2", options, nullptr, nullptr).ok());
  EXPECT_EQ(pack_layers(Model().source(), path + "2", {}, nullptr, nullptr).status().code(), Code::unavailable);
  EXPECT_EQ(entries(folder.root()), std::vector<std::string>{"out"});
}

TEST(PackedFile, AnAllZeroBiasIsNone) {
  const TempFolder folder;
  Model model;
  model.add("a", {});
  model.layers[0].bias = "a.bias";  // its load gives nothing
  ASSERT_TRUE(pack_layers(model.source(), folder.path("out"), {}, nullptr, nullptr).ok());
  const auto file = PackedFile::open(folder.path("out"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->layers()[0].bias, "");
}

TEST(PackedFile, NeverReplacesUnlessForced) {
  const TempFolder folder;
  const std::string path = folder.path("out");
  std::ofstream(path) << "precious";
  Model model;
  model.add("a", {});
  const auto refused = pack_layers(model.source(), path, {}, nullptr, nullptr);
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find(path), std::string::npos);
  EXPECT_EQ(fs::file_size(path), 8u);
  PackOptions force;
  force.force = true;
  ASSERT_TRUE(pack_layers(model.source(), path, force, nullptr, nullptr).ok());
  EXPECT_TRUE(PackedFile::is_packed(path));
  EXPECT_EQ(entries(folder.root()), std::vector<std::string>{"out"});
}

TEST(PackedFile, AFailureLeavesNothingBehindAndTheOldFileAlone) {
  const TempFolder folder;
  const std::string path = folder.path("out");
  std::ofstream(path) << "precious";
  PackOptions force;
  force.force = true;
  Model model;
  model.add("a", {});
  model.add("b", {});
  const auto unchanged = [&] { return entries(folder.root()) == std::vector<std::string>{"out"} && fs::file_size(path) == 8; };

  LayerSource broken = model.source();
  broken.load = [&](std::size_t layer, std::int64_t expert) -> Result<QuantTensor> {
    if (layer == 1) return Status(Code::malformed, "b is broken");
    return model.source().load(layer, expert);
  };
  EXPECT_EQ(pack_layers(broken, path, force, nullptr, nullptr).status().message(), "b is broken");
  EXPECT_TRUE(unchanged());

  int calls = 0;
  const auto cancel = [](std::uint64_t done, std::uint64_t total, void* user) {
    EXPECT_LE(done, total);
    return ++*static_cast<int*>(user) < 2;
  };
  EXPECT_EQ(pack_layers(model.source(), path, force, cancel, &calls).status().code(), Code::cancelled);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(unchanged());

  model.tensors[1][0].global.value = std::numeric_limits<float>::infinity();
  EXPECT_EQ(pack_layers(model.source(), path, force, nullptr, nullptr).status().code(), Code::invalid_argument);
  EXPECT_TRUE(unchanged());
  model.tensors[1][0].global.value = 1;
  model.layers[1].name = "a";  // its tensors would have the names of the first layer's
  EXPECT_EQ(pack_layers(model.source(), path, force, nullptr, nullptr).status().code(), Code::invalid_argument);
  EXPECT_TRUE(unchanged());
  EXPECT_EQ(pack_layers(model.source(), folder.path("none/out"), force, nullptr, nullptr).status().code(), Code::io);
}

TEST(PackedFile, ReportsProgressInSourceBytes) {
  const TempFolder folder;
  Model model;
  model.add("a", {});
  model.add("b", {}, 3);
  std::vector<std::uint64_t> seen;
  const auto record = [](std::uint64_t done, std::uint64_t total, void* user) {
    static_cast<std::vector<std::uint64_t>*>(user)->insert(static_cast<std::vector<std::uint64_t>*>(user)->end(), {done, total});
    return true;
  };
  const auto report = pack_layers(model.source(), folder.path("out"), {}, record, &seen);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 4000, 1000, 4000, 2000, 4000, 3000, 4000, 4000, 4000}));
  EXPECT_EQ(report->source_bytes, 4000u);
}

// Runs `child` in a process of its own and returns how it ended (waitpid's status).
int in_child(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

TEST(PackedFile, AKilledWriterLeavesNothing) {
  const TempFolder folder;
  Model model;
  model.add("a", {});
  model.add("b", {});
  for (const int number : {SIGKILL, SIGTERM, SIGINT}) {
    for (const int moment : {1, 2, 3}) {  // before the first layer, between the two, before the end
      struct State {
        int calls, moment, number;
      } state{0, moment, number};
      const auto kill_then = [](std::uint64_t, std::uint64_t, void* user) {
        auto& s = *static_cast<State*>(user);
        if (++s.calls == s.moment) std::raise(s.number);
        return true;
      };
      const int status = in_child([&] {
        std::signal(SIGINT, SIG_DFL);  // a shell's background job has it ignored
        return pack_layers(model.source(), folder.path("out"), {}, kill_then, &state).ok() ? 0 : 1;
      });
      EXPECT_TRUE(WIFSIGNALED(status));
      EXPECT_EQ(WTERMSIG(status), number);
      EXPECT_EQ(entries(folder.root()), std::vector<std::string>{}) << "signal " << number << " at " << moment;
    }
  }
}

TEST(PackedFile, AFullDiskIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const std::string path = folder.path("out");
  Model model;
  model.add("a", {CodeType::int4, 256, 512, 32});
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{16384, 16384};  // stands for a disk with 16 KiB left
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status result = pack_layers(model.source(), path, {}, nullptr, nullptr).status();
    const auto wrote = write(pipes[1], result.message().data(), result.message().size());
    return result.code() == Code::io && wrote > 0 ? 0 : 1;
  });
  close(pipes[1]);
  char message[1000] = {};
  EXPECT_GT(read(pipes[0], message, sizeof message - 1), 0);
  close(pipes[0]);
  EXPECT_EQ(status, 0) << message;
  EXPECT_NE(std::string_view(message).find(path), std::string_view::npos) << message;
  EXPECT_EQ(entries(folder.root()), std::vector<std::string>{});
}

}  // namespace
}  // namespace swordfish
