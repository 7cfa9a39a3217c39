#!/usr/bin/env bash
# build.sh: builds a directory with `helm`, `kubeconform`, `schemas/` and `crds/` unless it exists, and prints its path as the only line on
# standard output.
#
# The programs are built from the Go modules that go.mod and go.sum pin. The schemas are strict. They cover every kind of the Kubernetes
# in hack/cluster and the kinds of other projects that the chart can create. The directory is cached outside the tree, under the hash of
# its inputs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Module, its checksum, and the file in it that defines a kind.
definitions='
github.com/prometheus-operator/prometheus-operator@v0.93.1 h1:4Juk8v93RdG1DSGD/mGp+SeQKPmnlLIj2iq3blLZgFY= example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
github.com/prometheus-operator/prometheus-operator@v0.93.1 h1:4Juk8v93RdG1DSGD/mGp+SeQKPmnlLIj2iq3blLZgFY= example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
github.com/cert-manager/cert-manager@v1.19.1 h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY= deploy/crds/cert-manager.io_certificates.yaml
github.com/openshift/api@v0.0.0-20251015095338-264e80a2b6e7 h1:Ot2fbEEPmF3WlPQkyEW/bUCV38GMugH/UmZvxpWceNc= security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml
github.com/openshift/api@v0.0.0-20251015095338-264e80a2b6e7 h1:Ot2fbEEPmF3WlPQkyEW/bUCV38GMugH/UmZvxpWceNc= route/v1/zz_generated.crd-manifests/routes.crd.yaml
sigs.k8s.io/gateway-api@v1.4.0 h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ= config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
sigs.k8s.io/gateway-api@v1.4.0 h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ= config/crd/standard/gateway.networking.k8s.io_backendtlspolicies.yaml
'

# module DIRECTORY NAME: prints the output of `go mod download -json` for a module, with the go.mod of DIRECTORY if it has one
module() {
  local folder=$1 name=$2 said
  said=$(cd "$folder" && go mod download -json "$name") || fail "cannot download the module $name: $said"
  printf '%s\n' "$said"
}
# field NAME: prints a field of this output
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}\$/\1/p"; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/tools
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/go/bin:$PATH
stamp=$({ go version; cat go.mod go.sum schemas.go build.sh; grep 'k8s.io/kubernetes ' ../cluster/go.mod ../cluster/go.sum; } | sha256sum | cut -c 1-16)
if [ -x "$cache/$stamp/helm" ]; then
  echo "$cache/$stamp"
  exit
fi

mkdir -p "$cache"
exec 8>"$cache/lock"
flock -n 8 || { say "another process is building helm and kubeconform; waiting for it" && flock 8; }
if ! [ -x "$cache/$stamp/helm" ]; then
  say "building helm and kubeconform from Go modules into $cache/$stamp: about five minutes on two idle cores, once"
  draft=$(mktemp -d "$cache/draft.XXXXXX")
  trap 'rm -rf "$draft"' EXIT
  kubernetes=$(module ../cluster k8s.io/kubernetes | field Dir)
  files=()
  while read -r name sum path; do
    [ -n "$name" ] || continue
    said=$(module "$draft" "$name")
    [ "$(field Sum <<<"$said")" = "$sum" ] || fail "the module $name does not match its pinned checksum $sum: its checksum is $(field Sum <<<"$said")"
    files+=("$(field Dir <<<"$said")/$path")
  done <<<"$definitions"
  mkdir "$draft/schemas" "$draft/crds"
  install -m 644 -t "$draft/crds" "${files[@]}"
  export CGO_ENABLED=0 GOWORK=off
  go run -mod=readonly . "$draft/schemas" "$kubernetes/api/openapi-spec/swagger.json" "${files[@]}" >&2
  go build -mod=readonly -trimpath -ldflags="-s -w" -o "$draft/" helm.sh/helm/v4/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform >&2
  chmod 755 "$draft"
  mv -T "$draft" "$cache/$stamp"
  say "built: helm $("$cache/$stamp/helm" version --short)"
fi
echo "$cache/$stamp"
