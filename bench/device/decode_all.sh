#!/usr/bin/env bash
# Everything that decode_bench has to say on a GPU machine, two to five minutes, to five files: bench/device/decode_all.sh BENCH OUT
#   check.txt        plans of all formats and shapes against fp64
#   times.json       int4 over M, all formats at M = 1, 16, 64
#   few_sms.json     a green context of 24 SMs: columns split evenly ("whole": 0) and not at all (1), and what the plan takes
#   sanitizers.txt   memcheck, racecheck, synccheck, initcheck on small products
#   log.txt          what was printed
set -u
bench=$1 out=$2
mkdir -p "$out"
log=$out/log.txt
"$bench" --plan --check --out /dev/null >"$out/check.txt" 2>&1
tail -n 2 "$out/check.txt"
"$bench" --plan --time --only int4 --ms 1,8,16,17,32,48,64,96,128 --seconds 60 --out "$out/times.json" >>"$log" 2>&1
for format in int4_zeros int4_f16 int4_act int4_g32 int8 mxfp4 nvfp4; do
  "$bench" --plan --time --only $format --shapes l8_o,l70_o,l8_gate_up --ms 1,16,64 --seconds 10 --out "$out/times.json" >>"$log" 2>&1
done
for whole in 0 1; do
  "$bench" --plan --time --only int4 --shapes l8_o,l8_gate_up,l70_o --ms 1,16 --sms 24 --form decode --whole $whole --seconds 20 --out "$out/few_sms.json" >>"$log" 2>&1
done
"$bench" --plan --time --only int4 --shapes l8_o,l8_gate_up,l70_o --ms 1,16,32,64,128 --sms 24 --seconds 20 --out "$out/few_sms.json" >>"$log" 2>&1
: >"$out/sanitizers.txt"
for tool in memcheck racecheck synccheck initcheck; do
  echo "== $tool" >>"$out/sanitizers.txt"
  timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$bench" --plan --check --tiny --out /dev/null >>"$out/sanitizers.txt" 2>&1
  echo "exit code $?" >>"$out/sanitizers.txt"
done
grep -hE "==|SUMMARY|exit code|checked" "$out/sanitizers.txt"
