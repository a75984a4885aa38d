// GPTQ zero points. v1 writers subtracted one before packing; a true zero point of 0 then wraps to all ones, and from there on
// writers and readers differ:
//
//   true zeros 8,0,8,8,8,8,8,8   lane by lane   0x777777F7     read back by (stored + 1) & 15
//                                whole words    0x777776F7     the borrow reaches lane 2; read back by word + 0x11111111
//                                original       all lanes above the 0 are ones: lost
//
// All of them agree as long as no stored lane is all ones.
#include "formats/gptq_zeros.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "formats/word_codes.h"

namespace swordfish {
namespace {

// Words of `per_word` lanes along n in which some lane is `mask`.
std::int64_t count_words(const std::vector<std::uint8_t>& lanes, std::int64_t n, std::int64_t per_word, std::uint8_t mask) {
  std::int64_t count = 0;
  const auto size = static_cast<std::int64_t>(lanes.size());
  for (std::int64_t row = 0; row < size; row += n) {
    for (std::int64_t i = 0; i < n; i += per_word) {
      const auto begin = lanes.begin() + row + i, end = lanes.begin() + row + std::min(i + per_word, n);
      if (std::find(begin, end, mask) != end) ++count;
    }
  }
  return count;
}

}  // namespace

Result<GptqZeros> decode_gptq_zeros(const Container& container, const Tensor& tensor, const std::byte* data, std::int64_t groups,
                                    std::int64_t n, int bits, const GptqZeroRule& rule) {
  const std::int64_t per_word = 32 / bits, words = (n + per_word - 1) / per_word;
  const auto mask = static_cast<std::uint8_t>((1 << bits) - 1);
  const int middle = 1 << (bits - 1);
  const int stored_middle = rule.version == GptqVersion::v1 ? middle - 1 : middle;
  const auto count = static_cast<std::size_t>(groups * n);
  std::vector<std::uint8_t> lanes(count);
  unpack_words(data, groups, words, n, bits, nullptr, 0, lanes.data());

  const auto differs = [&](int value) {
    const auto at = std::find_if(lanes.begin(), lanes.end(), [&](std::uint8_t lane) { return lane != value; });
    return static_cast<std::size_t>(at - lanes.begin());  // count: none does
  };
  GptqZeros zeros;
  zeros.constant = middle;
  if (rule.sym.value_or(false)) {
    // The value of the other version is accepted, since the true zero is known; a mixture of both is not.
    const bool known = lanes[0] == middle || lanes[0] == middle - 1;
    const std::size_t at = known ? differs(lanes[0]) : 0;
    if (known && at == count) {
      if (lanes[0] != stored_middle) {
        zeros.note =
            fmt::format("tensor '{}': the stored zero points are {}, which {} would write for {}; sym is true, so {} is meant",
                        printable(tensor.name), lanes[0], rule.version == GptqVersion::v1 ? "gptq_v2" : "gptq v1", middle, middle);
      }
      return zeros;
    }
    return malformed("{}: tensor '{}': sym is true, but the stored zero point at index {} is {}; expected {} throughout ({})",
                     container.path_of(tensor), printable(tensor.name), at, lanes[at], known ? int{lanes[0]} : stored_middle,
                     rule.version == GptqVersion::v1 ? "checkpoint_format gptq" : "checkpoint_format gptq_v2");
  }
  if (!rule.sym && differs(stored_middle) == count) return zeros;

  const auto store = [&](const auto& value_of) {
    zeros.plane = Buffer(count);
    for (std::size_t i = 0; i < count; ++i) zeros.plane.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value_of(lanes[i]));
  };
  if (rule.version == GptqVersion::v2) {
    store([](int lane) { return lane; });
    return zeros;
  }
  const auto ones = std::find(lanes.begin(), lanes.end(), mask);
  if (ones == lanes.end()) {
    store([](int lane) { return lane + 1; });
    return zeros;
  }
  const GptqV1Zeros reading = rule.word_wise ? GptqV1Zeros::word : rule.ambiguous;
  switch (reading) {
    case GptqV1Zeros::refuse:
      return unsupported(
          "{}: tensor '{}': ambiguous v1 zero point: {} words hold a lane of all ones (first at index {}, value {}), which "
          "readers take for different zero points; --gptq-v1-zeros lane, unmasked or word chooses one",
          container.path_of(tensor), printable(tensor.name), count_words(lanes, n, per_word, mask), ones - lanes.begin(), mask);
    case GptqV1Zeros::lane: store([mask](int lane) { return (lane + 1) & mask; }); break;
    case GptqV1Zeros::unmasked:
      if (bits == 4) {
        store([](int lane) { return lane + 1; });
        break;
      }
      zeros.type = DType::i16;
      zeros.plane = Buffer(2 * count);
      for (std::size_t i = 0; i < count; ++i) zeros.plane.as<std::int16_t>()[i] = static_cast<std::int16_t>(lanes[i] + 1);
      break;
    case GptqV1Zeros::word:
      zeros.plane = Buffer(count);
      unpack_words(data, groups, words, n, bits, nullptr, bits == 4 ? 0x11111111u : 0x01010101u, zeros.plane.as<std::uint8_t>());
      break;
  }
  return zeros;
}

}  // namespace swordfish
