#!/usr/bin/env bash
# up.sh [NODE-INDEX...]: starts a cluster with these nodes (default: without nodes), which runs until down.sh stops it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
. "$here/nodes.sh"
if curl -fsSo /dev/null --max-time 5 --cacert "$PKI/ca.crt" "$SERVER/readyz" 2>/dev/null; then
  echo "already running: export KUBECONFIG=$KUBECONFIG"
  exit
fi
need etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet
as_root "$@"
case $ADDR in 127.*) ;; *) take_lock alone ;; esac
up
for index; do up_node "$index"; done
hand_over
echo "ready: export KUBECONFIG=$KUBECONFIG PATH=$BIN:\$PATH"
