#!/usr/bin/env bash
# Brings up a control plane that stays until down.sh: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
case $ADDR in 127.*) ;; *) take_lock alone ;; esac
up
echo "control plane ready: export KUBECONFIG=$KUBECONFIG"
