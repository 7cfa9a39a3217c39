#!/usr/bin/env bash
# image.sh NODE NAME:TAG ROOT ENTRYPOINT...: imports the directory ROOT as an image into NODE, without a registry.
# image.sh NODE ARCHIVE: imports an archive of hack/image.sh, under the name in the archive.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/nodes.sh"
as_root "$@"
if [ $# -eq 2 ]; then image_archive "$@"; else image "$@"; fi
