// The Highway targets that vector code is built for; included before foreach_target.h.
//
// SSSE3 and the SVE family are left out: every SSSE3 machine of interest has SSE4, and the kernels want vectors of a size that is
// known at compile time (SVE machines run NEON). HWY_SCALAR stays as the baseline of x86-64 and holds empty functions: can_run says
// that such a machine has no vectors, and the reference kernel runs.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
