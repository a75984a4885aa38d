// Names of code types.
#include "swordfish/quant_tensor.h"

namespace swordfish {

std::string_view name(CodeType type) {
  switch (type) {
    case CodeType::int4: return "int4";
    case CodeType::int8: return "int8";
    case CodeType::fp4: return "fp4";
  }
  return "unknown";
}

}  // namespace swordfish
