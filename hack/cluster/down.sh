#!/usr/bin/env bash
# Ends what up.sh and node.sh started and takes the leftovers away; "down.sh NODE" ends one node only.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
if [ $# -gt 0 ]; then down_node "$1"; else down; fi
