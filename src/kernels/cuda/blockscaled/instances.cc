// The list of block-scaled GEMMs in this build: the families that cmake/blockscaled.cmake compiled.
#include <algorithm>
#include <charconv>
#include <vector>

#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

bool has_code(std::string_view targets, int arch) {
  while (!targets.empty()) {
    const std::string_view one = targets.substr(0, targets.find(' '));
    int target = 0;
    std::from_chars(one.data(), one.data() + one.size(), target);
    if (target == arch || (one.ends_with('f') && target / 10 == arch / 10 && target < arch)) return true;
    targets.remove_prefix(std::min(one.size() + 1, targets.size()));
  }
  return false;
}

std::span<const Instance> instances() {
  static const std::vector<Instance> all = [] {
    std::vector<Instance> list;
    [[maybe_unused]] const auto add = [&](std::string_view archs, std::initializer_list<Instance> family) {
      for (Instance instance : family) {
        instance.archs = archs;
        list.push_back(instance);
      }
    };
#ifdef SWORDFISH_TCGEN05_ARCHS
    add(SWORDFISH_TCGEN05_ARCHS, {tcgen05_nvfp4_bf16(), tcgen05_nvfp4_f16(), tcgen05_mxfp4_bf16(), tcgen05_mxfp4_f16(),
                                  tcgen05_grouped_nvfp4_bf16(), tcgen05_grouped_mxfp4_bf16()});
#endif
#ifdef SWORDFISH_WARP_ARCHS
    add(SWORDFISH_WARP_ARCHS, {warp_nvfp4_bf16(), warp_nvfp4_f16(), warp_mxfp4_bf16(), warp_mxfp4_f16(), warp_grouped_nvfp4_bf16(),
                               warp_grouped_mxfp4_bf16()});
#endif
    return list;
  }();
  return all;
}

}  // namespace swordfish::blockscaled
