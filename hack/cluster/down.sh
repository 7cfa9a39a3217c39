#!/usr/bin/env bash
# down.sh [NODE]: stops the cluster and removes its leftovers, or stops only one node.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
. "$here/nodes.sh"
as_root "$@"
if [ $# -gt 0 ]; then down_node "$1"; else down; fi
