#!/usr/bin/env bash
# Measures the agent as it ships (release profile) and prints tables for docs/performance.md.
#
#   hack/bench.sh [SECONDS]     how long the idle agent is watched; 60 unless told
set -euo pipefail
cd "$(dirname "$0")/.."
printf '%s, %s cores, kernel %s, %s\n\n' "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" \
    "$(nproc)" "$(uname -r)" "$(rustc --version)"
cargo build --release --locked --bins
stat -c 'binary %n: %s bytes' target/release/octavo-agent target/release/octavo 2>/dev/null || true
exec cargo bench --locked --bench agent -- "${1:-60}"
