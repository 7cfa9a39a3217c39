#!/usr/bin/env bash
# supervise.sh [NODE-INDEX...]: runs a cluster until the standard input of this program closes.
#
# The kernel closes the pipe when the test process ends for any reason, including SIGKILL; then everything is stopped and
# $CLUSTER_DIR is removed. Prints "ready" when the cluster is ready, and then answers each line "stop", "start" (kube-apiserver alone),
# "rotate" (a new certificate authority), "kubelet NODE" (restart), "image NODE NAME ROOT ENTRYPOINT", "archive NODE FILE" or
# "name NODE IMAGE NAME" with "done" or "failed".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
. "$here/nodes.sh"
trap '' PIPE # without a reader, the cleanup still runs
trap 'exit 1' INT TERM HUP
# If this process is killed, its programs are, too; only directories and pods remain.
WITH=(setpriv --pdeathsig KILL)
end() {
  set +e
  down
  rm -rf "$D"
}

case $ADDR in
  127.*) trap end EXIT ;;
  *)
    # Until this script holds the lock, this address belongs to another cluster.
    trap 'rm -rf "$D"' EXIT
    take_lock attended
    trap end EXIT
    ;;
esac
up
for index; do up_node "$index" >&2; done
hand_over
echo ready
while read -r command arguments; do
  # shellcheck disable=SC2086 # words
  if case $command in
    stop) kill_now kube-apiserver ;;
    start) start_apiserver ;;
    rotate) rotate ;;
    kubelet) start_kubelet "$arguments" "$NODE_NETWORK.${arguments#node-}" >&2 ;;
    image) image $arguments >&2 ;;
    archive) image_archive $arguments >&2 ;;
    name) image_name $arguments >&2 ;;
    *) false ;;
  esac; then echo 'done'; else echo failed; fi
done
