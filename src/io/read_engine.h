// ReadEngine: reads in flight. One engine per load; one thread talks to it.
//
// Two engines: io_uring, and a few threads with pread where the system refuses io_uring. Neither judges a result: short reads and
// errors go to the caller (io/staging.cc), so that a test can put an engine of its own between the two.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "swordfish/status.h"

namespace swordfish::io {

struct ReadRequest {
  int fd = -1;
  std::uint64_t offset = 0;
  std::size_t size = 0;
  std::byte* to = nullptr;
  std::uint64_t tag = 0;  // comes back in the completion
};
struct ReadCompletion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes, or −errno
};

class ReadEngine {
 public:
  virtual ~ReadEngine() = default;
  virtual std::string_view name() const = 0;
  // Starts a read; never waits for the disk. At most `depth` may be in flight.
  virtual Status submit(const ReadRequest& request) = 0;
  // Waits until a read that was submitted has ended, and adds all that have to `done`. At least one must be in flight.
  virtual Status wait(std::vector<ReadCompletion>& done) = 0;
};

// Fails where io_uring is not to be had.
Result<std::unique_ptr<ReadEngine>> make_uring_engine(unsigned depth);
std::unique_ptr<ReadEngine> make_pread_engine(unsigned threads);

}  // namespace swordfish::io
