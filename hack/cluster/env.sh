# shellcheck shell=bash disable=SC2034 # the sourcing scripts use these variables
# Directories and addresses of a test cluster, and functions that start and stop its programs. Every script sources this.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
D=${CLUSTER_DIR:-$here/../../target/cluster}
mkdir -p "$D"
D=$(cd "$D" && pwd)
PKI=$D/pki
LOG=$D/log
RUN=$D/run # pid files, sockets
mkdir -p "$PKI" "$LOG" "$RUN"

# The service address, added to the loopback device. With an address in 127.0.0.0/8 there is only an API, without pods or privileges.
ADDR=${CLUSTER_ADDR:-10.96.0.1}
PORT=${CLUSTER_PORT:-443}
case $ADDR in 127.*) LOCAL=$ADDR ;; *) LOCAL=127.0.0.1 ;; esac
ETCD=http://$LOCAL:${CLUSTER_ETCD_PORT:-2379}
ETCD_PEER=http://$LOCAL:${CLUSTER_ETCD_PEER_PORT:-2380}
CONTROLLER_MANAGER_PORT=${CLUSTER_CONTROLLER_MANAGER_PORT:-10257}
SCHEDULER_PORT=${CLUSTER_SCHEDULER_PORT:-10259}
SERVER=https://$ADDR:$PORT
# The service network contains the service address. Node N has the address $NODE_NETWORK.N, and its pods have $POD_NETWORK.N.0/24.
case $ADDR in 127.*) SERVICE_NETWORK=10.96 ;; *) SERVICE_NETWORK=${ADDR%.*.*} ;; esac
NODE_NETWORK=${CLUSTER_NODE_NETWORK:-10.98.0}
POD_NETWORK=${CLUSTER_POD_NETWORK:-10.97}
# Name of the parent cgroup, and prefix of the nodes' bridges.
CGROUP=${CLUSTER_CGROUP:-test-cluster}
BRIDGE=${CLUSTER_BRIDGE:-cni}
# Programs to run: "api" is etcd and kube-apiserver, "all" adds kube-controller-manager and kube-scheduler.
PARTS=${CLUSTER_PARTS:-all}
# Start timeout in seconds, long enough for a busy machine.
PATIENCE=${CLUSTER_PATIENCE:-300}
# Held by etcd of the only cluster on this machine with these addresses outside 127.0.0.0/8, and the command that stops this cluster.
LOCK=${CLUSTER_LOCK:-/run/octavo-test-cluster.lock}
STOP_COMMAND=${CLUSTER_STOP_COMMAND:-make cluster-down}
export KUBECONFIG=$PKI/admin.kubeconfig KUBECACHEDIR=$D/kubectl

# need PROGRAM...: adds the directory of these programs to PATH; builds them the first time
need() {
  BIN=${CLUSTER_BIN:-$("$here/build.sh" "$@")} || return 1
  export PATH=$BIN:$PATH
}

# as_root "$@": restarts the script as root if the cluster needs its own addresses; call it after `need`, so that the user builds the programs
as_root() {
  local settings=("PATH=$PATH") name
  case $ADDR in 127.*) return ;; esac
  [ "$EUID" != 0 ] || return 0
  CLUSTER_DIR=$D CLUSTER_BIN=${BIN:-}
  for name in $(compgen -v CLUSTER_) APISERVER_FLAGS CONTROLLER_MANAGER_FLAGS KUBELET_FLAGS KUBELET_CONFIG; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
  done
  exec sudo env "${settings[@]}" "$0" "$@"
}

# hand_over: gives the keys and logs to the user who called sudo
hand_over() { [ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID" "$PKI" "$LOG"; }

# Command prefix of every program.
WITH=()

# start NAME COMMAND...: starts COMMAND in the background, with its pid in $RUN/NAME.pid and its output in $LOG/NAME.log
start() {
  local name=$1
  shift
  kill_now "$name" # a second start would overwrite the pid of the first one
  # File 9 is the lock, which only etcd must hold.
  if [ "$name" = etcd ]; then setsid "${WITH[@]}" "$@" >>"$LOG/$name.log" 2>&1 </dev/null &
  else setsid "${WITH[@]}" "$@" >>"$LOG/$name.log" 2>&1 </dev/null 9>&- &
  fi
  echo $! >"$RUN/$name.pid"
}

# wait_for NAME COMMAND...: waits until COMMAND succeeds; fails early if NAME has exited
wait_for() {
  local until=$((SECONDS + PATIENCE)) name=$1
  shift
  until "$@" >/dev/null 2>&1 </dev/null; do
    if ! kill -0 "$(cat "$RUN/$name.pid")" 2>/dev/null; then
      echo "$name exited:" >&2
      tail -n 20 "$LOG/$name.log" >&2
      return 1
    fi
    if [ $SECONDS -ge $until ]; then
      echo "$name: not ready after $PATIENCE seconds:" >&2
      tail -n 20 "$LOG/$name.log" >&2
      return 1
    fi
    sleep 0.1
  done
}

# ours PID: whether the process belongs to this cluster; another process may have reused the number in an old file
ours() { jobs -p | grep -qx "$1" || grep -qaF "$D/" "/proc/$1/cmdline" 2>/dev/null; }

# kill_now NAME: kills it immediately, because the data is deleted as well; returns when it has exited
kill_now() {
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 0
  if ours "$pid"; then
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true # returns immediately if it is not a child of this shell
    while grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
  fi
  rm -f "$RUN/$1.pid"
}
