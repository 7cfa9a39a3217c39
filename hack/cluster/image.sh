#!/usr/bin/env bash
# image.sh NODE NAME:TAG ROOT ENTRYPOINT...: imports the folder ROOT as an image of NODE, with no registry.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/nodes.sh"
as_root "$@"
image "$@"
