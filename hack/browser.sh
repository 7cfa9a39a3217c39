# shellcheck shell=bash disable=SC2154
# Functions that drive a headless Chromium through chromedriver. Sourced by scripts that define `fail`, `until_true`, `patience` (seconds) and
# `scratch` (a directory).

# found FILE PATTERN: whether a line of the file matches; sets `match` to the first group
found() {
    match=$(sed -nE "s|.*$2.*|\1|p" "$1" | head -n 1)
    [ -n "$match" ]
}

# start_browser: starts Chromium and sets `session` to its address
start_browser() {
    touch "$scratch/driver.log"
    TMPDIR=$scratch chromedriver --port=0 >"$scratch/driver.log" 2>&1 &
    driver=$!
    until_true "the port of chromedriver" found "$scratch/driver.log" 'successfully on port ([0-9]*)'
    session=$(curl -sS "http://127.0.0.1:$match/session" -H 'Content-Type: application/json' --data '{"capabilities": {"alwaysMatch":
        {"goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]}}}}')
    session=http://127.0.0.1:$match/session/$(jq -er .value.sessionId <<<"$session")
}

# stop_browser: stops Chromium and chromedriver, if they run
stop_browser() {
    [ -z "${session:-}" ] || curl -s -X DELETE "$session" >/dev/null || true
    [ -n "${driver:-}" ] || return 0
    kill "$driver" 2>/dev/null || true
    wait "$driver" || true
}

# browser PATH JSON: sends a WebDriver command, and prints its value
browser() {
    local answer
    answer=$(curl -sS --fail-with-body --max-time "$patience" -H "Content-Type: application/json" --data "$2" "$session/$1") ||
        fail "Chromium refuses $1: $answer"
    jq .value <<<"$answer"
}

# script TEXT [ARGUMENT...]: runs JavaScript in the page, and prints the result
script() {
    browser execute/sync "$(jq -n '{script: $ARGS.positional[0], args: $ARGS.positional[1:]}' --args "$@")"
}

# devtools NAME PARAMETERS: sends a command of the DevTools protocol
devtools() { browser goog/cdp/execute "{\"cmd\": \"$1\", \"params\": $2}"; }
