# shellcheck shell=bash disable=SC2154 # env.sh sets what is not set here
# Nodes with a kubelet and containerd, and images for them. Source this after env.sh and control-plane.sh; requires root.
#
# Each node has its own mount namespace, in which $D/nodes/NAME/kubelet is mounted at /var/lib/kubelet and $D/nodes/NAME/octavo at
# /var/lib/octavo. Sockets therefore have their usual paths inside pods, several nodes can run on one machine, and the machine's own
# directories stay empty. Outside of the namespace, the sockets of a node are in $D/nodes/NAME/kubelet.

# Parent cgroup for the pods of kubelet, which does not create one at the top level.
make_cgroups() {
  local node=$1 c controller controllers part
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    c=/sys/fs/cgroup
    for part in "$CGROUP" "$node"; do
      read -ra controllers <"$c/cgroup.controllers"
      for controller in "${controllers[@]}"; do
        echo "+$controller" >"$c/cgroup.subtree_control" || true # some cannot be delegated
      done 2>/dev/null
      c=$c/$part
      mkdir -p "$c"
    done
    return
  fi
  for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
    c=/sys/fs/cgroup/$controller
    [ -d "$c" ] || continue
    for part in "$CGROUP" "$node"; do
      mkdir -p "$c/$part"
      if [ "$controller" = cpuset ]; then
        cat "$c/cpuset.cpus" >"$c/$part/cpuset.cpus"
        cat "$c/cpuset.mems" >"$c/$part/cpuset.mems"
      fi
      c=$c/$part
    done
  done
}

# image NODE NAME:TAG ROOT ENTRYPOINT...: imports the directory ROOT as an image into NODE, without a registry
image() {
  local node=$1 name=$2 root=$3 work layer status=0
  shift 3
  work=$(mktemp -d "$D/image.XXXXXX")
  tar -C "$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer.tar" . || return 1
  layer=$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)
  jq -cn --arg layer "sha256:$layer" --arg arch "$(dpkg --print-architecture)" '{architecture: $arch, os: "linux",
    config: {Entrypoint: $ARGS.positional, Env: ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"]},
    rootfs: {type: "layers", diff_ids: [$layer]}}' --args "$@" >"$work/config.json"
  jq -cn --arg name "$name" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' >"$work/manifest.json"
  tar -C "$work" -cf "$work/image.tar" manifest.json config.json layer.tar
  ctr -a "$RUN/$node.containerd.sock" -n k8s.io images import "$work/image.tar" || status=1
  rm -rf "$work"
  return $status
}

# image_archive NODE ARCHIVE: imports an archive of hack/image.sh into NODE, under the name in the archive
image_archive() { ctr -a "$RUN/$1.containerd.sock" -n k8s.io images import "$2"; }

# image_name NODE IMAGE NAME: gives an image of NODE a second name
image_name() { ctr -a "$RUN/$1.containerd.sock" -n k8s.io images tag --force "$2" "$3"; }

# Runtime of the RuntimeClass nvidia. Like NVIDIA's runtime, it extends the specification of containers with NVIDIA_VISIBLE_DEVICES: if
# the node's directory contains the jq program nvidia.jq, the runtime applies it to the specification.
nvidia_runtime() {
  cat >"$1/nvidia-runtime" <<SH
#!/bin/sh
spec=/ before=
for word; do
  [ "\$before" != --bundle ] || spec=\$word/config.json
  before=\$word
done
if [ -e "$1/nvidia.jq" ] && [ -f "\$spec" ] && grep -q '"NVIDIA_VISIBLE_DEVICES=' "\$spec"; then
  jq -f "$1/nvidia.jq" "\$spec" >"\$spec.new" && mv "\$spec.new" "\$spec" || exit
fi
exec runc "\$@"
SH
  chmod 755 "$1/nvidia-runtime"
}

start_containerd() {
  local index=$1 node=node-$1 N=$D/nodes/node-$1
  cat >"$N/cni/10-test.conflist" <<YAML
{"cniVersion": "0.4.0", "name": "$node", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE-$index", "isGateway": true,
   "ipam": {"type": "host-local", "dataDir": "$N/cni-ipam", "ranges": [[{"subnet": "$POD_NETWORK.$index.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "loopback"}]}
YAML
  cat >"$N/containerd.toml" <<TOML
version = 2
root = "$N/containerd/root"
state = "$N/containerd/state"
[grpc]
  address = "$RUN/$node.containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "test.invalid/pause:1"
  # Without CAP_SYS_RESOURCE, a negative score cannot be written, and runc fails ("can't get final child's PID from pipe: EOF").
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$N/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "$N/nvidia-runtime"
TOML
  nvidia_runtime "$N"
  mkdir -p /var/lib/kubelet /var/lib/octavo /run/containerd /run/netns /var/log/containers
  # shellcheck disable=SC2016 # expanded by the started shell
  start "$node.containerd" unshare --mount --propagation slave sh -ec '
    mount --bind "$1/kubelet" /var/lib/kubelet
    mount --bind "$1/octavo" /var/lib/octavo
    for private in /run/containerd /run/netns /var/log/containers; do mount -t tmpfs tmpfs "$private"; done
    shift; exec "$@"' sh "$N" containerd --config "$N/containerd.toml"
  wait_for "$node.containerd" ctr -a "$RUN/$node.containerd.sock" version
}

start_kubelet() {
  local node=$1 address=$2 N=$D/nodes/$1
  cat >"$N/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$RUN/$node.containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$node
failSwapOn: false
address: $address
healthzBindAddress: $address
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/$node.crt
tlsPrivateKeyFile: $PKI/$node.key
podLogsDir: $N/logs
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
syncFrequency: 5s
clusterDomain: cluster.local
clusterDNS: [$SERVICE_NETWORK.0.10]
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
${KUBELET_CONFIG:-}
YAML
  # shellcheck disable=SC2086 # several flags in one variable
  start "$node.kubelet" nsenter --mount="/proc/$(cat "$RUN/$node.containerd.pid")/ns/mnt" -- "$BIN/kubelet" \
    --config="$N/kubelet.yaml" --kubeconfig="$PKI/$node.kubeconfig" --hostname-override="$node" --node-ip="$address" ${KUBELET_FLAGS:-}
  wait_for "$node.kubelet" kubectl wait --for=condition=Ready --timeout=5s "node/$node"
}

# up_node INDEX: starts containerd and a kubelet that registers as node-INDEX
up_node() {
  local node=node-$1 address=$NODE_NETWORK.$1
  need kubelet kubectl || return 1
  mkdir -p "$D/nodes/$node/kubelet" "$D/nodes/$node/octavo" "$D/nodes/$node/cni" "$D/nodes/$node/logs"
  "$here/pki.sh" "$node" "$address" || return 1
  ip addr replace "$address/32" dev lo || return 1 # a kubelet rejects 127.0.0.1 as its own address
  make_cgroups "$node"
  start_containerd "$1" || return 1
  if ! [ -e "$D/images/pause/pause" ]; then
    mkdir -p "$D/images/pause"
    gcc -static -Os -s -o "$D/images/pause/pause" "$here/pause.c" || return 1
  fi
  image "$node" test.invalid/pause:1 "$D/images/pause" /pause || return 1
  start_kubelet "$node" "$address" || return 1
  echo "$node ready at $address"
}

# kill_pods NODE: kills the shims and pods that remain if containerd was killed before it could stop them, and waits until they have ended
kill_pods() {
  local pid procs until=$((SECONDS + 10))
  grep -laF "$RUN/$1.containerd.sock" /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3 | while read -r pid; do
    if grep -q '^containerd-shim' "/proc/$pid/comm" 2>/dev/null; then kill -9 "$pid"; fi
  done
  while [ $SECONDS -lt $until ]; do
    procs=$(find /sys/fs/cgroup/"$CGROUP/$1" /sys/fs/cgroup/*/"$CGROUP/$1" -name cgroup.procs -exec cat {} + 2>/dev/null | grep -vx 0)
    [ -n "$procs" ] || return 0
    # shellcheck disable=SC2086 # several processes
    kill -9 $procs 2>/dev/null
    sleep 0.05
  done
}

# down_node NODE: stops the node and removes its pods, network and cgroups
down_node() {
  local node=$1 c ctr=(ctr -a "$RUN/$1.containerd.sock" -n k8s.io)
  kill_now "$node.kubelet"
  if [ -e "$RUN/$node.containerd.pid" ]; then
    for c in $("${ctr[@]}" tasks ls -q); do "${ctr[@]}" tasks rm -f "$c"; done
    for c in $("${ctr[@]}" containers ls -q); do "${ctr[@]}" containers rm "$c"; done
  fi >/dev/null 2>&1
  kill_now "$node.containerd"
  kill_pods "$node"
  for c in /sys/fs/cgroup/"$CGROUP/$node" /sys/fs/cgroup/*/"$CGROUP/$node"; do
    [ ! -d "$c" ] || find "$c" -depth -type d -exec rmdir {} \;
  done 2>/dev/null
  ip link del "$BRIDGE-${node#node-}" 2>/dev/null
  ip addr del "$NODE_NETWORK.${node#node-}/32" dev lo 2>/dev/null
  rm -rf "$D/nodes/$node"
}
