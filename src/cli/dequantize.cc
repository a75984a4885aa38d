// `swordfish dequantize`: dense weights as safetensors, from a checkpoint or through the packed tensor of a packed file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "checkpoint/safetensors_writer.h"
#include "cli/common.h"
#include "quant/numeric.h"

namespace swordfish::cli {
namespace {

// Where one stored matrix goes: rows [row0, row0+n) of expert e of tensor `out`.
struct Piece {
  std::size_t layer;
  std::int64_t expert = 0;
  std::int64_t part = -1;  // of a packed weight
  std::size_t out = 0;
  std::vector<std::int64_t> gather;  // output row i is matrix row gather[i]; empty: in order
};

struct Dequantize {
  explicit Dequantize(int& exit_code) : exit(exit_code) {}

  InputOptions input;
  std::string out, dtype = "fp32";
  bool hf_names = false, force = false;
  int threads = 0;
  int& exit;

  DType type() const { return dtype == "fp32" ? DType::f32 : dtype == "bf16" ? DType::bf16 : DType::f16; }

  // How many names --hf-names did not change.
  std::int64_t kept_names(const Source& source, const std::vector<std::size_t>& layers) const {
    if (!hf_names) return 0;
    return std::count_if(layers.begin(), layers.end(), [&](std::size_t i) {
      return !source.checkpoint() || source.checkpoint()->hf_name(i).name == source.layers()[i].weight_name;
    });
  }

  // The output tensors in order, and what fills them.
  Status plan_output(const Source& source, const std::vector<std::size_t>& layers, std::vector<SafetensorsWriter::Entry>& entries,
                     std::vector<Piece>& pieces) const {
    const auto add = [&](const std::string& tensor, const Source::Layer& layer, std::int64_t n) {
      std::vector<std::int64_t> shape{n, layer.k};
      if (layer.experts) shape.insert(shape.begin(), layer.experts);
      entries.push_back({tensor, type(), shape});
      return entries.size() - 1;
    };
    for (std::size_t i : layers) {
      const Source::Layer& layer = source.layers()[i];
      const std::int64_t experts = std::max<std::int64_t>(1, layer.experts);
      if (const PackedFile* packed = source.packed()) {
        const PackedFile::Layer& from = packed->layers()[i];
        for (std::size_t p = 0; p < from.parts.size(); ++p) {
          const std::size_t at = add(from.weight_names[p], layer, from.parts[p].n);
          for (std::int64_t e = 0; e < experts; ++e) pieces.push_back({i, e, static_cast<std::int64_t>(p), at, {}});
        }
        continue;
      }
      Checkpoint::HfName named{layer.weight_name, {}};
      if (hf_names) named = source.checkpoint()->hf_name(i);
      const std::size_t at = add(named.name, layer, layer.n);
      for (std::int64_t e = 0; e < experts; ++e) pieces.push_back({i, e, -1, at, named.gather});
    }
    std::map<std::string, int> seen;
    for (const auto& entry : entries)
      if (seen[entry.name]++) return unsupported("two layers would both be written as {}", entry.name);
    return {};
  }

  // Rows of one matrix, rounded to the output type, into `bytes`; counts finite values that became infinite.
  static std::int64_t convert(DType type, const QuantTensor& tensor, const std::vector<std::int64_t>& gather, std::int64_t row0,
                              std::int64_t rows, std::byte* bytes) {
    std::vector<float> values(static_cast<std::size_t>(rows * tensor.k));
    if (gather.empty()) {
      dequantize(tensor, row0, rows, values.data(), tensor.k);
    } else {
      for (std::int64_t i = 0; i < rows; ++i)
        dequantize(tensor, gather[static_cast<std::size_t>(row0 + i)], 1, values.data() + i * tensor.k, tensor.k);
    }
    std::int64_t overflowed = 0;
    if (type == DType::f32) {
      std::memcpy(bytes, values.data(), values.size() * sizeof(float));
      for (float v : values) overflowed += std::isinf(v);
      return overflowed;
    }
    auto* half = reinterpret_cast<std::uint16_t*>(bytes);
    const std::uint16_t infinity = type == DType::bf16 ? 0x7f80 : 0x7c00;
    for (std::size_t i = 0; i < values.size(); ++i) {
      half[i] = f32_to_half(type, values[i]);
      overflowed += (half[i] & 0x7fff) == infinity;
    }
    return overflowed;
  }

  Status run(bool& opened) {
    SF_ASSIGN(const Source source, Source::open(input.path, input.open));
    SF_ASSIGN(const auto layers, select_layers(source, input.layers));
    std::vector<SafetensorsWriter::Entry> entries;
    std::vector<Piece> pieces;
    SF_TRY(plan_output(source, layers, entries, pieces));
    opened = true;
    SF_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(out, force, entries, {{"format", "pt"}}));
    ThreadPool pool(threads);
    Progress progress("dequantizing");
    std::int64_t overflowed = 0;
    std::size_t done = 0;
    for (const Piece& piece : pieces) {
      PackedWeight packed;
      QuantTensor tensor;
      if (source.packed()) {
        SF_ASSIGN(packed, source.packed()->load(piece.layer, piece.expert));
        SF_ASSIGN(tensor, unpack(packed.view, piece.part));
      } else {
        SF_ASSIGN(tensor, source.checkpoint()->load(piece.layer, piece.expert));
      }
      const std::int64_t row_bytes = tensor.k * bits(type()) / 8;
      const std::int64_t chunk = std::max<std::int64_t>(1, (std::int64_t{4} << 20) / row_bytes);  // 4 MiB a task
      const std::int64_t group = chunk * pool.threads();
      Buffer bytes(static_cast<std::size_t>(std::min(group, tensor.n) * row_bytes));
      for (std::int64_t n0 = 0; n0 < tensor.n; n0 += group) {
        const std::int64_t n = std::min(group, tensor.n - n0);
        std::vector<std::int64_t> infinite(static_cast<std::size_t>((n + chunk - 1) / chunk));
        pool.parallel_for(static_cast<std::int64_t>(infinite.size()), [&](std::int64_t task, int) {
          const std::int64_t first = task * chunk, rows = std::min(chunk, n - first);
          infinite[static_cast<std::size_t>(task)] =
              convert(type(), tensor, piece.gather, n0 + first, rows, bytes.data() + first * row_bytes);
        });
        overflowed += std::accumulate(infinite.begin(), infinite.end(), std::int64_t{0});
        SF_TRY(writer.write(piece.out, static_cast<std::uint64_t>((piece.expert * tensor.n + n0) * row_bytes), bytes.data(),
                            static_cast<std::size_t>(n * row_bytes)));
      }
      progress.update(++done, pieces.size());
    }
    SF_TRY(writer.commit());
    fmt::print("{}: {} tensors as {}\n", out, entries.size(), dtype);
    if (const std::int64_t kept = kept_names(source, layers); kept > 0)
      fmt::print(stderr,
                 "swordfish: --hf-names: {} of {} names are kept as they are: the rule is for GGUF files of architecture llama\n",
                 kept, layers.size());
    if (overflowed) fmt::print(stderr, "swordfish: {} weights are too large for {} and became infinite\n", overflowed, dtype);
    return {};
  }
};

}  // namespace

void add_dequantize(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("dequantize", "Write dense weights as safetensors, under their checkpoint names");
  auto s = std::make_shared<Dequantize>(exit);
  add_input(*command, s->input, true);
  command->add_option("-o,--out", s->out, "The safetensors file to write; it appears whole or not at all")->required();
  command->add_option("--dtype", s->dtype, "fp32 (the exact value, rounded once), bf16 or fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_flag("--hf-names", s->hf_names, "GGUF: Hugging Face names, with the rotary row permutation undone");
  command->add_flag("--force", s->force, "Replace an existing file");
  add_threads(*command, s->threads);
  command->footer("Example: swordfish dequantize model.gguf -o dense.safetensors --dtype bf16 --hf-names");
  command->callback([s] {
    bool opened = false;
    if (const Status status = s->run(opened); !status.ok()) s->exit = fail(status, opened);
  });
}

}  // namespace swordfish::cli
