#!/usr/bin/env bash
# Builds all files of a release into dist/. Two runs on the same commit write the same bytes.
#
# Steps: export the commit, build the programs for each architecture, check them, and package them (hack/release). The linker of zig
# produces programs for an old glibc, so one build runs on every supported distribution.
set -euo pipefail
umask 022
top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
readonly top programs=(octavo octavo-agent octavo-aggregator)
# Libraries that every distribution with glibc has.
readonly system_libraries='ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 librt.so.1'

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
usage() {
    cat <<TEXT
Builds all files of a release of this commit: programs for Linux on amd64 and arm64, the kubectl plugin, Debian packages, images, the Helm
chart, SBOMs, checksums and release notes.

  hack/release.sh VERSION [--base-url URL] [--out DIR] [--draft] [--binaries DIR] [--glibc VERSION]

  VERSION      a version with a dated section in CHANGELOG.md. A pre-release, such as 0.2.0-rc.1, uses the section of 0.2.0, which can be
               marked as unreleased
  --base-url   address that users download the files from; without it, the manifest for krew is not written
  --out        output directory; an earlier release in it is replaced [dist]
  --draft      for trying it out: use the working tree instead of the last commit, accept an unreleased section, and compress less
  --binaries   directory with prebuilt programs in amd64 and arm64, or one of them, and manual pages in man; skips the build
  --glibc      the oldest glibc that must run the programs [2.28]

Examples:
  hack/release.sh 0.1.0 --base-url https://downloads.example.com/octavo/v0.1.0
  hack/release.sh 0.1.0 --draft
  hack/release.sh 0.1.0 --draft --binaries target/portable/programs

Needs git, Rust with the libraries of both targets, buildah, jq, binutils, dpkg, and Python 3 with venv on Debian. Installs zig and
cargo-zigbuild from PyPI into a cache outside the tree.
TEXT
}

version='' url='' out=$top/dist draft='' binaries='' glibc=2.28
while (($#)); do
    case $1 in
        --base-url) url=${2:?--base-url needs a URL}; shift ;;
        --out) out=${2:?--out needs a directory}; shift ;;
        --draft) draft=yes ;;
        --binaries) binaries=$(realpath -e "${2:?--binaries needs a directory}"); shift ;;
        --glibc) glibc=${2:?--glibc needs a version}; shift ;;
        -h | --help) usage; exit ;;
        -*) fail "unknown argument $1; see hack/release.sh --help" ;;
        *) [ -z "$version" ] || fail "two versions are given: $version and $1"; version=$1 ;;
    esac
    shift
done
out=$(realpath --canonicalize-missing "$out")
[ -n "$version" ] || fail "no version is given; see hack/release.sh --help"

# semver VERSION: succeeds if it is a semantic version. Image tags cannot contain build metadata (+...).
semver() {
    local number='(0|[1-9][0-9]*)' part='(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)'
    [[ $1 =~ ^$number\.$number\.$number(-$part(\.$part)*)?$ ]]
}
semver "$version" || fail "$version is not a semantic version without build metadata, such as 0.2.0 or 0.2.0-rc.1"
[[ -z $url || $url =~ ^https?://[^[:space:]]+$ ]] || fail "--base-url $url is not an HTTP URL"
for need in git:git tar:tar readelf:binutils jq:jq dpkg-deb:dpkg buildah:buildah python3:python3; do
    command -v "${need%:*}" >/dev/null || fail "${need%:*} is required; install the Debian package ${need#*:}"
done
command -v cargo >/dev/null || fail "cargo is required; install the Rust toolchain of rust-toolchain.toml with rustup"
if [ -e "$out" ] && [ -n "$(ls -A "$out")" ] && ! [ -e "$out/SHA256SUMS" ]; then
    fail "$out contains files that are not of a release; remove them, or set another directory with --out"
fi

# triple ARCHITECTURE: prints Rust's name of a Linux target
triple() { case $1 in amd64) echo x86_64-unknown-linux-gnu ;; arm64) echo aarch64-unknown-linux-gnu ;; esac; }

# notes VERSION: prints the section of CHANGELOG.md, with its heading
notes() {
    awk -v heading="## $1 (" 'index($0, heading) == 1 { found = 1; print; next } /^## / { found = 0 } found' "$work/source/CHANGELOG.md"
}

# write_notes: checks that CHANGELOG.md describes the version, and writes the release notes
write_notes() {
    local base=${version%%-*} text heading
    text=$(notes "$version")
    [ -n "$text" ] || [ "$version" = "$base" ] || text=$(notes "$base")
    [ -n "$text" ] || fail "CHANGELOG.md has no section for $version; add one: ## $version (YYYY-MM-DD)"
    heading=${text%%$'\n'*}
    if [[ $heading = *'(unreleased)' ]]; then
        [ "$version" != "$base" ] || [ -n "$draft" ] ||
            fail "CHANGELOG.md marks $version as unreleased; replace (unreleased) by the date, or use --draft"
    elif ! [[ $heading =~ \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$ ]]; then
        fail "the heading \"$heading\" in CHANGELOG.md has no date; write ## $version (YYYY-MM-DD)"
    fi
    printf '# Octavo %s\n%s\n' "$version" "${text#*$'\n'}" >"$work/out/RELEASE_NOTES.md"
}

# export_source: copies the sources to $work/source, with new timestamps, which Cargo compares with those of earlier builds
export_source() {
    rm -rf "$work/source" "$work/out"
    mkdir -p "$work/source" "$work/out"
    if [ -n "$draft" ]; then
        git -C "$top" ls-files -z --cached --others --exclude-standard --deduplicate |
            (cd "$top" && while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done | tar -c --null --files-from=-) |
            tar -xm -C "$work/source"
    else
        [ -z "$(git -C "$top" status --porcelain)" ] || fail "the working tree has uncommitted changes; commit them, or use --draft"
        git -C "$top" archive HEAD | tar -xm -C "$work/source"
    fi
}

# set_version: sets the version of a pre-release in the copy of the sources
set_version() {
    local current
    current=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$work/source/Cargo.toml" | head -n 1)
    [ "$current" = "$version" ] || [ "$current" = "${version%%-*}" ] ||
        fail "Cargo.toml has version $current; set it to ${version%%-*}, and commit it together with Cargo.lock and Chart.yaml"
    sed -i "0,/^version = .*/s//version = \"$version\"/" "$work/source/Cargo.toml"
    # The packages without a source are those of the workspace.
    awk -v version="$version" 'BEGIN { RS = ""; FS = "\n" }
        !/\nsource = / && /^\[\[package\]\]/ { sub(/\nversion = "[^"]*"/, "\nversion = \"" version "\"") }
        { printf "%s%s\n", (NR == 1 ? "" : "\n"), $0 }' "$top/Cargo.lock" >"$work/source/Cargo.lock"
    sed -i "s/^\(version\|appVersion\): .*/\1: $version/" "$work/source/deploy/chart/octavo/Chart.yaml"
}

# install_zig: prints the directory of the cross compiler
install_zig() {
    local tools requirements=$top/hack/release/zig.txt
    tools=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/zig-$(sha256sum "$requirements" | cut -c 1-12)
    if ! [ -x "$tools/bin/cargo-zigbuild" ]; then
        say "installing zig and cargo-zigbuild from PyPI into $tools"
        rm -rf "$tools"
        python3 -m venv "$tools" || fail "python3 cannot create a virtual environment; install the Debian package python3-venv"
        "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$requirements"
    fi
    echo "$tools/bin"
}

# build ARCHITECTURE: builds the programs into $work/programs/ARCHITECTURE
build() {
    local triple libraries
    triple=$(triple "$1")
    libraries=$(cd "$work/source" && rustc --print target-libdir --target "$triple")
    [ -d "$libraries" ] || fail "Rust's library for $triple is missing; run: rustup target add $triple"
    say "building the programs for $1, for glibc $glibc or newer"
    # Paths of this machine must not become part of the programs.
    local flags="--remap-path-prefix=$work/source=/octavo --remap-path-prefix=$work/cargo=/target --remap-path-prefix=$cargo_home=/cargo"
    (cd "$work/source" && PATH=$zig:$PATH RUSTFLAGS=$flags CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$work/cargo \
        cargo zigbuild --target "$triple.$glibc" --profile dist --locked --bins)
    mkdir -p "$work/programs/$1"
    install -m 755 -t "$work/programs/$1" "${programs[@]/#/$work/cargo/$triple/dist/}"
    for program in "${programs[@]}"; do
        ! grep -qF -e "$cargo_home/" -e "$work/" "$work/programs/$1/$program" || fail "$program ($1) contains a path of this machine"
    done
}

# highest_glibc PROGRAM: prints the newest glibc whose symbols it uses
highest_glibc() { readelf --wide --version-info "$1" | grep -o 'GLIBC_[0-9][0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1; }

# check ARCHITECTURE: checks the programs' architecture, glibc, libraries and version
check() {
    local program file machine highest library reported
    say "checking the programs for $1"
    for program in "${programs[@]}"; do
        file=$binaries/$1/$program
        [ -f "$file" ] || fail "$file is missing"
        machine=$(readelf --file-header "$file" | sed -n 's/^ *Machine: *//p')
        case $1/$machine in
            amd64/*X86-64 | arm64/AArch64) ;;
            *) fail "$file is a program for $machine, expected $1" ;;
        esac
        highest=$(highest_glibc "$file")
        [ "$(printf '%s\n' "$highest" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
            fail "$program ($1) needs glibc $highest, the limit is $glibc; symbols: $(readelf --wide --dyn-syms "$file" |
                grep -oE "[a-z0-9_]+@GLIBC_${highest//./\\.}( |\$)" | sort -u | head -n 3 | paste -sd ' ')"
        for library in $(readelf --wide --dynamic "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            [[ " $system_libraries " = *" $library "* ]] || fail "$program ($1) needs the library $library, which not every distribution has"
        done
        if [ "$1" = "$native" ]; then
            reported=$("$file" --version) || fail "$file does not start"
            [ "$reported" = "$program $version" ] || fail "$file reports version '$reported', expected $version"
        fi
        say "$program $1: $machine, glibc $highest, $(stat -c %s "$file") bytes"
    done
}

# describe_crates ARCHITECTURE: writes the input of sbom.py
describe_crates() {
    local triple directory=$work/crates/$1
    triple=$(triple "$1")
    mkdir -p "$directory"
    cd "$work/source"
    cp Cargo.lock "$directory"
    sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml >"$directory/rust.txt"
    cargo metadata --format-version 1 --locked --filter-platform "$triple" >"$directory/metadata.json"
    cargo tree --locked --package octavo --target "$triple" --prefix none --edges normal,build >"$directory/used.txt"
    cargo tree --locked --package octavo --target "$triple" --prefix none --edges normal,no-proc-macro >"$directory/linked.txt"
    cd "$OLDPWD"
}

# describe FILE ARGUMENT...: writes the SBOM of a file
describe() { python3 "$top/hack/release/sbom.py" --version "$version" --file "$@" >"$work/out/${1##*/}.cdx.json"; }

# describe_all: writes the SBOMs of all files. The subject of an image's SBOM is its manifest, whose digest identifies the image.
describe_all() {
    local architecture name image crates
    for architecture in "${architectures[@]}"; do
        describe_crates "$architecture"
        crates=$work/crates/$architecture
        for name in "${programs[@]}" kubectl-octavo; do
            describe "$work/out/$name-$version-linux-$architecture.tar.gz" --crates "$crates"
        done
        describe "$work/out/octavo_${version}_$architecture.deb" --crates "$crates"
        for image in agent aggregator; do
            describe "$work/images/octavo-$image-$version-image-$architecture" --type container \
                --crates "$crates" --debian "$work/images/$architecture/var/lib/dpkg/status.d"
        done
    done
    describe "$work/out/octavo-$version.tgz" --image "octavo/agent:$version" --image "octavo/aggregator:$version"
}

native=$(dpkg --print-architecture)
level=9
[ -z "$draft" ] || level=1
cargo_home=${CARGO_HOME:-$HOME/.cargo}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
if [ -n "$binaries" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM HUP
else
    target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$top/target}")
    work=$target/portable
    mkdir -p "$work"
    exec 8>"$work/lock"
    flock -n 8 || fail "another release is being built in $work"
fi
readonly work

say "Octavo $version, sources of $(git -C "$top" describe --always --dirty)"
export_source
write_notes
set_version
if [ -z "$binaries" ]; then
    zig=$(install_zig)
    rm -rf "$work/programs"
    for architecture in amd64 arm64; do build "$architecture"; done
    say "writing the manual pages"
    (cd "$work/source" && CARGO_TARGET_DIR=$target cargo run --quiet --locked --example man -- "$work/programs/man")
    binaries=$work/programs
fi
architectures=()
for architecture in amd64 arm64; do [ ! -d "$binaries/$architecture" ] || architectures+=("$architecture"); done
((${#architectures[@]})) || fail "$binaries contains neither amd64 nor arm64"
for architecture in "${architectures[@]}"; do check "$architecture"; done

"$top/hack/release/package.sh" "$work/source" "$binaries" "$version" "$work/out" "$level" "$url"
"$top/hack/release/images.sh" "$work/source" "$binaries" "$version" "$work/out" "$work/images"
say "writing SBOMs and checksums"
describe_all
(cd "$work/out" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)

rm -rf "$out"
mkdir -p "$(dirname "$out")"
cp -r "$work/out" "$out"
say "release $version in $out:"
(cd "$out" && wc -c -- * | sed 's/total$/bytes in total/')
[ -n "$url" ] || say "the manifest for krew (octavo.yaml) is not written, because --base-url is not set"
