#!/usr/bin/env bash
# The agent, as real processes, on simulated machines: what each sees, and which labels it would carry.
#
# Every machine is a folder with a library that answers as NVML (tests/nvml-sim), a scenario that says what hardware there
# is (demo/machines), and the files of /sys that the agent reads. The agents are the ones that ship. Ends by itself: 0 if
# every machine published exactly the labels of demo/expected, 1 if not. OCTAVO_GOLDEN=rewrite rewrites those instead.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly patience_s=30
readonly late=driver-comes-late
readonly never=cpu-only
bin=${CARGO_TARGET_DIR:-target}/debug
work=$(mktemp -d "${TMPDIR:-/tmp}/octavo-demo.XXXXXX")
agents=()

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; else bold='' dim='' off=''; fi
say() { printf '%s==> %s%s\n' "$bold" "$*" "$off"; }

stop() {
    local pid
    for pid in "${agents[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${agents[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT

# What only this machine needs: its scenario, its /sys, and its driver's library, which may come later.
prepare() {
    local name=$1 dir=$work/$1
    mkdir -p "$dir/lib"
    cp "demo/machines/$name.yaml" "$dir/lib/nvml-sim.yaml"
    "$bin/nvml-simctl" --state "$dir/lib/nvml-sim.state" init "$dir/lib/nvml-sim.yaml"
    "$bin/nvml-simctl" --state "$dir/lib/nvml-sim.state" sysfs "$dir"
    if [ "$name" != "$late" ] && [ "$name" != "$never" ]; then install_driver "$name"; fi
}

install_driver() {
    # Renamed into place, as a package manager does: an agent that looks now never finds half a file.
    cp "$bin/libnvml_sim.so" "$work/$1/lib/.incoming"
    mv "$work/$1/lib/.incoming" "$work/$1/lib/libnvidia-ml.so.1"
}

# The library is named, so that a real driver of this machine is never taken. The machine that has none is searched in
# vain instead: naming a file that is not there is an error of whoever names it.
hardware_of() {
    if [ "$1" = "$never" ]; then
        printf '%s\n' --driver-root "$work/$1" --sys-root "$work/$1/sys"
    else
        printf '%s\n' --nvml-library "$work/$1/lib/libnvidia-ml.so.1" --sys-root "$work/$1/sys"
    fi
}

start_agent() {
    local name=$1 hardware
    mapfile -t hardware < <(hardware_of "$name")
    "$bin/octavo-agent" "${hardware[@]}" --mig-strategy mixed --interval 1s \
        --label-sink file --feature-file "$work/$name/octavo" --feature-file-expiry 0s \
        2>"$work/$name/agent.log" &
    agents+=($!)
}

# Whether the machine publishes what it should; waits for it as long as patience lasts.
published() {
    local name=$1 tries
    for ((tries = 0; tries < patience_s * 10; tries++)); do
        if cmp -s "demo/expected/$name.labels" "$work/$name/octavo"; then return 0; fi
        sleep 0.1
    done
    return 1
}

show() {
    local name=$1 hardware
    mapfile -t hardware < <(hardware_of "$name")
    printf '\n%s%s%s  %s%s%s\n' "$bold" "$name" "$off" "$dim" "$(sed -n '1s/^# //p' "demo/machines/$name.yaml")" "$off"
    if [ "$name" = "$late" ]; then
        printf '  what its agent said while it waited:\n'
        sed -n 's/^.*INFO nvml: /    nvml: /p' "$work/$name/agent.log"
    fi
    "$bin/octavo" inspect "${hardware[@]}" | sed 's/^/  /'
    printf '  labels:\n'
    grep -v '^nvidia\.com/' "$work/$name/octavo" | sed 's/^/    /' || printf '    none\n'
    printf '    %sand %s labels under nvidia.com/, as gpu-feature-discovery writes them%s\n' \
        "$dim" "$(grep -c '^nvidia\.com/' "$work/$name/octavo" || true)" "$off"
}

say "building the agent, the command line and the simulated driver"
cargo build --workspace --locked

mapfile -t machines < <(cd demo/machines && printf '%s\n' *.yaml | sed 's/\.yaml$//')
say "starting ${#machines[@]} agents, each on its own simulated machine"
for name in "${machines[@]}"; do
    prepare "$name"
    start_agent "$name"
done

# The late driver comes once its agent has said that it found none.
for ((tries = 0; tries < patience_s * 10; tries++)); do
    if grep -q 'nvml: absent' "$work/$late/agent.log"; then break; fi
    sleep 0.1
done
install_driver "$late"

wrong=()
for name in "${machines[@]}"; do
    if [ "${OCTAVO_GOLDEN:-}" = rewrite ]; then
        # Longer than any of the first waits for a driver.
        sleep 5
        cp "$work/$name/octavo" "demo/expected/$name.labels"
    fi
    published "$name" || wrong+=("$name")
    show "$name"
done

printf '\n'
if ((${#wrong[@]})); then
    for name in "${wrong[@]}"; do
        say "$name does not carry the labels it should:"
        diff "demo/expected/$name.labels" "$work/$name/octavo" || true
        cat "$work/$name/agent.log"
    done
    exit 1
fi
say "all ${#machines[@]} machines were seen, and each carries exactly the labels it should"
