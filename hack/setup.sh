#!/usr/bin/env bash
# Installs what the tests need beyond a Rust toolchain and a C compiler, and says what it does.
#
# Python (with venv) and Go run the NVML clients that nobody here wrote against our simulator. What is there is used;
# what is missing is installed from Debian's packages, or, where that cannot be done, named.
set -euo pipefail

# go-nvml's module asks for this or newer.
go_minimum=1.20

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
command -v go >/dev/null || missing+=(golang-go)

if ((${#missing[@]})); then
    command -v apt-get >/dev/null || fail "these are needed and this is no Debian: ${missing[*]}"
    sudo=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "run as root, once: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi

go_version=$(go env GOVERSION | sed 's/^go//')
if [ "$(printf '%s\n%s\n' "$go_minimum" "$go_version" | sort -V | head -n 1)" != "$go_minimum" ]; then
    fail "Go $go_version is too old for the go-nvml client; install Go $go_minimum or newer"
fi
say "set up: $(cc --version | head -n 1); $(python3 --version); Go $go_version; $(cargo --version)"
