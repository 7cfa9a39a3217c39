# shellcheck shell=bash disable=SC2154 # env.sh sets what is not set here
# Functions that start and stop a control plane. Source this after env.sh, together with nodes.sh.

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
  # The API accepts only the audience of its issuer, so it rejects a token for the audience "octavo".
  start kube-apiserver kube-apiserver \
    --etcd-servers="$ETCD" \
    --bind-address="$ADDR" --secure-port="$PORT" --advertise-address="$ADDR" \
    --service-cluster-ip-range="$SERVICE_NETWORK.0.0/16" \
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
  # Nodes that are only objects have no heartbeat: the grace period is a day, unless a test needs lost nodes.
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

# Waits for the lock. If standard input closes meanwhile, the cluster is no longer needed.
take_lock() {
  local until=$((SECONDS + ${CLUSTER_LOCK_PATIENCE:-1200}))
  exec 9>>"$LOCK"
  flock -n 9 && return
  echo "another cluster uses $ADDR; waiting for it to stop (to stop your own: $STOP_COMMAND)" >&2
  until flock -w 1 9; do
    if [ "${1:-}" = attended ] && read -r -t 0; then return 1; fi
    if [ $SECONDS -ge $until ]; then
      echo "the other cluster is still running" >&2
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

# Replaces the certificate authority and all certificates.
rotate() {
  kill_now kube-apiserver
  "$here/pki.sh" --renew && start_apiserver
}

# Stops everything and deletes the data, but not logs and certificates.
down() {
  local part
  for part in "$D"/nodes/*; do [ ! -d "$part" ] || down_node "${part##*/}"; done
  for part in kube-scheduler kube-controller-manager kube-apiserver etcd; do kill_now $part; done
  for part in /sys/fs/cgroup/"$CGROUP" /sys/fs/cgroup/*/"$CGROUP"; do [ ! -d "$part" ] || rmdir "$part" 2>/dev/null; done
  case $ADDR in 127.*) ;; *) ip addr del "$ADDR/32" dev lo 2>/dev/null ;; esac
  rm -rf "$D/etcd" "$D/nodes" "$D/kubectl" "$RUN"
}
