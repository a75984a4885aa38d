// What a compressed-tensors configuration says about each module: config groups, targets, ignore list (formats.md 4.1, 4.2).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"
#include "formats/patterns.h"

namespace swordfish {

enum class CtFormat : std::uint8_t {
  pack,     // pack-quantized: integers of 4 or 8 bits in words
  integer,  // int-quantized, naive-quantized: integers, one a byte
  nvfp4,    // nvfp4-pack-quantized
  mxfp4,    // mxfp4-pack-quantized
};
enum class CtStrategy : std::uint8_t { tensor, channel, group };

struct CtScheme {
  CtFormat format = CtFormat::pack;
  std::string format_name;  // as the file spells it
  int bits = 4;
  bool symmetric = true;
  CtStrategy strategy = CtStrategy::group;
  std::int64_t group_size = 0;  // of strategy group
  bool act_order = false;       // a weight_g_idx tensor exists
  friend bool operator==(const CtScheme&, const CtScheme&) = default;
};

class CtConfig {
 public:
  // Rows 23-25, 27, 28 and 31.
  static Result<CtConfig> read(const Config& config);

  struct Match {
    const CtScheme* scheme = nullptr;  // null: no group targets the module
    bool by_name = false;              // by its path or a regex, not by the class "Linear"
    std::string where;                 // the group: "config.json: quantization_config: config_groups.group_0"
  };
  // Exact paths go before regexes, regexes before the class. Row 29. The ignore list is not looked at.
  Result<Match> find(std::string_view module) const;
  Result<bool> ignores(std::string_view module) const;

 private:
  // A list of exact paths, "re:" patterns and class names. Of these only "Linear" says anything about a checkpoint.
  struct Targets {
    std::set<std::string, std::less<>> exact;
    std::vector<Pattern> patterns;
    bool linear = false;
    static Result<Targets> read(const simdjson::dom::element& list, std::string_view key, const std::string& where);
  };
  struct Group {
    std::string where;
    CtScheme scheme;
    Targets targets;
  };
  Status read_group(const simdjson::dom::key_value_pair& field, const std::string& where, std::string_view format);
  std::vector<Group> groups_;
  Targets ignore_;
};

}  // namespace swordfish
