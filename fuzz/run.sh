#!/usr/bin/env bash
# Builds fuzz targets with Rust's stable toolchain and a C++ compiler, and runs each for so many seconds:
#     fuzz/run.sh SECONDS [TARGET...]
# As many run at a time as there are cores. With 0 seconds they are built and none is run.
# Without names: those that parse what a peer sends or a disk gives back, and build fast. `all` are these and what takes minutes
# to build: `settings`, which parses what an operator writes (the gate plays its seeds, damaged, in tests/noise.rs), and
# `greeting` and `quic`, which hear strangers through the libraries of TLS and QUIC.
# Ends with 1 if one of them crashes, hangs or outgrows its memory; what did it is then in fuzz/artifacts/TARGET.
# Seeds are in fuzz/seeds; what is found on the way stays in fuzz/corpus, for longer runs.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
targets=("$@")
fast=(bundle control filter header join journal manifest opening packet path receiver receiving sender sending ssh words)
case "${targets[*]}" in
  "") targets=("${fast[@]}") ;;
  all) targets=("${fast[@]}" greeting quic settings) ;;
esac

# What cargo-fuzz passes. Coverage is an unstable flag of a stable compiler, so it is told that this is fine.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
# With a target named, build scripts and macros are built without these flags.
host=$(rustc -vV | sed -n 's/^host: //p')
bins=()
for target in "${targets[@]}"; do
  bins+=(--bin "$target")
  case $target in
    settings) bins+=(--features settings) ;;
    greeting | quic) bins+=(--features strangers) ;;
  esac
done
cargo build --quiet --release --locked --target "$host" --target-dir target "${bins[@]}"

[ "$seconds" != 0 ] || exit 0

# Runs one target and prints a line of what it did, or the end of its log.
play() {
  local target=$1 max_len log status=0
  mkdir -p "corpus/$target" "artifacts/$target" "seeds/$target"
  case $target in
    control | sender | receiver | bundle | journal | words | greeting | quic | sending | receiving) max_len=16384 ;;
    *) max_len=4400 ;;
  esac
  log=$(mktemp)
  if "target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len="$max_len" \
    -artifact_prefix="artifacts/$target/" -print_final_stats=1 "corpus/$target" "seeds/$target" >"$log" 2>&1; then
    printf '%-10s %s runs, %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
      "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
  else
    status=1
    printf '%-10s FAILED\n%s\n' "$target" "$(tail -n 40 "$log")"
  fi
  rm -f "$log"
  return "$status"
}

failed=0 running=0
for target in "${targets[@]}"; do
  if [ "$running" -ge "$(nproc)" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  play "$target" &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
