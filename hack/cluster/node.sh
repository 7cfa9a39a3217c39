#!/usr/bin/env bash
# node.sh INDEX: adds node-INDEX to the cluster of up.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/nodes.sh"
need kubelet kubectl
as_root "$@"
up_node "${1:-1}"
