// Status and Result: how every fallible call of Swordfish reports what went wrong.
//
// A message says what was asked, what is supported and what to do; for files it names the file, the tensor and, where there is
// one, the byte offset or flat index. The library never aborts, prints, or throws across the C ABI.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace [[gnu::visibility("default")]] swordfish {

// The numbers are part of the C ABI (sf_status in swordfish.h).
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  // the caller's mistake: a null pointer, a negative M, an unknown option
  malformed = 2,         // a file breaks its own format
  unsupported = 3,       // a well-formed input of a scheme, type or shape that Swordfish does not read
  io = 4,                // the operating system refused or failed a file operation
  unavailable = 5,       // this machine or build cannot do it: no such device, no kernel that can run
  out_of_memory = 6,
  cancelled = 7,
  internal = 8,  // a defect of Swordfish
};

// "malformed", "unsupported", ...
constexpr std::string_view name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::malformed: return "malformed";
    case Code::unsupported: return "unsupported";
    case Code::io: return "io";
    case Code::unavailable: return "unavailable";
    case Code::out_of_memory: return "out_of_memory";
    case Code::cancelled: return "cancelled";
    case Code::internal: return "internal";
  }
  return "unknown";
}

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// Either a T or the Status that says why there is none. Make one from a T or from a failed Status, never from an ok one. value(), *
// and -> are for results that are ok(): otherwise they throw std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace swordfish
