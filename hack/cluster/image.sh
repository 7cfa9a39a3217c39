#!/usr/bin/env bash
# image.sh NODE NAME:TAG ROOT ENTRYPOINT...: imports the folder ROOT as an image of NODE, with no registry.
# image.sh NODE ARCHIVE: the same with an archive, as hack/image.sh writes it, under the name that is in there.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/nodes.sh"
as_root "$@"
if [ $# -eq 2 ]; then image_archive "$@"; else image "$@"; fi
