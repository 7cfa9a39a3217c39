#!/usr/bin/env bash
# supervise.sh [NODE-INDEX...]: a cluster that lives as long as somebody holds this program's standard input open.
#
# However a test process ends, SIGKILL included, the kernel closes its end of the pipe; then everything is ended and
# $CLUSTER_DIR is removed. Says "ready" once the cluster is, and then answers each line "stop", "start" (kube-apiserver alone),
# "rotate" (a new authority), "kubelet NODE" (it is killed and started again), "image NODE NAME ROOT ENTRYPOINT", "archive NODE FILE" or
# "name NODE IMAGE NAME" with "done" or "failed".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$here/control-plane.sh"
. "$here/nodes.sh"
trap '' PIPE # nobody listens any more: still to be ended in good order
trap 'exit 1' INT TERM HUP
# Should this very process be killed, its programs are too; only folders and pods stay.
WITH=(setpriv --pdeathsig KILL)
end() {
  set +e
  down
  rm -rf "$D"
}

case $ADDR in
  127.*) trap end EXIT ;;
  *)
    # Until the lock is ours, what there is at this address is somebody else's.
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
    kubelet) start_kubelet "$arguments" "10.98.0.${arguments#node-}" >&2 ;;
    image) image $arguments >&2 ;;
    archive) image_archive $arguments >&2 ;;
    name) image_name $arguments >&2 ;;
    *) false ;;
  esac; then echo 'done'; else echo failed; fi
done
