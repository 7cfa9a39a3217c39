#!/usr/bin/env bash
# Creates a certificate authority, the certificates of the components and their kubeconfigs, unless they exist.
# "pki.sh NODE ADDRESS" also creates those of a node. "pki.sh --renew" replaces everything except the key of service accounts, so tokens
# stay valid.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
if [ "${1:-}" = --renew ]; then
  # Written to a temporary file and renamed, so that no reader sees a partial file.
  out=$(mktemp -d "$D/pki.XXXXXX")
  cp "$PKI"/service-account.* "$out"
  shift
else
  out=$PKI
fi
cd "$out"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }
if ! [ -e ca.crt ]; then
  key ca.key
  # A unique name: if two authorities have the same name, a client can select the wrong one.
  openssl req -x509 -new -key ca.key -subj "/CN=test-cluster-$(openssl rand -hex 4)" -days 3650 -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
fi
if ! [ -e service-account.key ]; then
  key service-account.key
  openssl pkey -in service-account.key -pubout -out service-account.pub
fi
# cert FILE SUBJECT [SAN]
cert() {
  [ ! -e "$1.crt" ] || return 0
  key "$1.key"
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [ -z "${3:-}" ] || echo "subjectAltName=$3"
  } >"$1.ext"
  openssl req -new -key "$1.key" -subj "$2" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
}
# config NAME: a kubeconfig that uses NAME's certificate
config() {
  cat >"$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$SERVER", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: "$1", user: {client-certificate: "$PKI/$1.crt", client-key: "$PKI/$1.key"}}]
contexts: [{name: test, context: {cluster: test, user: "$1"}}]
current-context: test
YAML
}
cert apiserver /CN=kube-apiserver \
  "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$ADDR"
cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
cert admin /O=system:masters/CN=admin
config admin
if [ "$PARTS" != api ]; then
  cert controller-manager /CN=system:kube-controller-manager
  config controller-manager
  cert scheduler /CN=system:kube-scheduler
  config scheduler
fi
if [ $# -eq 2 ]; then
  cert "$1" "/O=system:nodes/CN=system:node:$1" "DNS:$1,IP:$2"
  config "$1"
fi
if [ "$out" != "$PKI" ]; then
  mv -f "$out"/* "$PKI/"
  rmdir "$out"
fi
