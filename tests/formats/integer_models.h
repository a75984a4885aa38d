// Small GPTQ, AWQ and compressed-tensors checkpoints for tests: a matrix of codes, scales and zero points, put into each packing by
// the formulas of formats.md one code at a time, and the values that it stands for.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/build_files.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {

inline const std::string kModule = "model.layers.0.mlp.down_proj";
// A zero point as the two versions of GPTQ store it.
inline int v1(int zero) { return zero - 1; }
inline int v2(int zero) { return zero; }

struct IntMatrix {
  std::int64_t n = 0, k = 0, group = 0, groups = 0;
  int bits = 4;
  std::vector<int> q, zero;   // [n, k], [n, groups]
  std::vector<float> scale;   // [n, groups], exact in f16 and bf16
  std::vector<int> row_of_k;  // [k]

  int& code(std::int64_t row, std::int64_t col) { return q[static_cast<std::size_t>(row * k + col)]; }
  int& zero_at(std::int64_t row, std::int64_t j) { return zero[static_cast<std::size_t>(row * groups + j)]; }
  float& scale_at(std::int64_t row, std::int64_t j) { return scale[static_cast<std::size_t>(row * groups + j)]; }
  float value(std::int64_t row, std::int64_t col) const {
    const auto j = static_cast<std::size_t>(row * groups + row_of_k[static_cast<std::size_t>(col)]);
    return scale[j] * static_cast<float>(q[static_cast<std::size_t>(row * k + col)] - zero[j]);
  }
};

// Random codes; every zero point is `zero`, or random in [1, 2^bits - 2] when it is -1.
inline IntMatrix random_matrix(std::int64_t n, std::int64_t k, std::int64_t group, int bits, int zero, unsigned seed) {
  std::mt19937 random(seed);
  IntMatrix m{n, k, group, (k + group - 1) / group, bits, {}, {}, {}, {}};
  const unsigned top = 1u << bits;
  for (std::int64_t i = 0; i < n * k; ++i) m.q.push_back(static_cast<int>(random() % top));
  for (std::int64_t i = 0; i < n * m.groups; ++i) {
    m.zero.push_back(zero >= 0 ? zero : 1 + static_cast<int>(random() % (top - 2)));
    m.scale.push_back(static_cast<float>(1 + static_cast<int>(random() % 127)) / 1024.0f * (random() % 2 ? 1.0f : -1.0f));
  }
  for (std::int64_t i = 0; i < k; ++i) m.row_of_k.push_back(static_cast<int>(i / group));
  return m;
}

// `rows` x `cols` values of `bits` bits, packed along cols: [rows, ceil(cols/P)] words, lane of column c from `lane`.
inline std::vector<std::uint32_t> pack_words(std::int64_t rows, std::int64_t cols, int bits,
                                             const std::function<int(std::int64_t, std::int64_t)>& value,
                                             const std::vector<int>& lane = {}) {
  const std::int64_t per_word = 32 / bits, words = (cols + per_word - 1) / per_word;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(rows * words));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t at = lane.empty() ? c % per_word : lane[static_cast<std::size_t>(c % per_word)];
      out[static_cast<std::size_t>(r * words + c / per_word)] |= static_cast<std::uint32_t>(value(r, c)) << (bits * at);
    }
  }
  return out;
}

inline std::vector<std::uint16_t> to_f16(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float v : values) out.push_back(f32_to_f16(v));
  return out;
}

// GPTQ: words along K, so [ceil(K/P), N] is the transpose of [N, ceil(K/P)]. `stored` maps a true zero point to the stored one.
inline std::vector<TestTensor> gptq_tensors(const std::string& module, IntMatrix m, const std::function<int(int)>& stored) {
  const std::int64_t per_word = 32 / m.bits, words = (m.k + per_word - 1) / per_word;
  const auto rows = pack_words(m.n, m.k, m.bits, [&](std::int64_t n, std::int64_t k) { return m.code(n, k); });
  std::vector<std::uint32_t> qweight(rows.size());
  for (std::int64_t n = 0; n < m.n; ++n) {
    for (std::int64_t w = 0; w < words; ++w) {
      qweight[static_cast<std::size_t>(w * m.n + n)] = rows[static_cast<std::size_t>(n * words + w)];
    }
  }
  const auto mask = (1 << m.bits) - 1;
  const auto qzeros =
      pack_words(m.groups, m.n, m.bits, [&](std::int64_t j, std::int64_t n) { return stored(m.zero_at(n, j)) & mask; });
  std::vector<float> scales;
  for (std::int64_t j = 0; j < m.groups; ++j) {
    for (std::int64_t n = 0; n < m.n; ++n) scales.push_back(m.scale_at(n, j));
  }
  return {{module + ".qweight", "I32", {words, m.n}, raw(qweight)},
          {module + ".qzeros", "I32", {m.groups, (m.n + per_word - 1) / per_word}, raw(qzeros)},
          {module + ".scales", "F16", {m.groups, m.n}, raw(to_f16(scales))},
          {module + ".g_idx", "I32", {m.k}, raw(m.row_of_k)}};
}

inline std::vector<TestTensor> awq_tensors(const std::string& module, IntMatrix m) {
  const std::vector<int> lane = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto qweight = pack_words(
      m.k, m.n, 4, [&](std::int64_t k, std::int64_t n) { return m.code(n, k); }, lane);
  const auto qzeros = pack_words(
      m.groups, m.n, 4, [&](std::int64_t j, std::int64_t n) { return m.zero_at(n, j); }, lane);
  std::vector<float> scales;
  for (std::int64_t j = 0; j < m.groups; ++j) {
    for (std::int64_t n = 0; n < m.n; ++n) scales.push_back(m.scale_at(n, j));
  }
  return {{module + ".qweight", "I32", {m.k, m.n / 8}, raw(qweight)},
          {module + ".qzeros", "I32", {m.groups, m.n / 8}, raw(qzeros)},
          {module + ".scales", "F16", {m.groups, m.n}, raw(to_f16(scales))}};
}

// compressed-tensors pack-quantized with packed zero points and a g_idx; drop() what the configuration does not know.
inline std::vector<TestTensor> ct_packed_tensors(const std::string& module, IntMatrix m) {
  const std::int64_t per_word = 32 / m.bits;
  const auto packed = pack_words(m.n, m.k, m.bits, [&](std::int64_t n, std::int64_t k) { return m.code(n, k); });
  const std::int64_t zero_rows = (m.n + per_word - 1) / per_word;
  std::vector<std::uint32_t> zeros(static_cast<std::size_t>(zero_rows * m.groups));
  for (std::int64_t n = 0; n < m.n; ++n) {
    for (std::int64_t j = 0; j < m.groups; ++j) {
      zeros[static_cast<std::size_t>(n / per_word * m.groups + j)] |= static_cast<std::uint32_t>(m.zero_at(n, j))
                                                                      << (m.bits * (n % per_word));
    }
  }
  return {{module + ".weight_packed", "I32", {m.n, (m.k + per_word - 1) / per_word}, raw(packed)},
          {module + ".weight_scale", "F16", {m.n, m.groups}, raw(to_f16(m.scale))},
          {module + ".weight_zero_point", "I32", {zero_rows, m.groups}, raw(zeros)},
          {module + ".weight_shape", "I64", {2}, raw(std::vector<std::int64_t>{m.n, m.k})},
          {module + ".weight_g_idx", "I32", {m.k}, raw(m.row_of_k)}};
}

inline TestTensor& find(std::vector<TestTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TestTensor& t) { return t.name.ends_with(name); });
  if (found == tensors.end()) ADD_FAILURE() << "no tensor " << name;
  return *found;
}
inline void drop(std::vector<TestTensor>& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const TestTensor& t) { return t.name.ends_with(name); });
}
inline void append(std::vector<TestTensor>& tensors, const std::vector<TestTensor>& more) {
  tensors.insert(tensors.end(), more.begin(), more.end());
}
inline TestTensor plain(const std::string& module, std::int64_t n, std::int64_t k) {
  return {module + ".weight", "BF16", {n, k}, std::string(static_cast<std::size_t>(2 * n * k), '\0')};
}

// A checkpoint folder: config.json with the given quantization object, and model.safetensors.
class ModelFolder {
 public:
  ModelFolder(const std::string& quantization, const std::vector<TestTensor>& tensors) {
    write_config("config.json", "{\"model_type\":\"llama\",\"quantization_config\":" + quantization + "}");
    temp_.write("model.safetensors", safetensors(tensors));
  }
  void write_config(const std::string& name, const std::string& text) const { temp_.write(name, text); }
  const std::string& path() const { return temp_.root(); }

  // Opens and loads everything.
  Status status(const OpenOptions& options = {}) const {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path(), options);
    if (!checkpoint.ok()) return checkpoint.status();
    for (std::size_t i = 0; i < checkpoint->layers().size(); ++i) {
      for (std::int64_t e = 0; e < std::max<std::int64_t>(1, checkpoint->layers()[i].experts); ++e) {
        if (const auto tensor = checkpoint->load(i, e); !tensor.ok()) return tensor.status();
        if (const auto bias = checkpoint->load_bias(i, e); !bias.ok()) return bias.status();
      }
    }
    return {};
  }

 private:
  TempFolder temp_;
};

inline void expect_refused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(status.code() == Code::malformed || status.code() == Code::unsupported) << status.message();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << "no '" << word << "' in: " << status.message();
  }
}

// Loads layer `index` and compares every value with `value(n, k)`, exactly.
inline void expect_values(const std::string& path, std::size_t index, std::int64_t expert,
                          const std::function<float(std::int64_t, std::int64_t)>& value, const OpenOptions& options = {}) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path, options);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_LT(index, checkpoint->layers().size());
  const Result<QuantTensor> tensor = checkpoint->load(index, expert);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  std::vector<float> got(static_cast<std::size_t>(tensor->n * tensor->k));
  dequantize(*tensor, 0, tensor->n, got.data(), tensor->k);
  for (std::int64_t n = 0; n < tensor->n; ++n) {
    for (std::int64_t k = 0; k < tensor->k; ++k) {
      ASSERT_EQ(got[static_cast<std::size_t>(n * tensor->k + k)], value(n, k)) << "[" << n << ", " << k << "]";
    }
  }
}

}  // namespace swordfish
