// One-line constructors of a failed Status with an fmt-formatted message.
#pragma once

#include <fmt/format.h>

#include "swordfish/status.h"

namespace swordfish {

template <class... A>
Status invalid_argument(fmt::format_string<A...> text, A&&... args) {
  return {Code::invalid_argument, fmt::format(text, std::forward<A>(args)...)};
}
template <class... A>
Status malformed(fmt::format_string<A...> text, A&&... args) {
  return {Code::malformed, fmt::format(text, std::forward<A>(args)...)};
}
template <class... A>
Status unsupported(fmt::format_string<A...> text, A&&... args) {
  return {Code::unsupported, fmt::format(text, std::forward<A>(args)...)};
}
template <class... A>
Status io_error(fmt::format_string<A...> text, A&&... args) {
  return {Code::io, fmt::format(text, std::forward<A>(args)...)};
}
template <class... A>
Status unavailable(fmt::format_string<A...> text, A&&... args) {
  return {Code::unavailable, fmt::format(text, std::forward<A>(args)...)};
}

}  // namespace swordfish
