// Runs a test body once per Highway target that this machine can run and the kernels are built for.
#pragma once

#include "base/simd_targets.h"

#include <gtest/gtest.h>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace swordfish::test {

template <class F>
void for_each_target(F body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SCALAR) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(target);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace swordfish::test
