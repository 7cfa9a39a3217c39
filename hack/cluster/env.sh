# shellcheck shell=bash disable=SC2034 # those who read this use what it sets
# Where a test cluster lives, which addresses it has, and how its programs are started and ended. Every script reads this.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
D=${CLUSTER_DIR:-$here/../../target/cluster}
mkdir -p "$D"
D=$(cd "$D" && pwd)
PKI=$D/pki
LOG=$D/log
RUN=$D/run # pid files, sockets
mkdir -p "$PKI" "$LOG" "$RUN"

# The service address, given to the loopback device; with one of 127.0.0.0/8 there is an API and no pods, and no privilege is needed.
ADDR=${CLUSTER_ADDR:-10.96.0.1}
PORT=${CLUSTER_PORT:-443}
case $ADDR in 127.*) LOCAL=$ADDR ;; *) LOCAL=127.0.0.1 ;; esac
ETCD=http://$LOCAL:${CLUSTER_ETCD_PORT:-2379}
ETCD_PEER=http://$LOCAL:${CLUSTER_ETCD_PEER_PORT:-2380}
CONTROLLER_MANAGER_PORT=${CLUSTER_CONTROLLER_MANAGER_PORT:-10257}
SCHEDULER_PORT=${CLUSTER_SCHEDULER_PORT:-10259}
SERVER=https://$ADDR:$PORT
# What runs: "api" is etcd and kube-apiserver, "all" adds kube-controller-manager and kube-scheduler.
PARTS=${CLUSTER_PARTS:-all}
# On a machine where everything else runs too; only a start that will never be waits that long.
PATIENCE=${CLUSTER_PATIENCE:-300}
# Held by etcd of the one cluster on this machine that has an address of its own.
LOCK=${CLUSTER_LOCK:-/run/octavo-test-cluster.lock}
export KUBECONFIG=$PKI/admin.kubeconfig

# need PROGRAM...: puts the folder that has them into PATH; the first time that may be a build
need() {
  BIN=${CLUSTER_BIN:-$("$here/build.sh" "$@")} || return 1
  export PATH=$BIN:$PATH
}

# start NAME COMMAND...: in the background, pid in $RUN/NAME.pid, output in $LOG/NAME.log
start() {
  local name=$1
  shift
  kill_now "$name" # a second one would make the first one's pid forgotten
  # File 9 is the lock, which only etcd shall hold.
  if [ "$name" = etcd ]; then setsid "$@" >>"$LOG/$name.log" 2>&1 </dev/null &
  else setsid "$@" >>"$LOG/$name.log" 2>&1 </dev/null 9>&- &
  fi
  echo $! >"$RUN/$name.pid"
}

# wait_for NAME COMMAND...: until COMMAND succeeds; fails early if NAME has died
wait_for() {
  local until=$((SECONDS + PATIENCE)) name=$1
  shift
  until "$@" >/dev/null 2>&1 </dev/null; do
    if ! kill -0 "$(cat "$RUN/$name.pid")" 2>/dev/null; then
      echo "$name died:" >&2
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

# ours PID: whether the process is of this cluster; a number in an old file may be somebody else's by now
ours() { jobs -p | grep -qx "$1" || grep -qaF "$D/" "/proc/$1/cmdline" 2>/dev/null; }

# kill_now NAME: at once, for the data goes too; returns when it is gone
kill_now() {
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 0
  if ours "$pid"; then
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true # returns at once where it is no child of this shell
    while grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
  fi
  rm -f "$RUN/$1.pid"
}
