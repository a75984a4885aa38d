// Offsets beyond 32 bits: rows of x and y gigabytes apart, and more than 2^31 elements of x.
//
// The memory is reserved and not committed: pages that nobody writes cost nothing, and reads of them give zeros.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <random>

#include "kernels/targets.h"
#include "kernels/weights.h"

namespace swordfish::test {
namespace {

// Zeros, of which only what is written takes memory.
template <class T>
class Sparse {
 public:
  explicit Sparse(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<T*>(at);
  }
  ~Sparse() {
    if (data_) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_ = nullptr;
};

std::vector<std::uint16_t> random_rows(std::int64_t rows, std::int64_t k) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(rows * k));
  for (auto& v : x) v = to_bits(DType::bf16, normal(random));
  return x;
}

// y = x·Wᵀ into fp32 rows `ldy` apart.
void multiply(Context& context, const Weight& w, std::int64_t m, const char* kernel, const std::uint16_t* x, std::int64_t ldx,
              float* y, std::int64_t ldy) {
  Problem p;
  p.weight = &w.packed.view;
  p.m = m;
  p.y_type = DType::f32;
  p.threads = context.threads();
  const auto planned = plan(p, {kernel});
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  Buffer workspace(planned->workspace);
  ASSERT_TRUE(workspace_init(*planned, p.device, workspace.data(), workspace.size()).ok());
  RunArgs a;
  a.x = x;
  a.ldx = ldx;
  a.y = y;
  a.ldy = ldy;
  a.workspace = workspace.data();
  a.workspace_size = planned->workspace;
  const Status status = run(context, p, *planned, a);
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST(Offsets, RowsGigabytesApart) {
  Shape s;
  s.part_n = {70};
  const Weight w(s, 21);
  const std::int64_t k = w.k(), n = w.n(), far = std::int64_t{1} << 30;  // row 2 is 2^31 elements away
  const std::int64_t m = 5;
  const Sparse<std::uint16_t> x(m * far);
  const Sparse<float> y(m * far);
  if (!x.data() || !y.data()) GTEST_SKIP() << "this machine does not let a process reserve 30 GiB of addresses";
  const auto rows = random_rows(m, k);
  for (std::int64_t i = 0; i < m; ++i) std::copy_n(rows.begin() + i * k, k, x.data() + i * far);
  Context context(2);
  for_each_target([&](std::int64_t) {
    for (const char* kernel : {"cpu_decode", "cpu_gemm", "reference"}) {
      std::vector<float> near(static_cast<std::size_t>(m * n));
      ASSERT_NO_FATAL_FAILURE(multiply(context, w, m, kernel, rows.data(), k, near.data(), n));
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(y.data() + i * far, n, -7.0f);
      ASSERT_NO_FATAL_FAILURE(multiply(context, w, m, kernel, x.data(), far, y.data(), far));
      for (std::int64_t i = 0; i < m * n; ++i)
        ASSERT_EQ(y.data()[i / n * far + i % n], near[static_cast<std::size_t>(i)]) << kernel << " element " << i;
    }
  });
}

TEST(Offsets, MoreThanTwoToThe31ElementsOfX) {
  if (!std::getenv("SWORDFISH_LONG_TESTS"))
    GTEST_SKIP() << "3·10^11 operations: scripts/test --full runs it (SWORDFISH_LONG_TESTS=1)";
  Shape s;
  s.part_n = {8};
  s.k = 32768;
  const Weight w(s, 22);
  const std::int64_t m = 65600, k = w.k(), n = w.n();
  ASSERT_GT(m * k, std::int64_t{1} << 31);
  const Sparse<std::uint16_t> x(m * k);
  if (!x.data()) GTEST_SKIP() << "this machine does not let a process reserve 4 GiB of addresses";
  const std::vector<std::int64_t> filled = {0, 17, 32768, 65535, 65536, m - 1};
  const auto count = static_cast<std::int64_t>(filled.size());
  const auto rows = random_rows(count, k);
  for (std::int64_t i = 0; i < count; ++i) std::copy_n(rows.begin() + i * k, k, x.data() + filled[static_cast<std::size_t>(i)] * k);
  Context context(0);
  std::vector<float> few(static_cast<std::size_t>(count * n)), y(static_cast<std::size_t>(m * n), -7.0f);
  ASSERT_NO_FATAL_FAILURE(multiply(context, w, count, "cpu_gemm", rows.data(), k, few.data(), n));
  ASSERT_NO_FATAL_FAILURE(multiply(context, w, m, "", x.data(), k, y.data(), n));
  std::size_t next = 0;
  for (std::int64_t row = 0; row < m; ++row) {
    const bool is_filled = next < filled.size() && filled[next] == row;
    for (std::int64_t i = 0; i < n; ++i) {
      const float expected = is_filled ? few[next * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)] : 0.0f;
      ASSERT_EQ(y[static_cast<std::size_t>(row * n + i)], expected) << "row " << row;
    }
    next += is_filled;
  }
}

}  // namespace
}  // namespace swordfish::test
