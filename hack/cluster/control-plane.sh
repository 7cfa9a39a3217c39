# shellcheck shell=bash disable=SC2154 # env.sh sets what is not set here
# The parts of a control plane, started and ended. Read after env.sh.

start_etcd() {
  start etcd etcd --name test --data-dir "$D/etcd" --unsafe-no-fsync \
    --listen-client-urls "$ETCD" --advertise-client-urls "$ETCD" \
    --listen-peer-urls "$ETCD_PEER" --initial-advertise-peer-urls "$ETCD_PEER" \
    --initial-cluster "test=$ETCD_PEER" --log-level warn
  wait_for etcd curl -fsS "$ETCD/health"
}

start_apiserver() {
  local flags=()
  # The endpoint of the service "kubernetes" cannot be an address of the loopback network.
  case $ADDR in 127.*) flags+=(--endpoint-reconciler-type=none) ;; esac
  # shellcheck disable=SC2206 # several flags in one variable
  flags+=(${APISERVER_FLAGS:-})
  # The audiences of the API are its issuer's and nobody else's, so a token made for "octavo" opens nothing here.
  start kube-apiserver kube-apiserver \
    --etcd-servers="$ETCD" \
    --bind-address="$ADDR" --secure-port="$PORT" --advertise-address="$ADDR" \
    --service-cluster-ip-range=10.96.0.0/16 \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --client-ca-file="$PKI/ca.crt" \
    --kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" \
    --kubelet-client-key="$PKI/apiserver-kubelet-client.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" \
    --kubelet-preferred-address-types=InternalIP,Hostname \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$PKI/service-account.pub" \
    --service-account-signing-key-file="$PKI/service-account.key" \
    --audit-policy-file="$here/audit.yaml" --audit-log-path="$LOG/audit.log" --audit-log-maxsize=2000 \
    --allow-privileged=true --profiling=false "${flags[@]}"
  wait_for kube-apiserver curl -fsS --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "$SERVER/readyz"
}

start_controllers() {
  # Nodes that are only objects have no heartbeat: the grace period is a day, unless somebody wants to see nodes get lost.
  # shellcheck disable=SC2086 # several flags in one variable
  start kube-controller-manager kube-controller-manager \
    --kubeconfig="$PKI/controller-manager.kubeconfig" --bind-address="$LOCAL" --secure-port="$CONTROLLER_MANAGER_PORT" \
    --use-service-account-credentials --service-account-private-key-file="$PKI/service-account.key" \
    --root-ca-file="$PKI/ca.crt" --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --leader-elect=false --profiling=false ${CONTROLLER_MANAGER_FLAGS:---node-monitor-grace-period=24h}
  start kube-scheduler kube-scheduler \
    --kubeconfig="$PKI/scheduler.kubeconfig" --bind-address="$LOCAL" --secure-port="$SCHEDULER_PORT" \
    --leader-elect=false --profiling=false
  wait_for kube-controller-manager kubectl -n default get serviceaccount default
  wait_for kube-scheduler curl -fsSk "https://$LOCAL:$SCHEDULER_PORT/healthz"
}

# The lock is waited for; standard input that ends meanwhile means that nobody wants the cluster any more.
take_lock() {
  local until=$((SECONDS + ${CLUSTER_LOCK_PATIENCE:-1200}))
  exec 9>>"$LOCK"
  flock -n 9 && return
  echo "$ADDR is another test cluster's; waiting until that is gone (one of yours: make cluster-down)" >&2
  until flock -w 1 9; do
    if [ "${1:-}" = attended ] && read -r -t 0; then return 1; fi
    if [ $SECONDS -ge $until ]; then
      echo "the other test cluster is still there" >&2
      return 1
    fi
  done
}

up() {
  case $PARTS in
    api) need etcd kube-apiserver kubectl ;;
    *) need etcd kube-apiserver kubectl kube-controller-manager kube-scheduler ;;
  esac || return 1
  "$here/pki.sh" || return 1
  case $ADDR in 127.*) ;; *) ip addr replace "$ADDR/32" dev lo || return 1 ;; esac
  start_etcd && start_apiserver || return 1
  [ "$PARTS" = api ] || start_controllers
}

# The API server gets a new authority and a new certificate, and so does everybody who has one.
rotate() {
  kill_now kube-apiserver
  "$here/pki.sh" --renew && start_apiserver
}

down_node() {
  local node=$1 c ctr=(ctr -a "$RUN/$1.containerd.sock" -n k8s.io)
  kill_now "$node.kubelet"
  if [ -e "$RUN/$node.containerd.pid" ]; then
    for c in $("${ctr[@]}" tasks ls -q); do "${ctr[@]}" tasks kill -s KILL "$c"; done
    # A killed task is gone a moment later; forced removal waits for it.
    for c in $("${ctr[@]}" tasks ls -q); do "${ctr[@]}" tasks rm -f "$c"; done
    for c in $("${ctr[@]}" containers ls -q); do "${ctr[@]}" containers rm "$c"; done
  fi >/dev/null 2>&1
  kill_now "$node.containerd"
  for c in /sys/fs/cgroup/*/test-cluster/"$node"; do
    [ ! -d "$c" ] || find "$c" -depth -type d -exec rmdir {} \;
  done 2>/dev/null
  ip link del "cni-${node#node-}" 2>/dev/null
  ip addr del "10.98.0.${node#node-}/32" dev lo 2>/dev/null
  rm -rf "$D/nodes/$node"
}

# Everything, and the data; logs and certificates stay.
down() {
  local part
  for part in "$D"/nodes/*; do [ ! -d "$part" ] || down_node "${part##*/}"; done
  for part in kube-scheduler kube-controller-manager kube-apiserver etcd; do kill_now $part; done
  for part in /sys/fs/cgroup/*/test-cluster; do [ ! -d "$part" ] || rmdir "$part" 2>/dev/null; done
  case $ADDR in 127.*) ;; *) ip addr del "$ADDR/32" dev lo 2>/dev/null ;; esac
  rm -rf "$D/etcd" "$RUN"
}
