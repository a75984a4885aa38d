// The stand-in for NVIDIA's cuFile in tests: what it was asked, and what it is to do wrong.
#pragma once

#include <atomic>
#include <cstdint>

struct FakeCuFile {
  std::atomic<int> drivers{0}, files{0}, open_files{0}, buffers{0}, open_buffers{0}, reads{0}, unregistered{0};
  std::atomic<std::uint64_t> bytes{0};
  // What fails: the driver, the n-th file, every buffer, every read from the n-th on (with what it returns); n from 1, 0: none.
  int failing_driver = 0, failing_file = 0, failing_buffers = 0, failing_read = 0;
  long read_result = -1;
  bool short_reads = false;  // no more than 1,000 bytes at once
  bool slow_reads = false;   // 5 ms each
  int corrupt_read = 0;      // the n-th brings a wrong byte
};
