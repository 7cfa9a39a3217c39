#!/usr/bin/env bash
# Builds the images of the agent and the aggregator without a daemon or a registry, checks them, and prints their sizes.
#
# buildah builds the targets prebuilt-* of Dockerfile.agent on the base of hack/image-base.sh, in a temporary storage. All mounts are in a
# private mount namespace, so none remains when the script ends, even after SIGKILL.
set -euo pipefail
PATH=$PATH:/usr/sbin # chroot
top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
usage() {
    cat <<TEXT
Builds the images of octavo-agent and octavo-aggregator from this tree, checks them, and prints their sizes.

  hack/image.sh [--profile dist|release|dev] [--binaries DIR [--architecture ARCH]] [--out DIR] [--registry PREFIX] [--tag TAG]

  --profile       Cargo profile [dist]
  --binaries      directory with prebuilt octavo, octavo-agent and octavo-aggregator; skips the build
  --architecture  amd64 or arm64: architecture of the prebuilt programs, which must be stripped if it is not that of this machine
  --out           output directory for agent.oci.tar and aggregator.oci.tar [target/image]
  --registry      prefix of /agent:TAG and /aggregator:TAG [docker.io/octavo]
  --tag           image tag [the version in Cargo.toml]

Examples:
  hack/image.sh
  hack/image.sh --registry registry.example.com/octavo --tag 0.1.0-rc1
  skopeo copy oci-archive:target/image/agent.oci.tar docker://registry.example.com/octavo/agent:0.1.0-rc1
  ctr -n k8s.io images import target/image/agent.oci.tar

Timestamps in the images are 0 (1970), or SOURCE_DATE_EPOCH. Needs buildah and jq (hack/setup.sh installs them), and root or an
entry for the current user in /etc/subuid and /etc/subgid.
TEXT
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml" | head -n 1)
native=$(dpkg --print-architecture)
profile=dist binaries='' architecture=$native out=$top/target/image registry=docker.io/octavo tag=$version
while (($#)); do
    case $1 in
        --profile) profile=${2:?--profile needs dist, release or dev} ;;
        --binaries) binaries=$(realpath -e "${2:?--binaries needs a directory}") ;;
        --architecture) architecture=${2:?--architecture needs amd64 or arm64} ;;
        --out) out=${2:?--out needs a directory} ;;
        --registry) registry=${2:?--registry needs a name} ;;
        --tag) tag=${2:?--tag needs a name} ;;
        -h | --help) usage; exit ;;
        *) fail "unknown argument $1; see hack/image.sh --help" ;;
    esac
    shift 2
done
mkdir -p "$out"
out=$(realpath "$out")
for tool in buildah dpkg jq readelf strip; do command -v "$tool" >/dev/null || fail "$tool is required; hack/setup.sh installs it"; done

if [ -z "$binaries" ]; then
    [ "$architecture" = "$native" ] || fail "--architecture $architecture requires --binaries; hack/release.sh builds programs for it"
    say "building the programs (profile $profile)"
    (cd "$top" && cargo build --profile "$profile" --locked --bins)
    binaries=$(cd "$top" && cargo metadata --format-version 1 --no-deps --locked | jq -r .target_directory)/${profile/#dev/debug}
fi
for program in octavo octavo-agent octavo-aggregator; do
    [ -f "$binaries/$program" ] || fail "$program is missing in $binaries"
done
if [ -z "${OCTAVO_IMAGE_INSIDE:-}" ]; then
    base=$("$top/hack/image-base.sh" "$architecture")
    # Both create a mount namespace; buildah unshare also creates a user namespace in which the user is root.
    inside=(unshare --mount)
    if ((EUID != 0)); then
        inside=(buildah unshare)
        for file in /etc/subuid /etc/subgid; do grep -q "^$(id -un):" $file || fail "run this script as root, or add a line for $(id -un) to $file"; done
    fi
    OCTAVO_IMAGE_INSIDE=$base exec "${inside[@]}" "$0" --binaries "$binaries" --architecture "$architecture" \
        --out "$out" --registry "$registry" --tag "$tag"
fi
readonly base=$OCTAVO_IMAGE_INSIDE

work=$(mktemp -d)
driver=overlay
store() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver "$driver" "$@"; }
end() {
    # A remaining container would keep its directory mounted.
    store rm -a >/dev/null 2>&1 || true
    if mountpoint -q "$work/storage/$driver"; then umount "$work/storage/$driver"; fi
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

# Some environments, such as some containers, do not allow overlay mounts. In a user namespace, overlay mounts add extended attributes
# to the layers, so the digests would differ from those of other builds.
probe() { grep -q '^ *0 *0 ' /proc/self/uid_map && store mount "$(store from scratch)"; }
if ! probe >/dev/null 2>&1; then
    say "overlay mounts are not available; copying whole layers, which takes longer"
    driver=vfs
fi

import_base() {
    local container
    container=$(store from --arch "$architecture" scratch)
    store config --arch "$architecture" "$container"
    store add --quiet "$container" "$base" / >/dev/null
    store config --env PATH=/usr/local/bin:/usr/bin:/bin "$container"
    store commit --quiet --timestamp 0 --identity-label=false --format oci "$container" localhost/octavo/base:latest >/dev/null
    store rm "$container" >/dev/null
}

# programs IMAGE: prints the programs of the image
programs() { case $1 in agent) echo octavo octavo-agent ;; aggregator) echo octavo-aggregator ;; esac; }

# build IMAGE: builds the image in the storage and prints its ID, the digest of its complete content
build() {
    local image=$1 context program
    context=$(mktemp -d "$work/context.XXXXXX")
    install -m 644 "$top/LICENSE" "$context"
    for program in $(programs "$image"); do
        install -m 755 "$work/stripped/$program" "$context"
    done
    store bud --quiet --arch "$architecture" --isolation chroot --pull-never --no-cache --layers --timestamp "${SOURCE_DATE_EPOCH:-0}" --identity-label=false \
        --format oci --build-arg RUNTIME_BASE=localhost/octavo/base:latest --build-arg "VERSION=$version" --target "prebuilt-$image" \
        --tag "$registry/$image:$tag" --file "$top/Dockerfile.agent" "$context"
    rm -rf "$context"
}

# export_image IMAGE: writes its archive
export_image() {
    local archive=$out/$1.oci.tar
    rm -f "$archive" # otherwise buildah adds the image to the existing archive
    store push --quiet "$registry/$1:$tag" "oci-archive:$archive:$registry/$1:$tag"
}

# unpack IMAGE ARCHIVE: prints the digest of the manifest; writes manifest, configuration and the list of files above the base to $work/IMAGE
unpack() {
    local image=$1 folder=$work/$1 digest layer
    rm -rf "$folder"
    mkdir -p "$folder/all"
    tar -xf "$2" -C "$folder/all"
    blob() { echo "$folder/all/blobs/${1/:/\/}"; }
    digest=$(jq -r '.manifests[0].digest' "$folder/all/index.json")
    mv "$(blob "$digest")" "$folder/manifest.json"
    mv "$(blob "$(jq -r .config.digest "$folder/manifest.json")")" "$folder/config.json"
    for layer in $(jq -r '.layers[1:][].digest' "$folder/manifest.json"); do tar -tzf "$(blob "$layer")"; done | grep -v '/$' | sort >"$folder/contents"
    rm -rf "$folder/all"
    echo "$digest"
}

# run_programs IMAGE ROOT: starts the programs in the image. With chroot instead of buildah, which sometimes fails to start on a busy machine.
run_programs() {
    local image=$1 root=$2 loader program said
    local -a inside=(chroot --userspec=65532:65532 "$root")
    loader=$(find "$root" -name 'ld-linux*.so.*' -type f -printf '/%P\n')
    for program in $(programs "$image"); do
        said=$("${inside[@]}" "$loader" --list "/usr/local/bin/$program") || fail "$image: $program lacks libraries: $said"
        said=$("${inside[@]}" "/usr/local/bin/$program" --version) || fail "$image: $program does not start"
        [ "$said" = "$program $version" ] || fail "$image: $program reports version '$said', expected $version"
    done
}

# check_libraries IMAGE ROOT: checks what can be checked of programs that this machine cannot run
check_libraries() {
    local image=$1 root=$2 program file
    for program in $(programs "$image"); do
        for file in $(needed "$root/usr/local/bin/$program"); do
            [ -n "$(find "$root" -name "$file" -print -quit)" ] || fail "$image: $program needs $file, which the image does not contain"
        done
    done
}
# needed PROGRAM: prints the names of its loader and libraries
needed() { readelf --wide --dynamic --program-headers "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p; s/.*program interpreter: .*\/\(.*\)\]/\1/p'; }

# check IMAGE: checks the properties that users rely on
check() {
    local image=$1 container root said
    local -a programs
    read -ra programs <<<"$(programs "$image")"
    say "checking $image"
    jq -e --arg architecture "$architecture" '.architecture == $architecture' "$work/$image/config.json" >/dev/null ||
        fail "$image: the image is not for $architecture"
    jq -e '.config.User == "65532:65532"' "$work/$image/config.json" >/dev/null || fail "$image: the user is not 65532"
    jq -e --arg program "/usr/local/bin/octavo-$image" '.config.Entrypoint == [$program] and .config.Cmd == null' "$work/$image/config.json" \
        >/dev/null || fail "$image: the entry point is not its program"
    diff "$work/$image/contents" <(printf '%s\n' "${programs[@]/#/usr/local/bin/}" usr/share/doc/octavo/LICENSE | sort) >&2 ||
        fail "$image: unexpected files above the base (< found, > expected)"
    container=$(store from --arch "$architecture" --pull-never "$registry/$image:$tag")
    root=$(store mount "$container")
    cmp "$root/usr/share/doc/octavo/LICENSE" "$top/LICENSE" || fail "$image: the license file differs"
    # This also excludes a shell.
    said=$(find "$root" -type f -perm /111 ! -name '*.so.*' -printf '%P\n' | sort)
    [ "$said" = "$(printf '%s\n' "${programs[@]/#/usr/local/bin/}" | sort)" ] || fail "$image: the executables are not exactly the expected programs: $said"
    said=$(find "$root" -type f -perm /6000)
    [ -z "$said" ] || fail "$image: setuid or setgid program: $said"
    if [ "$architecture" = "$native" ]; then run_programs "$image" "$root"; else check_libraries "$image" "$root"; fi
    store rm "$container" >/dev/null
}

# number N: prints N with thousands separators
number() { sed ':more; s/\B[0-9]\{3\}\>/,&/; t more' <<<"$1"; }

mkdir "$work/stripped" # programs without debug information
for program in octavo octavo-agent octavo-aggregator; do
    if [ "$architecture" = "$native" ]; then
        strip -o "$work/stripped/$program" "$binaries/$program"
    else
        cp "$binaries/$program" "$work/stripped"
    fi
done
import_base
rows=()
for image in agent aggregator; do
    say "building $image"
    id=$(build "$image")
    export_image "$image"
    digest=$(unpack "$image" "$out/$image.oci.tar")
    check "$image"
    say "building $image again to compare"
    again=$(build "$image")
    [ "$id" = "$again" ] || fail "$image: the build is not reproducible: $id and $again"
    below=$(jq '.layers[0].size' "$work/$image/manifest.json")
    all=$(jq '[.config.size, .layers[].size] | add' "$work/$image/manifest.json")
    rows+=("$(printf '| %-10s | %12s | %12s | %s |' "$image" "$(number "$all")" "$(number $((all - below)))" "$digest")")
done
printf '| %-10s | %12s | %12s | %-71s |\n' image 'bytes' 'over base' 'digest'
printf '|%s|%s:|%s:|%s|\n' ------------ ------------- ------------- -------------------------------------------------------------------------
printf '| %-10s | %12s | %12s | %-71s |\n' base "$(number "$below")" '' "${base##*/}"
printf '%s\n' "${rows[@]}"
