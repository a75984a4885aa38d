// SWORDFISH_ASAN: 1 in a build with AddressSanitizer, else 0. GCC defines a macro for it; clang 16 does not, and answers a
// question.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define SWORDFISH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SWORDFISH_ASAN 1
#endif
#endif
#ifndef SWORDFISH_ASAN
#define SWORDFISH_ASAN 0
#endif
