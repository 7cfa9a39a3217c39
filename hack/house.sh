#!/usr/bin/env bash
# Prints the structure figures of the code beside their targets: size, cycles, duplicated helpers, settings. `--help` explains.
#
#   hack/house.sh [--build] [--root DIR]     --build also measures programs and build times (slow)
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 hack/house.py "$@"
