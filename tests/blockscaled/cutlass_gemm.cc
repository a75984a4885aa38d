// cutlass_gemm: the strides and layouts of kernels/cuda/blockscaled/cutlass/arguments.h, evaluated at every coordinate.
#include "blockscaled/cutlass_gemm.h"

#include "kernels/cuda/blockscaled/cutlass/arguments.h"
#include "quant/numeric.h"

namespace swordfish::test {
namespace {

using blockscaled::Gemm;

// The value of element (row, k): its code through the stride, its scale through the layout.
template <int block, class Stride, class Layout>
double element(const std::uint8_t* codes, const Stride& stride, const std::uint8_t* scales, const Layout& layout, int row, int k) {
  const auto matrix = cute::make_layout(cute::make_shape(row + 1, k + 1, 1), stride);
  const auto at = static_cast<std::int64_t>(matrix(row, k, 0));
  const int code = codes[at / 2] >> (at % 2 * 4) & 15;
  const std::uint8_t scale = scales[layout(row, k, 0)];
  return static_cast<double>(kE2m1[code]) * static_cast<double>(block == 16 ? e4m3_to_f32(scale) : e8m0_to_f32(scale));
}

template <int block, class Stride>
void run(const Gemm& g, const void* y0, std::vector<float>& y) {
  const auto dx = blockscaled::stride_x<Stride>(g), dw = blockscaled::stride_w<Stride>(g), dy = blockscaled::stride_y<Stride>(g);
  const auto sfa = blockscaled::layout_x_scales<block>(g);
  const auto sfb = blockscaled::layout_w_scales<block>(g);
  const auto to = cute::make_layout(cute::make_shape(g.m, g.n, 1), dy);
  const auto m = static_cast<std::size_t>(g.m), n = static_cast<std::size_t>(g.n), k = static_cast<std::size_t>(g.k);
  std::vector<double> x(m * k), w(n * k);
  for (int i = 0; i < g.m; ++i)
    for (int j = 0; j < g.k; ++j)
      x[static_cast<std::size_t>(i) * k + static_cast<std::size_t>(j)] = element<block>(g.x_codes, dx, g.x_scales, sfa, i, j);
  for (int i = 0; i < g.n; ++i)
    for (int j = 0; j < g.k; ++j)
      w[static_cast<std::size_t>(i) * k + static_cast<std::size_t>(j)] = element<block>(g.w_codes, dw, g.w_scales, sfb, i, j);
  const std::int64_t first = static_cast<const std::uint16_t*>(g.y) - static_cast<const std::uint16_t*>(y0);
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      double sum = 0;
      for (std::size_t c = 0; c < k; ++c) sum += x[static_cast<std::size_t>(i) * k + c] * w[static_cast<std::size_t>(j) * k + c];
      const double value = static_cast<double>(*g.alpha) * sum + (g.bias ? static_cast<double>(g.bias[j]) : 0.0);
      y.at(static_cast<std::size_t>(first + static_cast<std::int64_t>(to(i, j, 0)))) = static_cast<float>(value);
    }
  }
}

}  // namespace

void cutlass_gemm(const Gemm& gemm, int block, bool grouped, const void* y0, std::vector<float>& y) {
  using Dense = cute::Stride<std::int64_t, cute::Int<1>, std::int64_t>;
  using Grouped = cute::Stride<std::int64_t, cute::Int<1>, cute::Int<0>>;
  const auto f = block == 16 ? (grouped ? run<16, Grouped> : run<16, Dense>) : (grouped ? run<32, Grouped> : run<32, Dense>);
  f(gemm, y0, y);
}

}  // namespace swordfish::test
