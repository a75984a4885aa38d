// SF_TRY: return early with the Status of a failed call.
#pragma once

#include "swordfish/status.h"

// SF_TRY(expr): expr gives a Status; returns it from the enclosing function unless it is ok.
#define SF_TRY(...)                                                                          \
  do {                                                                                       \
    if (::swordfish::Status sf_status_ = (__VA_ARGS__); !sf_status_.ok()) return sf_status_; \
  } while (0)

// SF_ASSIGN(auto x, expr): expr gives a Result<T>; declares x from its value, or returns its Status.
#define SF_ASSIGN(decl, ...) SF_ASSIGN_(SF_CAT_(sf_result_, __LINE__), decl, __VA_ARGS__)
#define SF_ASSIGN_(tmp, decl, ...)    \
  auto tmp = (__VA_ARGS__);           \
  if (!tmp.ok()) return tmp.status(); \
  decl = std::move(tmp).value()
#define SF_CAT_(a, b) SF_CAT2_(a, b)
#define SF_CAT2_(a, b) a##b
