#!/usr/bin/env bash
# Takes screenshots of all web pages of `octavo demo`, in light, dark and narrow.
#
#   hack/screenshots.sh [DIRECTORY]     directory of the pictures (docs/images/demo)
#
# Each picture waits until its page shows what it is for. Needs the debug build, and the Chromium, curl and jq that hack/setup.sh installs.
set -euo pipefail
pictures=${1:+$(realpath -m -- "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
octavo=${CARGO_TARGET_DIR:-target}/debug/octavo
pictures=${pictures:-docs/images/demo}
# Pixels: the widths of a window and of a phone, and the maximum height. Seconds: the maximum time for a page, which includes a whole cycle
# of the events of the demo.
readonly wide=1280 narrow=380 max_height=1600 patience=180
. hack/browser.sh

say() { printf '==> %s\n' "$*"; }

size() { devtools Emulation.setDeviceMetricsOverride "{\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": false}" >/dev/null; }

shows() {
    local shown
    shown=$(script 'return document.querySelector("main").innerText' | jq -r .)
    for text in "$@"; do [[ $shown = *"$text"* ]] || return 1; done
}

is_live() { [ "$(script 'return document.querySelector(".live").innerText')" = '"Live"' ]; }

# take NAME TEXT...: takes pictures of the open page as soon as it shows all texts
take() {
    local name=$1 style scheme width height
    shift
    for style in light dark narrow; do
        scheme=${style/narrow/light} width=$wide
        [ "$style" != narrow ] || width=$narrow
        devtools Emulation.setEmulatedMedia "{\"features\": [{\"name\": \"prefers-color-scheme\", \"value\": \"$scheme\"}]}" >/dev/null
        size "$width" 900
        until_true "$* in $name" shows "$@"
        until_true "live updates of $name" is_live
        height=$(script "return Math.min(document.documentElement.scrollHeight, $max_height)")
        size "$width" "$height"
        browser goog/cdp/execute '{"cmd": "Page.captureScreenshot", "params": {"format": "png"}}' |
            jq -r .data | base64 -d >"$scratch/picture.png"
        mv "$scratch/picture.png" "$pictures/$name-$style.png"
    done
    say "$name"
}

# open PATH
open() { all_run && browser url "{\"url\": \"$url$1\"}" >/dev/null; }

# fill ID VALUE
fill() { script 'document.getElementById(arguments[0]).value = arguments[1]' "$@" >/dev/null; }

# press SELECTOR: presses a button of a form
press() { script 'const button = document.querySelector(arguments[0]); button.form.requestSubmit(button)' "$1" >/dev/null; }

mkdir -p "$pictures"
say "starting the demo"
start demo "$octavo" demo
until_true "the address of the web pages" found demo 'Web pages: (http://[^ /]*)'
url=$match
start_browser

open /nodes/shared-a100-02
take node PodDisruptionBudget serving/guardrail-0
open /nodes/t4
take node-time-slicing research/notebook-7 serving/triton-0
open /nodes/trn2
take node-neuron "Neuron 0"
open /nodes/mi300x
take node-amd SPX
open /
take overview 'Needs attention' 'Pending pods' 'Layouts in progress'
open /nodes
take nodes shared-a100-04
open /layouts
take layouts medium
open '/layouts/dry-run?plan=large-models&search=shared'
take layouts-dry-run 'Sum of' shared-a100-02
open /demand
take demand chat-6 'Proposed changes of GPUs'
open /policies/shared
take policy 'Instances for pending pods' serving/chat-6
open /map
take map shared-a100-04
open /teams
take teams research serving
open '/search?q=shared'
take search shared-a100-01 shared-a100-04
open /availability
take availability pending
open /profiles
take profiles v100-legacy
open /profiles/platform/h100-training
take profile h100-training
open '/profiles/new?type=nvidia-h200-141gb&namespace=platform'
take new-profile Manifest
press '#dry-run'
take dry-run 'Dry run'
open '/compare?workload=training&parameters=7B&tokens=1T&precision=bf16'
take compare 'USD per run'
open /objectives
fill rate 5
fill latencies ttft_p90=300
fill rows '[{"hardware_type": "H100", "hardware_count": 1, "requests_per_second": 9, "ttft_p90": 120},
  {"hardware_type": "A100 80GB", "hardware_count": 1, "requests_per_second": 2, "ttft_p90": 900}]'
press '#objectives .button'
take objectives 'meet all objectives'
