#!/usr/bin/env bash
# package.sh SOURCE PROGRAMS VERSION OUT LEVEL [URL]: writes the archives, the Debian packages, the chart and the manifest for krew to OUT.
#
# SOURCE is the source of the release; PROGRAMS contains the programs in amd64 and arm64, or in one of them, and the manual pages in man. LEVEL
# is that of the compression, 1 to 9. hack/release.sh calls this script, with SOURCE_DATE_EPOCH set.
set -euo pipefail
umask 022
readonly source=$1 programs=$2 version=$3 out=$4 level=$5 url=${6:-}
native=$(dpkg --print-architecture)
readonly native
say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

[ -d "$programs/man" ] || fail "$programs contains no manual pages; write them: cargo run --example man -- $programs/man"
[ -x "$programs/$native/octavo" ] || fail "$programs/$native/octavo is missing; it is needed on this machine to write completion scripts"
architectures=()
for architecture in amd64 arm64; do [ ! -d "$programs/$architecture" ] || architectures+=("$architecture"); done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/completions"
"$programs/$native/octavo" completion bash >"$work/completions/octavo.bash"
"$programs/$native/octavo" completion zsh >"$work/completions/_octavo"
"$programs/$native/octavo" completion fish >"$work/completions/octavo.fish"

# pack FILE DIRECTORY ENTRY...: writes a .tar.gz whose bytes depend only on the names and contents of the files
pack() {
    tar --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
        -C "$2" -c "${@:3}" | gzip "-$level" --no-name >"$out/$1"
}

# archives ARCHITECTURE: one archive for each program, and that of the kubectl plugin
archives() {
    local program name directory
    for program in octavo octavo-agent octavo-aggregator; do
        name=$program-$version-linux-$1
        directory=$work/archives/$name
        install -D -m 755 -t "$directory" "$programs/$1/$program"
        install -D -m 644 -t "$directory" "$source/LICENSE"
        if [ "$program" = octavo ]; then
            install -D -m 644 -t "$directory/man" "$programs/man"/octavo*.1
            install -D -m 644 -t "$directory/completions" "$work/completions"/*
        else
            install -D -m 644 -t "$directory/man" "$programs/man/$program.8"
        fi
        pack "$name.tar.gz" "$work/archives" "$name"
    done
    # krew expects the files without a directory.
    directory=$work/plugin/$1
    install -D -m 755 -T "$programs/$1/octavo" "$directory/kubectl-octavo"
    install -D -m 644 -t "$directory" "$source/LICENSE"
    pack "kubectl-octavo-$version-linux-$1.tar.gz" "$directory" LICENSE kubectl-octavo
}

# dependencies PROGRAM: prints the Debian packages of the libraries that it is linked with
dependencies() {
    local highest
    highest=$(readelf --wide --version-info "$1" | grep -o 'GLIBC_[0-9][0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
    printf 'libc6 (>= %s)' "$highest"
    if readelf --wide --dynamic "$1" | grep -q 'libgcc_s\.so\.1'; then printf ', libgcc-s1 | libgcc1'; fi
}

# debian ARCHITECTURE: the Debian package of the command line
debian() {
    local root=$work/debian/$1 page
    # A tilde sorts a pre-release before its release.
    local debian_version=${version/-/\~}
    install -D -m 755 -t "$root/usr/bin" "$programs/$1/octavo"
    ln -s octavo "$root/usr/bin/kubectl-octavo"
    install -d "$root/usr/share/man/man1"
    for page in "$programs/man"/octavo*.1; do gzip -9n <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"; done
    ln -s octavo.1.gz "$root/usr/share/man/man1/kubectl-octavo.1.gz"
    install -D -m 644 -T "$work/completions/octavo.bash" "$root/usr/share/bash-completion/completions/octavo"
    install -D -m 644 -t "$root/usr/share/zsh/vendor-completions" "$work/completions/_octavo"
    install -D -m 644 -t "$root/usr/share/fish/vendor_completions.d" "$work/completions/octavo.fish"
    install -d "$root/usr/share/doc/octavo" "$root/DEBIAN"
    cat >"$root/usr/share/doc/octavo/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: octavo

Files: *
Copyright: $(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y) Octavo contributors
License: Apache-2.0
 On Debian systems, the text of this license is in /usr/share/common-licenses/Apache-2.0.
TEXT
    gzip -9n >"$root/usr/share/doc/octavo/changelog.gz" <<TEXT
octavo ($debian_version) unstable; urgency=medium

  * Release $version. CHANGELOG.md in the source lists the changes.

 -- Octavo contributors <maintainers@octavo.invalid>  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
TEXT
    cat >"$root/DEBIAN/control" <<TEXT
Package: octavo
Version: $debian_version
Architecture: $1
Maintainer: Octavo contributors <maintainers@octavo.invalid>
Installed-Size: $(du --apparent-size --block-size=1024 --summarize --exclude=DEBIAN "$root" | cut -f 1)
Depends: $(dependencies "$programs/$1/octavo")
Section: admin
Priority: optional
Description: command line of Octavo, for accelerators in Kubernetes clusters
 Inspects the GPUs and other accelerators of a machine, plans and applies MIG
 layouts, and queries the fleet of a cluster. Also works as the kubectl plugin
 "kubectl octavo".
TEXT
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    # With several threads, xz writes different bytes.
    dpkg-deb --root-owner-group -Zxz "-z$level" --threads-max=1 --build "$root" "$out/octavo_${version}_$1.deb" >/dev/null
}

# chart: the chart as an archive, without the files that .helmignore lists. `helm package` would add the current time.
chart() {
    local ignored
    mkdir -p "$work/chart"
    cp -r "$source/deploy/chart/octavo" "$work/chart"
    while IFS= read -r ignored; do rm -rf "$work/chart/octavo/${ignored:?}"; done <"$source/deploy/chart/octavo/.helmignore"
    pack "octavo-$version.tgz" "$work/chart" octavo
}

# plugin: the manifest for krew
plugin() {
    local architecture archive
    cat <<TEXT
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: octavo
spec:
  version: v$version
  shortDescription: Show and partition the accelerators of a fleet
  description: |
    Octavo shows the GPUs and other accelerators of a cluster: types, free
    capacity, usage by pod, and why devices are unavailable. It plans and
    applies MIG layouts, and creates hardware profiles.
  caveats: |
    Fleet commands need the aggregator of Octavo in the cluster. "kubectl
    octavo catalog" and "kubectl octavo plan --from" work without it.
  platforms:
TEXT
    for architecture in "${architectures[@]}"; do
        archive=kubectl-octavo-$version-linux-$architecture.tar.gz
        cat <<TEXT
  - selector:
      matchLabels:
        os: linux
        arch: $architecture
    uri: ${url%/}/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d ' ' -f 1)
    bin: kubectl-octavo
TEXT
    done
}

for architecture in "${architectures[@]}"; do
    say "packaging the programs for $architecture"
    archives "$architecture"
    debian "$architecture"
done
say "packaging the chart"
chart
[ -z "$url" ] || plugin >"$out/octavo.yaml"
