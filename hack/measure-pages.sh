#!/usr/bin/env bash
# Measures pages of 10,000 devices in Chromium, and prints a table in Markdown for docs/performance.md.
#
#   hack/measure-pages.sh [LOADS]     number of loads per page (50)
#
# The benchmark of the map serves the pages. First paint: from the start of the navigation until Chromium paints. Interaction: from a key
# in the page until the second frame after it begins. Needs the Chromium, curl and jq that hack/setup.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Seconds: the maximum time for each step. The address of the pages.
readonly loads=${1:-50} patience=120 address=127.0.0.1:18080
. hack/browser.sh

# row NAME: reads milliseconds, and prints a row of the table
row() { sort -n | awk -v name="$1" '{ all[NR] = $1 } END { printf "| %s | %d | %d | %d | %d |\n", name, all[int((NR + 1) / 2)], all[int(NR * 0.99 + 0.99)], all[NR], NR }'; }

# paint PATH: loads a page, and prints the time of its first contentful paint
paint() {
    browser url "{\"url\": \"http://$address$1\"}" >/dev/null
    until_true "the first paint of $1" is_painted
    script 'return performance.getEntriesByName("first-contentful-paint")[0].startTime'
}
is_painted() { [ "$(script 'return performance.getEntriesByName("first-contentful-paint").length')" = 1 ]; }

# interact TEXT: runs JavaScript that changes the page, and prints the time until the second frame begins, when the change is visible
interact() {
    browser execute/async "$(jq -n --arg text "$1" '{args: [], script: ("const done = arguments[0]; const start = performance.now();" + $text
        + "; requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)))")}')"
}

program=$(cargo bench --locked -p octavo-pages --bench map --no-run --message-format=json |
    jq -r 'select(.reason == "compiler-artifact" and .target.name == "map") | .executable')
start server "$program" <<<"$address"
until_true "the pages" found server 'serving on (.*)'
start_browser

printf '| page or interaction | p50 ms | p99 ms | most ms | times |\n|---|---|---|---|---|\n'
for path in / /nodes /map '/map?by=utilization' '/map?cells=device&by=utilization'; do
    for ((at = 0; at < loads; at++)); do paint "$path"; done | row "first paint of \`$path\`"
done
browser url "{\"url\": \"http://$address/map\"}" >/dev/null
script 'document.querySelector("#map a.cell").focus()' >/dev/null
for key in ArrowRight ArrowDown; do
    for ((at = 0; at < loads; at++)); do
        interact "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '$key', bubbles: true}))"
    done | row "$key on the map"
done
