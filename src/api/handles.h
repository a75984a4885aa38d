// What the files of the C ABI share: handles, versioned structs, and the way from exceptions and Status to sf_status.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "swordfish/checkpoint.h"
#include "swordfish/device.h"
#include "swordfish/gemm.h"
#include "swordfish/pack.h"
#include "swordfish/swordfish.h"

struct sf_checkpoint {
  swordfish::Checkpoint value;
};
struct sf_packed_file {
  swordfish::PackedFile value;
};
struct sf_weight {
  swordfish::PackedWeight value;               // on a GPU: the name alone
  bool described = false;                      // shape only: can be planned for, not run
  std::optional<swordfish::DeviceWeight> gpu;  // set: the weight is on a GPU
  const swordfish::PackedView& view() const { return gpu ? gpu->view() : value.view; }
};
struct sf_context {
  explicit sf_context(int threads) : value(threads) {}
  swordfish::Context value;
};

namespace swordfish::api {

// What sf_last_error() says; of this thread.
std::string& last_error();

inline sf_status report(const Status& status) {
  if (status.ok()) return SF_OK;
  last_error() = status.message();
  return static_cast<sf_status>(status.code());
}

// Where even the memory for a message may be missing.
inline sf_status report_exception(sf_status status, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (...) {
    last_error().clear();
  }
  return status;
}

// Runs a call that returns Status; no exception passes.
template <class F>
sf_status guarded(F&& call) noexcept {
  try {
    return report(call());
  } catch (const std::bad_alloc&) {
    return report_exception(SF_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return report_exception(SF_INTERNAL, e.what());
  } catch (...) {
    return report_exception(SF_INTERNAL, "an unknown exception");
  }
}

// Far above any version of any struct; a larger struct_size is a field that was never set.
inline constexpr std::size_t kMaxStructSize = 4096;

// Copies a caller's versioned struct into the library's version of it: fields the caller does not know are zero.
template <class T>
Status read_struct(const T* from, T& to) {
  std::memset(static_cast<void*>(&to), 0, sizeof to);
  if (from == nullptr) return {};
  const std::size_t size = from->struct_size;
  if (size < sizeof(std::size_t)) return invalid_argument("struct_size is {}: set it to sizeof the struct", size);
  if (size > kMaxStructSize) return invalid_argument("struct_size is {}: set it to sizeof the struct", size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof to && std::any_of(bytes + sizeof to, bytes + size, [](unsigned char b) { return b != 0; }))
    return invalid_argument("struct_size is {} and fields past {} are set: the program needs a newer library", size, sizeof to);
  std::memcpy(static_cast<void*>(&to), from, std::min(size, sizeof to));
  return {};
}

// Writes the library's struct into the caller's, as far as the caller's version goes.
template <class T>
Status write_struct(T from, T* to) {
  if (to == nullptr) return invalid_argument("the output struct is NULL");
  const std::size_t size = to->struct_size;
  if (size < sizeof(std::size_t)) return invalid_argument("struct_size is {}: set it to sizeof the struct", size);
  from.struct_size = size;
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof from));
  return {};
}

template <class... P>
Status not_null(const char* names, P... pointers) {
  const bool all_set = (... && (pointers != nullptr));
  if (!all_set) return invalid_argument("a required pointer is NULL (one of: {})", names);
  return {};
}

// A count of threads, or 0 for all cores.
inline Status thread_count(int threads) {
  if (threads < 0) return invalid_argument("threads is {}: give a count, or 0 for all cores", threads);
  return {};
}

Result<DType> dtype(sf_dtype type);
// Ok for a weight whose planes are in host memory.
Status host_data(const sf_weight& weight);

}  // namespace swordfish::api
