#!/usr/bin/env bash
# Builds all files of a release into dist/. Two runs on the same commit write the same bytes.
#
# Steps: export the commit, build the programs for each architecture, package them. The linker of zig produces programs for an old glibc,
# so one build runs on every supported distribution.
set -euo pipefail
top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
readonly top glibc=2.28 programs=(octavo octavo-agent octavo-aggregator)

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# triple ARCHITECTURE: prints Rust's name of a Linux target
triple() { case $1 in amd64) echo x86_64-unknown-linux-gnu ;; arm64) echo aarch64-unknown-linux-gnu ;; esac; }

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$top/target}")
work=$target/portable

# install_zig: prints the directory of the cross compiler
install_zig() {
    local tools
    tools=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/release-$(sha256sum "$top/hack/release.txt" | cut -c 1-12)
    if ! [ -x "$tools/bin/cargo-zigbuild" ]; then
        say "installing zig and cargo-zigbuild from PyPI into $tools"
        rm -rf "$tools"
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$top/hack/release.txt"
    fi
    echo "$tools/bin"
}

# build ARCHITECTURE: builds the programs into $work/programs/ARCHITECTURE
build() {
    local triple tools libraries
    triple=$(triple "$1")
    tools=$(install_zig)
    cd "$work/source"
    libraries=$(rustc --print target-libdir --target "$triple")
    [ -d "$libraries" ] || fail "Rust's library for $triple is missing; run: rustup target add $triple"
    say "building the programs for $1 (glibc $glibc or newer)"
    # Paths of this machine must not become part of the programs.
    RUSTFLAGS="--remap-path-prefix=$work/source=/octavo --remap-path-prefix=$work/cargo=/target --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    export RUSTFLAGS
    PATH=$tools:$PATH CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$work/cargo \
        cargo zigbuild --target "$triple.$glibc" --profile dist --locked --bins
    mkdir -p "$work/programs/$1"
    install -m 755 -t "$work/programs/$1" "${programs[@]/#/$work/cargo/$triple/dist/}"
}

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -rf "$work/source"
mkdir -p "$work/source"
# New timestamps: Cargo compares them with those of earlier builds.
git -C "$top" archive HEAD | tar -xm -C "$work/source"
for architecture in amd64 arm64; do build "$architecture"; done
