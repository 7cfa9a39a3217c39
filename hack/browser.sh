# shellcheck shell=bash
# Functions that run programs in the background and drive a headless Chromium through chromedriver. Sourced by scripts that define `patience`,
# the maximum time for each step in seconds.

scratch=$(mktemp -d)
# The processes that run in the background, and the names of their logs in $scratch.
declare -A started=()

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# start NAME COMMAND...: runs a command in the background with the log $scratch/NAME.log
start() {
    local name=$1
    shift
    "$@" <&0 >"$scratch/$name.log" 2>&1 &
    started[$!]=$name
}

# all_run: fails if a process in the background has ended
all_run() {
    local process
    for process in "${!started[@]}"; do
        kill -0 "$process" 2>/dev/null || fail "${started[$process]} has ended: $(tail -n 20 "$scratch/${started[$process]}.log")"
    done
}

# until_true WHAT COMMAND...: runs the command until it succeeds
until_true() {
    local what=$1 end=$((SECONDS + ${patience:?}))
    shift
    until "$@"; do
        ((SECONDS < end)) || fail "not within $patience s: $what"
        all_run
        sleep 0.2
    done
}

# end: closes Chromium and stops all processes in the background
end() {
    [ -z "${session:-}" ] || curl -s -X DELETE "$session" >/dev/null || true
    local process
    for process in "${!started[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" || true
    done
    rm -rf "$scratch"
}
trap end EXIT

# found NAME PATTERN: whether a line of a log matches; sets `match` to the first group
found() {
    match=$(sed -nE "s|.*$2.*|\1|p" "$scratch/$1.log" | head -n 1)
    [ -n "$match" ]
}

# start_browser: starts Chromium and sets `session` to its address
start_browser() {
    TMPDIR=$scratch start chromedriver chromedriver --port=0
    until_true "the port of chromedriver" found chromedriver 'successfully on port ([0-9]*)'
    session=$(curl -sS "http://127.0.0.1:$match/session" -H 'Content-Type: application/json' --data '{"capabilities": {"alwaysMatch":
        {"goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]}}}}')
    session=http://127.0.0.1:$match/session/$(jq -er .value.sessionId <<<"$session")
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
