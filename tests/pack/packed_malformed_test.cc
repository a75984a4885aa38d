// Malformed packed files: every field that a kernel would trust is broken once, and the file is refused by name; random damage
// never crashes and never gives a view that points outside its planes.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "pack/pack_checkpoint.h"
#include "pack/packed_files.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using Json = nlohmann::ordered_json;
using test::Model;
using test::Zeros;

// A safetensors file in pieces that a test can change and put together again; data_offsets follow the data.
struct Pieces {
  Json metadata, layers;
  struct Item {
    std::string name, dtype;
    Json shape;
    std::string data;
  };
  std::vector<Item> items;

  explicit Pieces(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const Json header = Json::parse(bytes.substr(8, length));
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") {
        metadata = value;
        layers = Json::parse(value["swordfish.layers"].get<std::string>());
        continue;
      }
      const auto begin = value["data_offsets"][0].get<std::size_t>(), end = value["data_offsets"][1].get<std::size_t>();
      items.push_back({key, value["dtype"], value["shape"], bytes.substr(8 + length + begin, end - begin)});
    }
  }
  void write(const std::string& path) {
    metadata["swordfish.layers"] = layers.dump();
    write_raw(path);
  }
  void write_raw(const std::string& path) const {
    Json header{{"__metadata__", metadata}};
    std::size_t end = 0;
    for (const Item& item : items) {
      header[item.name] = {{"dtype", item.dtype}, {"shape", item.shape}, {"data_offsets", {end, end + item.data.size()}}};
      end += item.data.size();
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8) << text;
    for (const Item& item : items) file << item.data;
  }
  Item& item(std::string_view name) {
    for (Item& i : items) {
      if (i.name == name) return i;
    }
    ADD_FAILURE() << "no tensor " << name;
    return items.front();
  }
  void set_int(std::string_view name, std::size_t index, std::int32_t value) {
    std::memcpy(item(name).data.data() + 4 * index, &value, 4);
  }
};

class Malformed : public testing::Test {
 protected:
  void SetUp() override {
    Model model;
    model.add("plain", {CodeType::int4, 70, 200, 64, Zeros::u8, DType::f16, false});       // 2 x 4 blocks, 4 scale rows
    model.add("order", {CodeType::int8, 10, 60, 20, Zeros::constant, DType::bf16, true});  // 3 runs of 32: 3 blocks
    model.add("g48", {CodeType::int4, 64, 96, 48, Zeros::offsets, DType::f32, false});
    model.add("experts", {CodeType::fp4, 64, 64, 16, Zeros::constant, DType::f8_e4m3, false}, 2);
    model.add_bias(0);
    model.add_bias(3);
    path_ = folder_.path("packed.safetensors");
    const auto report = pack_layers(model.source(), path_, {}, nullptr, nullptr);
    ASSERT_TRUE(report.ok()) << report.status().message();
  }

  // Opens and loads everything; the first refusal.
  static Status read_all(const std::string& path) {
    const auto file = PackedFile::open(path);
    if (!file.ok()) return file.status();
    for (std::size_t i = 0; i < file->layers().size(); ++i) {
      for (std::int64_t e = 0; e < std::max<std::int64_t>(1, file->layers()[i].experts); ++e) {
        const auto weight = file->load(i, e);
        if (!weight.ok()) return weight.status();
        use(*weight);
        if (const auto bias = file->load_bias(i, e); !bias.ok()) return bias.status();
      }
    }
    return {};
  }

  // Touches every byte that a kernel may reach through the view (under a sanitizer, outside is an error).
  static void use(const PackedWeight& weight) {
    const PackedView& v = weight.view;
    ASSERT_EQ(v.codes, weight.codes.data());
    ASSERT_EQ(weight.codes.size(), static_cast<std::size_t>(v.n_blocks * v.k_blocks * 2048));
    for (std::int64_t s = 0; s < v.packed_k() / 16; ++s) {
      ASSERT_GE(v.row(s), 0);
      ASSERT_LT(v.row(s), v.rows);
    }
    for (std::int64_t p = 0; p < v.n_parts; ++p) {
      const auto tensor = unpack(v, p);
      ASSERT_TRUE(tensor.ok());
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(tensor->n * tensor->k));
      tensor->codes->read(0, tensor->n, 0, tensor->k, codes.data(), static_cast<std::size_t>(tensor->k));
      for (std::int64_t k = 0; k < tensor->k; ++k) ASSERT_LT(tensor->row(k), tensor->rows);
    }
  }

  void refused(const std::function<void(Pieces&)>& change, std::string_view words, Code code = Code::malformed) {
    Pieces pieces(path_);
    change(pieces);
    expect_refused(pieces, words, code);
  }
  void expect_refused(Pieces& pieces, std::string_view words, Code code = Code::malformed) {
    const std::string broken = folder_.path("broken.safetensors");
    pieces.write(broken);
    const Status status = read_all(broken);
    EXPECT_EQ(status.code(), code) << words << ": " << status.message();
    EXPECT_NE(status.message().find(broken), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << words << ": " << status.message();
  }

  TempFolder folder_;
  std::string path_;
};

TEST_F(Malformed, TheUntouchedPiecesLoad) {
  Pieces pieces(path_);
  const std::string copy = folder_.path("copy");
  pieces.write(copy);
  const Status status = read_all(copy);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(Malformed, Metadata) {
  refused([](Pieces& p) { p.metadata["swordfish.layout"] = "mma64/2"; }, "layout 'mma64/2'", Code::unsupported);
  refused([](Pieces& p) { p.metadata.erase("swordfish.layout"); }, "swordfish.layout", Code::unsupported);
  refused([](Pieces& p) { p.layers = 5; }, "expected array, found integer");
  refused([](Pieces& p) { p.layers[0] = 5; }, "object");
  for (const char* key : {"name", "scheme", "code", "k", "experts", "parts", "entries"}) {
    refused([&](Pieces& p) { p.layers[0].erase(key); }, std::string("'") + key + "'");
    refused([&](Pieces& p) { p.layers[0][key] = Json::object(); }, std::string("'") + key + "'");
  }
  for (const char* key : {"name", "weight", "n"})
    refused([&](Pieces& p) { p.layers[0]["parts"][0].erase(key); }, std::string("'") + key + "'");
  for (const char* key : {"group_size", "zero", "globals"}) {
    refused([&](Pieces& p) { p.layers[0]["entries"][0].erase(key); }, std::string("'") + key + "'");
  }
  refused([](Pieces& p) { p.layers[0]["code"] = "int3"; }, "int3");
  refused([](Pieces& p) { p.layers[0]["parts"] = Json::array(); }, "one part or more");
  refused([](Pieces& p) { p.layers[0]["entries"] = Json::array(); }, "expected 1 entries, found 0");
  refused([](Pieces& p) { p.layers[3]["experts"] = 3; }, "expected 3 entries, found 2");
  refused([](Pieces& p) { p.layers[0]["experts"] = -1; }, "'experts' is -1");
  refused([](Pieces& p) { p.layers.erase(2); }, "expected 12 tensors by its metadata, found 16");
  refused([](Pieces& p) { p.layers[0]["name"] = "none"; }, "tensor 'none.codes' is missing");

  Pieces pieces(path_);
  for (const char* text : {"", "[", "[{\"name\":\"a\",\"name\":\"b\"}]"}) {
    pieces.metadata["swordfish.layers"] = text;
    const std::string broken = folder_.path("broken.safetensors");
    pieces.write_raw(broken);
    EXPECT_EQ(PackedFile::open(broken).status().code(), Code::malformed) << text;
  }
  pieces.metadata.erase("swordfish.layers");
  pieces.write_raw(folder_.path("broken.safetensors"));
  EXPECT_EQ(PackedFile::open(folder_.path("broken.safetensors")).status().code(), Code::malformed);
}

TEST_F(Malformed, Globals) {
  const auto global = [&](const Json& value) {
    refused([&](Pieces& p) { p.layers[0]["entries"][0]["globals"][0] = value; }, "global 0");
  };
  global(1.5);
  global({1.5});
  global({1.5, "add"});
  global({"1.5", "divide"});
  global({0.1, "divide"});   // no fp32 value
  global({1e39, "divide"});  // out of range
  refused([](Pieces& p) { p.layers[0]["entries"][0]["globals"] = Json::array(); }, "expected 1 globals, found 0");
}

TEST_F(Malformed, Shapes) {
  const auto first = [](auto value, const char* key) { return [=](Pieces& p) { p.layers[0][key] = value; }; };
  refused(first(0, "k"), "'k' is 0");
  refused(first(std::int64_t{1} << 62, "k"), "'k'");
  refused(first(257, "k"), "do not fit K = 257");
  refused(first(192, "k"), "do not fit K = 192");
  const auto rows = [](std::int64_t n) { return [=](Pieces& p) { p.layers[0]["parts"][0]["n"] = n; }; };
  refused(rows(0), "'n' is 0");
  refused(rows(std::int64_t{1} << 62), "'n'");
  refused(rows(129), "expected I32 [3, 4, 512], found I32 [2, 4, 512]");
  refused(rows(64), "expected I32 [1, 4, 512], found I32 [2, 4, 512]");
  refused(rows(71), "expected F32 [71], found F32 [70]");  // the bias has 70
  refused([](Pieces& p) { p.layers[0]["parts"].push_back(p.layers[0]["parts"][0]); }, "expected 2 globals, found 1");
  const auto group = [](std::int64_t g) { return [=](Pieces& p) { p.layers[0]["entries"][0]["group_size"] = g; }; };
  for (const std::int64_t g : {0, 8, 48, -64}) refused(group(g), "group_size");
  refused(group(32), "group_size 32 with 4 scale rows does not fit K = 200");
  refused(group(std::numeric_limits<std::int64_t>::max()), "group_size");
  refused([](Pieces& p) { p.layers[0]["entries"][0]["zero"] = 40000; }, "'zero' is 40000");
  refused([](Pieces& p) { p.layers[2]["entries"][0]["group_size"] = 64; }, "group_size 64 beside row_of_slice");
}

TEST_F(Malformed, Tensors) {
  const auto shape = [](const char* name, Json to) { return [=](Pieces& p) { p.item(name).shape = to; }; };
  const auto dtype = [](const char* name, const char* to) { return [=](Pieces& p) { p.item(name).dtype = to; }; };
  refused(shape("plain.codes", {8, 512}), "expected 3 dimensions");
  refused(shape("plain.codes", {4, 2, 512}), "do not fit K = 200");
  refused(shape("plain.codes", {2, 2, 1024}), "do not fit K = 200");
  refused(dtype("plain.codes", "U32"), "expected I32");
  refused(shape("plain.scales", {512}), "expected 3 dimensions");
  refused(shape("plain.scales", {4, 2, 64}), "group_size 64 with 2 scale rows");
  refused(shape("plain.scales", {2, 8, 32}), "'plain.scales': expected F16 [2, 8, 64], found F16 [2, 8, 32]");
  refused(dtype("plain.scales", "I16"), "scales cannot be I16");
  refused(shape("plain.zeros", {2, 2, 128}), "'plain.zeros': expected U8 [2, 4, 64]");
  refused(dtype("plain.zeros", "I8"), "zero points cannot be I8");
  refused(dtype("g48.offsets", "I32"), "offsets cannot be I32");
  refused([](Pieces& p) { p.item("order.gather").name = "order.something"; }, "do not fit K = 60");
  refused([](Pieces& p) { p.item("g48.row_of_slice").name = "g48.something"; }, "group_size 0");
  refused([](Pieces& p) { p.item("plain.bias").name = "plain.something"; }, "expected 15 tensors by its metadata, found 16");
  refused([](Pieces& p) { p.item("plain.zeros").name = "plain.offsets"; }, "offsets cannot be U8");
  refused(shape("experts.bias", {128}), "expected F32 [2, 64], found F32 [128]");
  refused([](Pieces& p) { p.item("experts.expert1.codes").name = "experts.expert2.codes"; }, "'experts.expert1.codes' is missing");
  refused(
      [](Pieces& p) {
        auto& gather = p.item("order.gather");
        gather.shape = {48};
        gather.data.resize(4 * 48);
      },
      "'order.gather': expected I32 [96], found I32 [48]");
}

TEST_F(Malformed, IndicesThatKernelsFollow) {
  refused([](Pieces& p) { p.set_int("order.gather", 3, 60); }, "tensor 'order.gather': element 3 is 60, expected -1 to 59");
  refused([](Pieces& p) { p.set_int("order.gather", 3, -2); }, "element 3 is -2");
  refused([](Pieces& p) { p.set_int("order.gather", 3, -1); }, "expected 60 columns, found 59");
  refused(
      [](Pieces& p) {
        std::int32_t column = 0;
        std::memcpy(&column, p.item("order.gather").data.data(), 4);
        p.set_int("order.gather", 1, column);
      },
      "is there a second time");
  refused([](Pieces& p) { p.set_int("g48.row_of_slice", 5, 2); }, "tensor 'g48.row_of_slice': element 5 is 2, expected 0 to 1");
  refused([](Pieces& p) { p.set_int("g48.row_of_slice", 0, -1); }, "element 0 is -1");
}

TEST_F(Malformed, RandomDamageNeverCrashes) {
  std::ifstream file(path_, std::ios::binary);
  const std::string original{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t length = 0;
  std::memcpy(&length, original.data(), 8);
  test::Random random(5);
  const std::string broken = folder_.path("broken.safetensors");
  int refused_count = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = original;
    const auto text_end = static_cast<std::int64_t>(original.find("   ", 8));
    for (std::int64_t change = test::pick(random, 1, 3); change > 0; --change) {
      const auto at = static_cast<std::size_t>(test::pick(random, 0, 2) != 0
                                                   ? test::pick(random, 8, text_end)
                                                   : test::pick(random, 0, static_cast<std::int64_t>(bytes.size()) - 1));
      // Mostly digits and letters for others, which keeps the JSON alive.
      if (bytes[at] >= '0' && bytes[at] <= '9') {
        bytes[at] = static_cast<char>('0' + test::pick(random, 0, 9));
      } else {
        bytes[at] = static_cast<char>(test::pick(random, 0, 255));
      }
    }
    if (round % 10 == 0) bytes.resize(static_cast<std::size_t>(test::pick(random, 0, static_cast<std::int64_t>(bytes.size()))));
    std::ofstream(broken, std::ios::binary) << bytes;
    refused_count += !read_all(broken).ok();
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(refused_count, 500);
}

}  // namespace
}  // namespace swordfish
