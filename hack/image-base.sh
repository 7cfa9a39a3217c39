#!/usr/bin/env bash
# image-base.sh [amd64|arm64]: builds a base image from Debian's packages, for this machine or another architecture, and prints the path
# of its tar file as the only line on standard output.
#
# The base contains the libraries that our programs and the driver's library are linked with, the certificates of public authorities and
# the licenses. It contains no shell, no programs and no package manager. Its glibc is that of this machine, so it runs programs that were
# built here. The file is cached outside the tree, under the digests of the packages.
set -euo pipefail
say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

readonly packages=(base-files ca-certificates libc6 libgcc-s1)
recipe=$(realpath "${BASH_SOURCE[0]}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/image
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is required, because the base is built from Debian's packages"
done
native=$(dpkg --print-architecture)
architecture=${1:-$native}
case $architecture in
    amd64) triplet=x86_64-linux-gnu ;;
    arm64) triplet=aarch64-linux-gnu ;;
    *) fail "unknown architecture $architecture; amd64 and arm64 are supported" ;;
esac
apt=(apt-get -qq -o APT::Sandbox::User=root) # apt's own user cannot write to our directories
if [ "$architecture" != "$native" ]; then
    # Separate lists: those of the system remain as they are.
    state=$cache/apt-$architecture
    mkdir -p "$state/lists/partial"
    apt+=(-o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o Dir::State::status=/dev/null
        -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state")
fi

# URL, name, size and digest of each package.
offered() { "${apt[@]}" download --print-uris "${packages[@]}"; }
refresh() {
    say "apt's lists for $architecture are missing or old; fetching them"
    "${apt[@]}" update >&2 || fail "run as root, once: apt-get update"
}
offer=$(offered 2>/dev/null) || { refresh && offer=$(offered); }
stamp() { { printf '%s\n' "$offer" | cut -d ' ' -f 2- | sort; cat "$recipe"; } | sha256sum | cut -c 1-16; }

if ! [ -e "$cache/$(stamp).tar" ]; then
    mkdir -p "$cache"
    exec 8>"$cache/lock"
    flock -n 8 || { say "another process is building the base; waiting for it" && flock 8; }
fi
if ! [ -e "$cache/$(stamp).tar" ]; then
    draft=$(mktemp -d "$cache/draft.XXXXXX")
    trap 'rm -rf "$draft"' EXIT
    mkdir -p "$draft"/{debs,all,root}
    cd "$draft/debs"
    # Outdated lists name packages that no longer exist.
    "${apt[@]}" download "${packages[@]}" 2>/dev/null || { refresh && offer=$(offered) && "${apt[@]}" download "${packages[@]}"; }
    # The license of libgcc-s1 is in a package that is named after the compiler.
    "${apt[@]}" download "$(dpkg-deb -f libgcc-s1_*.deb Depends | grep -o 'gcc-[0-9]*-base')"
    say "building the base for $architecture from $(printf '%s ' *.deb)"

    cd "$draft/root"
    mkdir -p dev etc/ssl/certs proc root run sys tmp var/lib/dpkg/status.d
    for deb in ../debs/*.deb; do
        dpkg-deb -x "$deb" ../all
        # Image scanners read the list of packages from this directory.
        dpkg-deb -f "$deb" >"var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"
    done
    libraries=(libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libnss_dns.so.2 libnss_files.so.2 libpthread.so.0 libresolv.so.2
        librt.so.1 libutil.so.1)
    (
        cd ../all
        shopt -s failglob
        tar -c etc/debian_version etc/os-release usr/lib/os-release usr/share/common-licenses usr/share/doc/libgcc-s1 \
            usr/share/doc/*/copyright lib*/ld-linux*.so.* "lib/$triplet"/ld-linux*.so.* "${libraries[@]/#/lib/$triplet/}"
    ) | tar -x
    cat ../all/usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
    printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n' >etc/passwd
    printf 'root:x:0:\nnonroot:x:65532:\n' >etc/group
    # Without this file, glibc queries DNS before it reads the pod's /etc/hosts.
    printf 'hosts: files dns\n' >etc/nsswitch.conf
    chmod -R u=rwX,go=rX .
    chmod 700 root
    chmod 1777 tmp
    tar --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$draft/base.tar" .
    mv "$draft/base.tar" "$cache/$(stamp).tar"
fi
echo "$cache/$(stamp).tar"
