// Checks across the layers of one checkpoint, after a format reader has listed them: parts of fused modules, experts of a layer,
// modules that are there twice (formats.md section 9, rows 30, 33 and 42).
#pragma once

#include <vector>

#include "formats/format.h"

namespace swordfish {

// Fills fused_into and fused_index of every layer whose parts are all there and can be packed as one. GGUF (config null): parts
// that differ stay separate. Elsewhere parts that differ in scheme, bits, group size or symmetry, or of which only some are
// quantized, are refused (row 30); only a part that compressed-tensors ignores by name may be plain, and the others stay separate.
Status link_fused(const Container& container, const Config* config, std::vector<FormatLayer>& layers);
// Row 42: numbered experts without gaps, with equal shapes and quantization, as many as the configuration says, stacked or not.
Status check_experts(const Container& container, const Config* config, const std::vector<FormatLayer>& layers);
// Row 33: a plain `<module>.weight` beside a quantized module that does not use it.
Status check_doubles(const Container& container, const std::vector<FormatLayer>& layers);

}  // namespace swordfish
