#!/usr/bin/env bash
# Measures the programs as they ship (profile dist) and prints tables for docs/performance.md.
#
#   hack/bench.sh [SECONDS [AGENTS]]     duration of the idle measurement (60), and number of agents of the aggregator (10000)
set -euo pipefail
cd "$(dirname "$0")/.."
# Each agent is a connection, which needs a file descriptor at both ends.
ulimit -n "$(ulimit -Hn)"
printf '%s, %s cores, kernel %s, %s\n\n' "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" \
    "$(nproc)" "$(uname -r)" "$(rustc --version)"
cargo build --profile dist --locked --bins
stat -c 'binary %n: %s bytes' target/dist/octavo{-agent,-aggregator,}
cargo bench --locked --bench plan
cargo bench --locked --bench agent -- "${1:-60}"
cargo bench --locked --bench apply
cargo bench --locked --bench cluster
cargo bench --locked --bench cluster_watcher
cargo bench --locked -p octavo-pages --bench map
cargo bench --locked --bench history
cargo bench --locked --bench routers
cargo bench --locked --bench cluster_requests
cargo bench --locked --bench sharing
cargo bench --locked --bench usage
cargo bench --locked --bench viewers
hack/measure-pages.sh
exec cargo bench --locked --bench fleet -- "${2:-10000}"
