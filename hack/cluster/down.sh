#!/usr/bin/env bash
# down.sh [NODE]: ends what up.sh and node.sh started and takes the leftovers away, or those of one node only.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
. "$here/nodes.sh"
as_root "$@"
if [ $# -gt 0 ]; then down_node "$1"; else down; fi
