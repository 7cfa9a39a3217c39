#!/usr/bin/env bash
# Runs a Kubernetes cluster with two nodes and simulated GPUs on this machine, and installs Octavo from this tree with the chart.
#
# hack/cluster/supervise.sh runs the cluster until its standard input closes. The kernel closes it when this script ends for any reason, so
# the cluster is removed even after `kill -9` of this script. --down removes what remains if the supervisor is killed as well.
set -euo pipefail
top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/go/bin:$PATH:/usr/sbin
readonly top D=${TRY_DIR:-$top/target/try} namespace=octavo-system
readonly log=$D.log cluster=$top/hack/cluster files=$top/hack/try
# Addresses, ports and names other than those of the test cluster, so that both can run.
readonly service=10.196.0.1 nodes=10.198.0 lock=/run/octavo-try.lock
readonly settings=(
    CLUSTER_DIR="$D" CLUSTER_ADDR="$service" CLUSTER_NODE_NETWORK="$nodes" CLUSTER_POD_NETWORK=10.197 CLUSTER_CGROUP=octavo-try
    CLUSTER_BRIDGE=octavo-try CLUSTER_ETCD_PORT=12379 CLUSTER_ETCD_PEER_PORT=12380 CLUSTER_CONTROLLER_MANAGER_PORT=20257
    CLUSTER_SCHEDULER_PORT=20259 CLUSTER_LOCK="$lock" CLUSTER_LOCK_PATIENCE=5 CLUSTER_STOP_COMMAND="make try-down"
)

say() { printf '==> %3d s: %s\n' "$SECONDS" "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
usage() {
    cat <<TEXT
Runs a Kubernetes cluster with two nodes and simulated GPUs on this machine, with Octavo installed, until Ctrl-C.

  hack/try.sh           start the cluster; with TRY_SECONDS=60, stop it after 60 s
  hack/try.sh --list    print the commands to try
  hack/try.sh --down    stop the cluster, and remove the remains of an interrupted run

Needs root or sudo, Linux on x86-64, and the tools that hack/setup.sh installs. The cluster uses the networks 10.196.0.0/16, 10.197.0.0/16
and 10.198.0.0/24 of this machine. Its files are in target/try (TRY_DIR), and are removed at the end; target/try.log remains.
TEXT
}

# The commands to try. docs/get-started/try-on-kubernetes.md explains them, and tests/it-cluster runs them.
list() {
    cat <<'TEXT'
# show the GPU type and the number of GPUs of each node
kubectl get nodes -L octavo.dev/type,octavo.dev/count
# show the fleet; octavo needs only the kubeconfig
octavo nodes
# show the versions of the command, the aggregator and the agents
octavo version
# in another terminal: show changes of the fleet; Ctrl-C exits
octavo watch
# select a layout that splits each GPU of node-1 into two partitions, and wait for it
kubectl label node node-1 octavo.dev/layout=halves
kubectl wait node node-1 --for=jsonpath='{.metadata.labels.octavo\.dev/layout-state}'=applied --timeout=2m
octavo node node-1
# run a pod that requests one partition (nvidia.com/mig-3g.40gb)
kubectl apply -f hack/try/pod.yaml
kubectl wait pod trainer --for=condition=Ready --timeout=2m
# select another layout: seven GPUs change; the GPU of the pod is blocked, because its partition is in use
kubectl label node node-1 octavo.dev/layout=small --overwrite
kubectl wait node node-1 --for=jsonpath='{.metadata.labels.octavo\.dev/layout-state}'=blocked --timeout=2m
octavo node node-1
# show usage by pod; Ctrl-C exits
octavo top
# delete the pod: the agent completes the layout
kubectl delete pod trainer
kubectl wait node node-1 --for=jsonpath='{.metadata.labels.octavo\.dev/layout-state}'=applied --timeout=2m
octavo availability
# let a policy choose the layout of all nodes with a type, instead of node by node
kubectl label node node-1 octavo.dev/layout-
octavo policy apply -f hack/try/policy.yaml --yes
kubectl wait node node-1 --for=jsonpath='{.metadata.labels.workload-type}'=inference --timeout=2m
kubectl wait acceleratorpolicy inference --for=condition=Complete --timeout=2m
octavo policy status inference
# delete the policy: its labels are removed, and the partitions stay
kubectl delete acceleratorpolicy inference
# in another terminal: forward the port of the web pages; Ctrl-C exits
kubectl -n octavo-system port-forward service/octavo-aggregator 8443
# read a web page with a token of the account octavo-reader
TOKEN=$(kubectl -n octavo-system create token octavo-reader)
CA=$(kubectl -n octavo-system get configmap octavo-aggregator-ca -o jsonpath='{.data.ca\.crt}')
curl --fail --cacert <(echo "$CA") -H "Authorization: Bearer $TOKEN" https://localhost:8443/
TEXT
}

# needs_root: sets `root` to the prefix of commands that need root
needs_root() {
    root=()
    ((EUID == 0)) && return
    command -v sudo >/dev/null || fail "containerd and kubelet need root: run this as root, or install sudo"
    root=(sudo)
    sudo true || fail "containerd and kubelet need root, and sudo is not allowed: run this as root"
}

# check_tools: fails if something is missing on this machine
check_tools() {
    local tool missing=()
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "the cluster needs Linux on x86-64; this machine has $(uname -sm)"
    for tool in "${CARGO:-cargo}" gcc go jq openssl curl ip containerd ctr runc buildah setpriv; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) || fail "missing programs: ${missing[*]}. hack/setup.sh installs all of them except cargo (rustup installs it)"
    [ -x /usr/lib/cni/bridge ] || fail "the CNI plugins are missing in /usr/lib/cni; hack/setup.sh installs them"
    "${root[@]}" test -w /proc/sys/net/ipv4/ip_forward || fail "this container cannot change the network; run it with more privileges (docker run --privileged)"
    # Sockets have at most 107 characters: $D/nodes/node-1/kubelet/…/kubelet.sock is the longest.
    ((${#D} <= 60)) || fail "the path $D is too long for sockets; set TRY_DIR to a shorter one"
}

# is_running: whether a try.sh with this directory is running
is_running() {
    local pid
    pid=$(cat "$D/try.pid" 2>/dev/null) && grep -qaF try.sh "/proc/$pid/cmdline" 2>/dev/null
}

# remove_leftovers: removes the cluster of a run that was killed
remove_leftovers() {
    local pid
    [ -d "$D" ] || return 0
    say "removing the remains of an interrupted run"
    # The supervisor removes everything itself as soon as its input closes.
    pid=$(cat "$D/supervisor.pid" 2>/dev/null || echo none)
    while grep -qaF supervise.sh "/proc/$pid/cmdline" 2>/dev/null; do sleep 0.2; done
    [ -d "$D" ] || return 0
    "${root[@]}" env "PATH=$PATH" "${settings[@]}" "CLUSTER_BIN=${kubernetes:-}" "$cluster/down.sh" >>"$log" 2>&1 || true
    "${root[@]}" rm -rf "$D"
}

down() {
    needs_root
    if is_running; then
        say "stopping the cluster"
        "${root[@]}" kill "$(cat "$D/try.pid")" || true
        while is_running; do sleep 0.2; done
    fi
    remove_leftovers
    say "no cluster of make try is left"
}

# order WORD...: sends an order to the supervisor and waits for its result
order() {
    local result=
    echo "$*" >&"${supervisor[1]}"
    read -r result <&"${supervisor[0]}" || true
    [ "$result" = 'done' ] || fail "the order '$*' failed; see $log"
}

# end: stops the cluster, which the supervisor removes
end() {
    set +e
    trap '' INT TERM HUP
    kill ${forwarder:+"$forwarder"} ${installer:+"$installer"} ${timer:+"$timer"} 2>/dev/null
    if [ -n "${cluster_pid:-}" ]; then
        say "removing the cluster"
        # Bash removes this variable when the supervisor ends.
        local to=${supervisor[1]:-}
        if [ -n "$to" ]; then exec {to}>&-; fi
        wait "$cluster_pid"
    fi
    "${root[@]}" rm -rf "$D"
    say "nothing is left, except the log $log"
}

# machine NODE: creates the simulated machine of a node, and makes the container runtime add its driver to containers as NVIDIA's does
machine() {
    local node=$1 directory=$D/machines/$1
    mkdir -p "$directory" "$D/nodes/$node"
    cp "$files/$node.yaml" "$directory/nvml-sim.yaml"
    cp "$programs/libnvml_sim.so" "$directory/libnvidia-ml.so.1"
    "$programs/nvml-simctl" --state "$directory/nvml-sim.state" init "$directory/nvml-sim.yaml"
    "$programs/nvml-simctl" --state "$directory/nvml-sim.state" sysfs "$directory"
    # Every user can open device files of the driver.
    chmod -R a+rwX "$directory"
    cat >"$D/nodes/$node/nvidia.jq" <<JQ
.mounts += [{destination: "/run/nvidia/driver/usr/lib64", type: "bind", source: "$directory", options: ["rbind", "rw"]}]
  | .process.env += ["OCTAVO_SYS_ROOT=/run/nvidia/driver/usr/lib64/sys"]
JQ
}

# start_cluster: starts the nodes under the supervisor
start_cluster() {
    local answer=
    # Ctrl-C ends this script, which then stops the cluster.
    coproc supervisor {
        trap '' INT
        exec "${root[@]}" env "PATH=$PATH" "${settings[@]}" "CLUSTER_BIN=$kubernetes" "$cluster/supervise.sh" 1 2 2>>"$log"
    }
    # shellcheck disable=SC2154 # coproc sets it
    cluster_pid=$supervisor_PID
    echo "$cluster_pid" >"$D/supervisor.pid"
    read -r answer <&"${supervisor[0]}" || true
    if [ "$answer" != ready ]; then
        tail -n 20 "$log" >&2
        fail "the cluster did not start; see $log"
    fi
}

# forward: without kube-proxy, agents reach the Service of the aggregator at an address of node-1, from which this forwards
forward() {
    while kill -0 $$ 2>/dev/null; do
        setpriv --pdeathsig KILL kubectl -n $namespace port-forward --address "$nodes.1" service/octavo-aggregator 7443 || true
        sleep 0.5
    done >>"$log" 2>&1
}

# fail_install MESSAGE: writes the state of the pods to the log before the cluster is removed
fail_install() {
    { kubectl -n $namespace describe pods; kubectl -n $namespace logs --selector app.kubernetes.io/part-of=octavo --prefix --tail=60; } >>"$log" 2>&1 || true
    fail "$1; see $log"
}

install() {
    # The cluster has neither the GPU Operator nor Node Feature Discovery.
    kubectl apply -f - <<<'{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}' &&
        kubectl label node node-1 node-2 nvidia.com/gpu.present=true &&
        kubectl create namespace $namespace &&
        kubectl label namespace $namespace pod-security.kubernetes.io/enforce=privileged || return 1
    forward &
    forwarder=$!
    helm install octavo "$top/deploy/chart/octavo" --namespace $namespace --values "$files/values.yaml" --values "$D/values.yaml" \
        --set-file "layouts=$files/layouts.yaml" --wait --timeout 5m &
    installer=$!
    # Unlike a program in the foreground, `wait` does not delay the traps.
    wait "$installer"
} >>"$log" 2>&1

# fleet_is_complete: whether both nodes have labels and report to the aggregator
fleet_is_complete() {
    [ "$(kubectl get nodes --selector octavo.dev/type -o name | wc -l)" = 2 ] &&
        octavo version -o json | jq -e '[.agents[].nodes] | add == 2'
} >/dev/null 2>>"$log"

wait_for_fleet() {
    local until=$((SECONDS + 180))
    until fleet_is_complete; do
        ((SECONDS < until)) || fail_install "the agents do not label their nodes, or do not report to the aggregator"
        sleep 0.2
    done
}

up() {
    local node image programs
    needs_root
    check_tools
    if is_running; then fail "make try is already running with the directory $D; make try-down stops it"; fi
    remove_leftovers
    "${root[@]}" flock --nonblock "$lock" true || fail "make try is already running in another directory; stop it there with make try-down"
    mkdir -p "$(dirname "$D")"
    : >"$log"
    say "building Octavo (cargo, profile dev)"
    (cd "$top" && "${CARGO:-cargo}" build --workspace --bins --lib --locked)
    programs=${CARGO_TARGET_DIR:-$top/target}/debug
    kubernetes=$("$cluster/build.sh" etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet)
    tools=$("$top/hack/tools/build.sh")

    trap end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    mkdir -p "$D/bin"
    echo $$ >"$D/try.pid"
    export KUBECONFIG=$D/pki/admin.kubeconfig KUBECACHEDIR=$D/cache PATH=$D/bin:$PATH
    cat >"$D/env" <<ENV
export KUBECONFIG='$KUBECONFIG' KUBECACHEDIR='$KUBECACHEDIR' PATH='$D/bin':"\$PATH"
ENV
    ln -s "$kubernetes/kubectl" "$tools/helm" "$(realpath "$programs/octavo")" "$(realpath "$programs/nvml-simctl")" "$D/bin"
    say "building the images"
    "$top/hack/image.sh" --binaries "$programs" --out "$D/images" >>"$log" 2>&1 || fail "the images cannot be built; see $log"
    say "starting Kubernetes with two nodes"
    machine node-1
    machine node-2
    printf 'agent: {hostAliases: [{ip: %s, hostnames: [octavo-aggregator.%s.svc]}]}\n' "$nodes.1" $namespace >"$D/values.yaml"
    start_cluster
    say "importing the images"
    for node in node-1 node-2; do
        for image in agent aggregator; do order archive $node "$D/images/$image.oci.tar"; done
    done
    say "installing the chart"
    install || fail_install "the chart cannot be installed"
    wait_for_fleet
    say "the cluster is ready. In another terminal:"
    printf '\n  cd %q && . %q\n\n' "$top" "${D#"$top"/}/env"
    say "commands to try (docs/get-started/try-on-kubernetes.md explains them)"
    printf '\n'
    list | sed 's/^/  /'
    printf '\n'
    trap 'exit 0' INT TERM
    if [ -n "${TRY_SECONDS:-}" ]; then
        say "the cluster stops after $TRY_SECONDS seconds, or with Ctrl-C"
        sleep "$TRY_SECONDS" &
        timer=$!
    else
        say "the cluster stops with Ctrl-C, or with make try-down"
    fi
    wait -n ${timer:+"$timer"} "$cluster_pid" || true
    [ -d "/proc/$cluster_pid" ] || fail "the cluster has ended; see $log"
}

case ${1:-} in
    '') up ;;
    --list) list ;;
    --down) down ;;
    -h | --help) usage ;;
    *) fail "unknown argument $1; see hack/try.sh --help" ;;
esac
