#!/usr/bin/env bash
# Smoke test for a machine with real GPUs: reads the devices and compares them with nvidia-smi. It never changes a GPU.
#
#   hack/hw-smoke.sh [--record NAME] [--out DIR] [-- ARGUMENTS OF octavo ...]
#
# Runs `octavo inspect` and `octavo labels`, which only read, compares every device with `nvidia-smi -q`, and prints the result of each
# comparison. Exit code: 0 if all values match, 1 if at least one differs, 2 if the test cannot run.
# --record writes an anonymized fixture (UUIDs, serial numbers and process IDs replaced) to DIR/NAME; the default of DIR is
# tests/golden/machines.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'hw-smoke: %s\n' "$*" >&2; exit 2; }

record='' out=tests/golden/machines
while (($#)); do
    case $1 in
        --record) record=${2:?--record needs a name}; shift 2 ;;
        --out) out=${2:?--out needs a directory}; shift 2 ;;
        --) shift; break ;;
        *) fail "unknown argument $1; see the head of $0" ;;
    esac
done

command -v nvidia-smi >/dev/null || fail "nvidia-smi was not found; this test needs a machine with an NVIDIA driver"
command -v python3 >/dev/null || fail "python3 is required"
octavo=${OCTAVO:-target/release/octavo}
if [ ! -x "$octavo" ]; then
    command -v cargo >/dev/null || fail "$octavo is not built, and cargo was not found; set OCTAVO to the path of octavo"
    cargo build --release --locked --bin octavo
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia-smi -q >"$work/nvidia-smi-q.txt" || fail "nvidia-smi -q failed"
"$octavo" inspect "$@" -o json >"$work/inventory.json" || fail "octavo inspect failed"
"$octavo" inspect "$@"
printf '\n'
"$octavo" labels "$@" --mig-strategy mixed | tee "$work/labels.txt"
printf '\n'

status=0
python3 hack/hw_smoke.py compare "$work" || status=$?
if [ -n "$record" ]; then
    python3 hack/hw_smoke.py record "$work" "$out/$record"
fi
exit "$status"
