// What a GPTQ-style configuration (GPTQ, auto-round, GPTQModel's AWQ) says about each module (formats.md 2.1, 2.5).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/format.h"
#include "formats/patterns.h"

namespace swordfish {

struct GptqParams {
  std::int64_t bits = 4;
  std::int64_t group_size = -1;  // -1: one group spans K
  std::optional<bool> sym;       // absent: the stored zero points decide
  bool act_order = false;        // desc_act; the contents of g_idx decide
  bool excluded = false;         // a negative rule of `dynamic` took the module
  bool named = false;            // a positive rule did
  std::string source;            // what said so, for messages: "config.json: quantization_config: dynamic '...'"
};

class GptqRules {
 public:
  // Reads bits, group_size, sym, desc_act, dynamic (GPTQ) and extra_config (auto-round); checks what they state for the model.
  // Bits must be in `bits` (rows 24, 25).
  static Result<GptqRules> read(const Config& config, const std::vector<std::int64_t>& bits);
  // The values for one module. Every value it returns has passed rows 24 and 25.
  Result<GptqParams> of(std::string_view module) const;
  // Row 33. A plain float matrix `<module>.weight` that a positive rule names, or whose likes (same path but for numbers) are
  // quantized while nothing excludes it. `modules`: the quantized ones. `excluded(module)`: what else the format leaves plain.
  Status check_plain(const Container& container, const std::vector<std::string>& modules,
                     const std::function<bool(std::string_view)>& excluded) const;

 private:
  struct Rule {
    Pattern pattern;
    bool negative;
    GptqParams params;
  };
  GptqParams base_;
  std::vector<Rule> rules_;                                // `dynamic`, in file order; the first that matches wins
  std::vector<std::pair<std::string, GptqParams>> exact_;  // extra_config, by module path
  std::vector<std::string> blocks_;                        // modules_in_block_to_quantize: substrings; empty: all
};

// Refuses keys of the GPTQ family that change the bytes or need more than the weights: pack_dtype, rotation, adapter, Marlin (rows
// 23 and 31).
Status check_gptq_extras(const Config& config);

}  // namespace swordfish
