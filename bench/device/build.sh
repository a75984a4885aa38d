#!/usr/bin/env bash
# Builds decode_bench with nvcc alone, units in parallel: bench/device/build.sh FOLDER [VARIANTS.inc]. For machines that have a GPU and
# nvcc but not the library's dependencies.
set -e
cd "$(dirname "$0")/../.."
out=$1; mkdir -p "$out"
flags=(-std=c++20 -O3 -Isrc -Iinclude --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -Xptxas -v)
units=(src/kernels/cuda/sm80_mma/{decode_int4,decode_int8,decode_fp4,middle_int4,middle_int8,middle_fp4,launch}.cu src/kernels/cuda/sm80_mma/decode.cc bench/device/decode_bench.cu)
pids=(); objects=()
for u in "${units[@]}"; do
  o=$out/$(basename "$u").o; objects+=("$o"); extra=()
  [[ $u == bench/* && -n $2 ]] && extra=(-DVARIANTS="\"$2\"")
  (nvcc "${flags[@]}" "${extra[@]}" -c "$u" -o "$o" > "$o.log" 2>&1 || { cat "$o.log"; exit 1; }) & pids+=($!)
done
for p in "${pids[@]}"; do wait "$p"; done
nvcc -cudart static -gencode arch=compute_90a,code=sm_90a "${objects[@]}" -o "$out/decode_bench"
grep -h -B1 -E "[1-9][0-9]* bytes spill" "$out"/*.log | sed 's/ptxas info *: //' || true
if cuobjdump -sass "$out/decode_bench" | grep -qE "LDGSTS.*(desc\[UR[0-9]*[13579]\]|\+UR0)"; then
  echo "illegal cp.async operands (see ptx::pinned)"
  exit 1
fi
