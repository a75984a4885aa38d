// The io_uring engine: one submission a read. The memory is not registered: that would touch all of it at once, and pinning the few
// huge pages of a read costs nothing beside.
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "io/read_engine.h"

#if SWORDFISH_URING
#include <liburing.h>
#endif

namespace swordfish::io {

#if SWORDFISH_URING
namespace {

class UringEngine final : public ReadEngine {
 public:
  explicit UringEngine(io_uring ring) : ring_(ring) {}
  ~UringEngine() override { io_uring_queue_exit(&ring_); }
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  std::string_view name() const override { return "io_uring"; }

  Status submit(const ReadRequest& request) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return {Code::internal, "io_uring: more reads submitted than its depth"};
    io_uring_prep_read(entry, request.fd, request.to, static_cast<unsigned>(request.size), request.offset);
    io_uring_sqe_set_data64(entry, request.tag);
    while (true) {
      const int got = io_uring_submit(&ring_);
      if (got >= 0) return {};
      if (got != -EINTR && got != -EAGAIN) return io_error("io_uring: cannot submit a read: {}", errno_text(-got));
    }
  }

  Status wait(std::vector<ReadCompletion>& done) override {
    io_uring_cqe* entry = nullptr;
    while (true) {
      const int got = io_uring_wait_cqe(&ring_, &entry);
      if (got == 0) break;
      if (got != -EINTR && got != -EAGAIN) return io_error("io_uring: cannot wait for a read: {}", errno_text(-got));
    }
    while (entry != nullptr) {
      done.push_back({io_uring_cqe_get_data64(entry), entry->res});
      io_uring_cqe_seen(&ring_, entry);
      if (io_uring_peek_cqe(&ring_, &entry) != 0) entry = nullptr;
    }
    return {};
  }

 private:
  io_uring ring_;
};

}  // namespace

Result<std::unique_ptr<ReadEngine>> make_uring_engine(unsigned depth) {
  io_uring ring{};
  const int error = io_uring_queue_init(depth, &ring, 0);
  if (error != 0) return unavailable("io_uring: {}", errno_text(-error));
  return std::unique_ptr<ReadEngine>(std::make_unique<UringEngine>(ring));
}

#else

Result<std::unique_ptr<ReadEngine>> make_uring_engine(unsigned) { return unavailable("io_uring: this build has no liburing"); }

#endif

}  // namespace swordfish::io
