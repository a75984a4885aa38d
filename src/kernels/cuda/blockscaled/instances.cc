// The list of block-scaled GEMMs in this build: the families that cmake/blockscaled.cmake compiled.
#include <vector>

#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

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
    add(SWORDFISH_TCGEN05_ARCHS, {tcgen05_nvfp4_bf16(), tcgen05_nvfp4_f16(), tcgen05_mxfp4_bf16(), tcgen05_grouped_nvfp4_bf16(),
                                  tcgen05_grouped_mxfp4_bf16()});
#endif
#ifdef SWORDFISH_WARP_ARCHS
    add(SWORDFISH_WARP_ARCHS,
        {warp_nvfp4_bf16(), warp_nvfp4_f16(), warp_mxfp4_bf16(), warp_grouped_nvfp4_bf16(), warp_grouped_mxfp4_bf16()});
#endif
    return list;
  }();
  return all;
}

}  // namespace swordfish::blockscaled
