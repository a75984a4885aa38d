// The C ABI: packing tensors that lie in a caller's arrays.
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"

using namespace swordfish;
using namespace swordfish::api;

namespace {

// Codes in a caller's array, read while the call lasts.
class CallersCodes : public CodeSource {
 public:
  CallersCodes(const std::uint8_t* codes, std::int64_t row_stride) : codes_(codes), row_stride_(row_stride) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + static_cast<std::size_t>(i) * stride, codes_ + (n0 + i) * row_stride_ + k0, static_cast<std::size_t>(k));
  }

 private:
  const std::uint8_t* codes_;
  std::int64_t row_stride_;
};

Result<Plane> plane_of(const void* data, sf_dtype type, std::int64_t stride_n, std::int64_t stride_row,
                       std::initializer_list<sf_dtype> allowed, const char* what) {
  if (std::find(allowed.begin(), allowed.end(), type) == allowed.end())
    return invalid_argument("{} of a tensor cannot have dtype {}", what, static_cast<int>(type));
  SF_ASSIGN(const DType element, dtype(type));
  const std::int64_t bytes = bits(element) / 8;
  return Plane{element, static_cast<const std::byte*>(data), stride_n * bytes, stride_row * bytes};
}

Result<QuantTensor> tensor_of(const sf_tensor& t) {
  constexpr std::int64_t limit = std::int64_t{1} << 40;
  if (t.code < SF_INT4 || t.code > SF_FP4)
    return invalid_argument("code type {} is none of SF_INT4, SF_INT8, SF_FP4", static_cast<int>(t.code));
  if (t.n < 1 || t.k < 1 || t.n > limit || t.k > limit || t.rows < 1 || t.rows > t.k || t.group_size < 1)
    return invalid_argument("a tensor of {} x {} with {} scale rows and groups of {}: N and K must be 1 to 2^40, rows 1 to K", t.n,
                            t.k, t.rows, t.group_size);
  SF_TRY(not_null("codes, scales of a tensor", t.codes, t.scales));
  if (t.codes_stride < t.k) return invalid_argument("codes_stride {} is less than k {}", t.codes_stride, t.k);
  if (t.zeros && t.offsets) return invalid_argument("a tensor has zeros and offsets: it may have one of the two");
  if (!t.row_of_k && (t.k - 1) / t.group_size >= t.rows)
    return invalid_argument("{} scale rows are too few for k = {} in groups of {}", t.rows, t.k, t.group_size);
  QuantTensor q;
  q.name = t.name ? t.name : "";
  q.n = t.n;
  q.k = t.k;
  q.code = static_cast<CodeType>(t.code);
  if (t.code != SF_INT8)
    for (std::int64_t n = 0; n < t.n; ++n)
      if (const std::uint8_t* row = t.codes + n * t.codes_stride; *std::max_element(row, row + t.k) > 15)
        return invalid_argument("row {} of the codes holds a value above 15: a 4-bit code takes a byte, and no more of it", n);
  q.codes = std::make_shared<CallersCodes>(t.codes, t.codes_stride);
  q.group_size = t.group_size;
  q.rows = t.rows;
  if (t.row_of_k) {
    q.row_of_k.assign(t.row_of_k, t.row_of_k + t.k);
    if (const auto [least, most] = std::minmax_element(q.row_of_k.begin(), q.row_of_k.end()); *least < 0 || *most >= t.rows)
      return invalid_argument("row_of_k goes from {} to {}, and there are {} scale rows", *least, *most, t.rows);
  }
  SF_ASSIGN(q.scales, plane_of(t.scales, t.scale_type, t.scale_stride_n, t.scale_stride_row,
                               {SF_BF16, SF_F16, SF_F32, SF_F8_E4M3, SF_F8_E8M0}, "scales"));
  q.zero = t.offsets ? 0 : default_zero(q.code);
  if (t.zeros) {
    SF_ASSIGN(q.zeros, plane_of(t.zeros, t.zero_type, t.zero_stride_n, t.zero_stride_row, {SF_U8, SF_I16}, "zeros"));
  }
  if (t.offsets) {
    SF_ASSIGN(q.offsets,
              plane_of(t.offsets, t.offset_type, t.offset_stride_n, t.offset_stride_row, {SF_BF16, SF_F16, SF_F32}, "offsets"));
  }
  q.global.value = t.global == 0 ? 1.0f : t.global;
  q.global.op = t.global_divides ? Global::Op::divide : Global::Op::multiply;
  return q;
}

}  // namespace

extern "C" {

sf_status sf_weight_pack_tensors(const sf_tensor* tensors, size_t count, int threads, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("tensors, out", tensors, out));
    if (count == 0) return invalid_argument("no tensor was given to pack");
    SF_TRY(thread_count(threads));
    std::vector<QuantTensor> parts;
    std::string packed_name;
    const std::size_t step = tensors->struct_size;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* at = reinterpret_cast<const sf_tensor*>(reinterpret_cast<const unsigned char*>(tensors) + i * step);
      if (at->struct_size != step)
        return invalid_argument("tensor {} has struct_size {}, tensor 0 has {}", i, at->struct_size, step);
      sf_tensor t;
      SF_TRY(read_struct(at, t));
      SF_ASSIGN(QuantTensor part, tensor_of(t));
      packed_name += (i ? "|" : "") + part.name;
      parts.push_back(std::move(part));
    }
    SF_ASSIGN(PackedWeight weight, pack(parts, std::move(packed_name), threads));
    *out = new sf_weight{std::move(weight), false, {}};
    return {};
  });
}

}  // extern "C"
