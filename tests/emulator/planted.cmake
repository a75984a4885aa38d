# Copies of the real kernels with faults that a test turns on one at a time, in namespace swordfish::planted:
#   cmake -DFROM=src/kernels/cuda/sm80_mma -DTO=folder -P planted.cmake
# A fault is text of the kernel (which must be there exactly once) and what stands in its place; `fault` is a variable of the test.
cmake_minimum_required(VERSION 3.20)

function(plant number original faulty)
  string(FIND "${text}" "${original}" first)
  string(FIND "${text}" "${original}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "planted fault ${number}: \"${original}\" is not exactly once in ${file}")
  endif()
  string(REPLACE "NUMBER" "${number}" faulty "${faulty}")
  string(REPLACE "${original}" "${faulty}" text "${text}")
  set(text "${text}" PARENT_SCOPE)
endfunction()

function(begin name)
  file(READ "${FROM}/${name}" content)
  string(REPLACE "namespace swordfish::mma {" "namespace swordfish::planted {\nusing namespace mma;" content "${content}")
  set(text "${content}" PARENT_SCOPE)
  set(file "${name}" PARENT_SCOPE)
endfunction()

begin(decode.cuh)
# One text, two faults: a dropped wait, and one for a group too few.
plant(1 "ptx::cp_async_wait<kStages - 2>();"
      "if (fault == 2) ptx::cp_async_wait<kStages - 1>(); else if (fault != 1) ptx::cp_async_wait<kStages - 2>();")
plant(3 "        refill = slot;\n" "        if (fault != NUMBER) refill = slot;\n")
plant(4 "        ptx::syncwarp();\n        flushes <<= 4;\n" "        if (fault != NUMBER) ptx::syncwarp();\n        flushes <<= 4;\n")
plant(5 "if (at.k < at.k_end) consume(at, slot);" "if (at.k < at.k_end + (fault == NUMBER)) consume(at, slot);")
plant(6 "refill));\n      ptx::bar_sync(0);" "refill));\n      if (fault != NUMBER) ptx::bar_sync(0);")
plant(7 "ptx::griddep_wait();" "if (fault != NUMBER) ptx::griddep_wait();")
plant(8 "while (ptx::ld_acquire(a.flags + c) == 0) {" "while (fault != NUMBER && ptx::ld_acquire(a.flags + c) == 0) {")
file(WRITE "${TO}/decode.cuh" "${text}")

begin(middle.cuh)
plant(11 "ptx::bar_sync(1 + group, kGroupThreads);" "if (fault != NUMBER) ptx::bar_sync(1 + group, kGroupThreads);")
plant(12 "ptx::cp_async_wait<kStages - 2>();" "if (fault == NUMBER) ptx::cp_async_wait<kStages - 1>(); else ptx::cp_async_wait<kStages - 2>();")
plant(13 "        refill = slot;\n" "        if (fault != NUMBER) refill = slot;\n")
plant(14 "if (at.k < at.k_end) consume" "if (at.k < at.k_end + (fault == NUMBER)) consume")
plant(15 "column * piece_bytes));\n      ptx::bar_sync(0);" "column * piece_bytes));\n      if (fault != NUMBER) ptx::bar_sync(0);")
plant(16 "while (ptx::ld_acquire(a.flags + c) == 0) {" "while (fault != NUMBER && ptx::ld_acquire(a.flags + c) == 0) {")
plant(17 "    ptx::syncwarp();\n    read_pairs(converted, scale);" "    if (fault != NUMBER) ptx::syncwarp();\n    read_pairs(converted, scale);")
plant(18 "i * kTokens < tokens ? 16 : 0" "i * kTokens < tokens + (fault == NUMBER) ? 16 : 0")
plant(19 "2 * feed.at.k + 1 == a.k_blocks" "fault != NUMBER && 2 * feed.at.k + 1 == a.k_blocks")
file(WRITE "${TO}/middle.cuh" "${text}")
