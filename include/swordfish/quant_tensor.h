// QuantTensor: the canonical quantized matrix, host side, with one meaning for every format.
//
//     w[n,k] = G( scale[n,r(k)] · (code(q[n,k]) − zero[n,r(k)]) + offset[n,r(k)] )
//
// N is output features, K input features. `code` is the identity for integers and the e2m1 table for fp4; `r(k)` is the scale row
// of k; G multiplies or divides by one fp32 value, exactly as stored. Zero points are integers (a plane or one constant); offsets
// are real; a tensor has one of the two, never both. Nothing is copied or rounded on the way from the file: codes are read in
// tiles through CodeSource, and the scale, zero and offset planes are strided views of the stored bytes wherever the file has them.
//
// One QuantTensor is one part. A fused weight (q | k | v, gate | up) is a list of QuantTensors handed to pack() together; each
// keeps its own global.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

enum class CodeType : std::uint8_t {
  int4,  // unsigned 0..15
  int8,  // unsigned 0..255
  fp4,   // e2m1 bits, 0..15: sign, two bits of exponent, one of mantissa
};
std::string_view name(CodeType type);  // "int4", "int8", "fp4"
// The code that stands for 0 when there is no zero plane: 8, 128, 0 (fp4 code 0 is +0).
constexpr int default_zero(CodeType type) { return type == CodeType::int4 ? 8 : type == CodeType::int8 ? 128 : 0; }

// The codes of one matrix in whatever arrangement the file has them. Implementations are immutable and safe to call from several
// threads; they keep the bytes they read alive.
class CodeSource {
 public:
  virtual ~CodeSource() = default;
  // out[i*stride + j] = q[n0+i, k0+j] for i in [0,n), j in [0,k): one byte a code. The range lies inside the matrix.
  // Any range is allowed; packing asks for n ≤ 64 and k a multiple of 64 with k0 a multiple of 64, except at the edges: make that
  // case fast (vectorised), since packing speed is the speed of this function.
  virtual void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
                    std::size_t stride) const = 0;

  // Rows of bytes, each two 4-bit codes: q[n, 2j] in the low nibble of byte j of row n, q[n, 2j+1] in its high one.
  struct StoredRows {
    const std::byte* data = nullptr;  // row 0; null: the codes are arranged in another way
    std::size_t row_bytes = 0;        // from one row to the next
  };
  // A shortcut that read() never needs: packing moves such rows as whole bytes, several times as fast as code by code.
  virtual StoredRows stored_rows() const { return {}; }
};

// A strided view: element (n, r) lies at data + n*stride_n + r*stride_r. Strides in bytes, 0 broadcasts. Elements may be unaligned.
struct Plane {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::int64_t stride_n = 0;
  std::int64_t stride_r = 0;

  explicit operator bool() const { return data != nullptr; }
  const std::byte* at(std::int64_t n, std::int64_t r) const { return data + n * stride_n + r * stride_r; }
};

// The global scale of a part, kept as stored: NVFP4 by ModelOpt multiplies, by compressed-tensors divides.
struct Global {
  enum class Op : std::uint8_t { multiply, divide };
  float value = 1.0f;
  Op op = Op::multiply;
  bool is_one() const { return value == 1.0f; }
  friend bool operator==(const Global&, const Global&) = default;
};

struct QuantTensor {
  std::string name;  // module path, without ".weight"
  std::int64_t n = 0;
  std::int64_t k = 0;
  CodeType code = CodeType::int4;
  std::shared_ptr<const CodeSource> codes;

  std::int64_t group_size = 0;         // r(k) = k / group_size when row_of_k is empty; channelwise: group_size == k
  std::vector<std::int32_t> row_of_k;  // r(k) for each k (act-order, or a slice that starts inside a group); empty: regular
  std::int64_t rows = 0;               // number of scale rows; each r(k) < rows

  Plane scales;   // [n, rows] f16, bf16, f32, f8_e4m3 or f8_e8m0, as stored
  int zero = 8;   // the constant zero point where `zeros` is absent
  Plane zeros;    // [n, rows] u8 or i16 integer zero points, or absent
  Plane offsets;  // [n, rows] f16, bf16 or f32 real offsets, or absent (then `zero` is 0)
  Global global;

  std::string note;  // something a user should know about the stored values, though it is no reason to refuse them; usually empty
  std::vector<std::shared_ptr<const void>> keep_alive;  // what the planes point into

  std::int64_t row(std::int64_t kk) const { return row_of_k.empty() ? kk / group_size : row_of_k[static_cast<std::size_t>(kk)]; }
};

// Rows n0, n0+step, ... (n of them) and columns [k0, k0+k) of a tensor: a view that shares ownership; only row_of_k is copied. A
// slice of K keeps every scale row that it touches (all of them under act-order); one that starts inside a group gets an explicit
// row_of_k.
Result<QuantTensor> slice(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, std::int64_t step, std::int64_t k0,
                          std::int64_t k);

// out[i*ld + j] = w[n0+i, j] for i in [0,n), all k: the exact value of the formula, rounded once to fp32.
void dequantize(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, float* out, std::int64_t ld);
// The same in fp64: exact but for a division by the global, which rounds once.
void dequantize(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, double* out, std::int64_t ld);

}  // namespace swordfish
