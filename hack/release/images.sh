#!/usr/bin/env bash
# images.sh SOURCE PROGRAMS VERSION OUT WORK: writes octavo-agent-VERSION.oci.tar and octavo-aggregator-VERSION.oci.tar to OUT.
#
# Each archive contains an image index with the images of all architectures in PROGRAMS. WORK receives the manifest of each image and
# Debian's control data of each base. hack/release.sh calls this script.
set -euo pipefail
umask 022
readonly source=$1 programs=$2 version=$3 out=$4 work=$5
say() { printf '==> %s\n' "$*" >&2; }

# add_blob LAYOUT FILE: moves a file into an image layout and prints its digest
add_blob() {
    local digest
    digest=$(sha256sum "$2" | cut -d ' ' -f 1)
    mv "$2" "$1/blobs/sha256/$digest"
    echo "sha256:$digest"
}

# merge IMAGE: writes the archive of an image from those of its architectures
merge() {
    local image=$1 architecture archive layout=$work/layout descriptor digest name entries='[]'
    rm -rf "$layout"
    mkdir -p "$layout/blobs/sha256" "$work/archive"
    for architecture in "${architectures[@]}"; do
        archive=$work/$architecture/$image.oci.tar
        tar -xf "$archive" -C "$layout"
        descriptor=$(jq '.manifests[0]' "$layout/index.json")
        name=$(jq -r '.annotations["org.opencontainers.image.ref.name"]' <<<"$descriptor")
        digest=$(jq -r .digest <<<"$descriptor")
        cp "$layout/blobs/${digest/://}" "$work/octavo-$image-$version-image-$architecture"
        entries=$(jq --argjson descriptor "$descriptor" --arg architecture "$architecture" \
            '. + [($descriptor | {mediaType, digest, size, platform: {architecture: $architecture, os: "linux"}})]' <<<"$entries")
    done
    jq --null-input --compact-output --argjson entries "$entries" \
        '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: $entries}' >"$work/index"
    jq --null-input --compact-output --argjson size "$(stat -c %s "$work/index")" --arg name "$name" \
        --arg digest "$(add_blob "$layout" "$work/index")" \
        '{schemaVersion: 2, manifests: [{mediaType: "application/vnd.oci.image.index.v1+json", digest: $digest, size: $size,
          annotations: {"org.opencontainers.image.ref.name": $name}}]}' >"$layout/index.json"
    tar --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
        -C "$layout" -cf "$out/octavo-$image-$version.oci.tar" blobs index.json oci-layout
    rm -rf "$layout"
}

architectures=()
for architecture in amd64 arm64; do
    [ -d "$programs/$architecture" ] || continue
    architectures+=("$architecture")
    say "building the images for $architecture"
    mkdir -p "$work/$architecture"
    "$source/hack/image.sh" --binaries "$programs/$architecture" --architecture "$architecture" --out "$work/$architecture" >&2
    tar -xf "$("$source/hack/image-base.sh" "$architecture")" -C "$work/$architecture" ./var/lib/dpkg/status.d
done
for image in agent aggregator; do merge "$image"; done
