#!/usr/bin/env bash
# build.sh [PROGRAM...]: builds these programs unless they exist, and prints the path of their directory as the only line on standard output.
#
# All programs are links to one binary, which is built from the pinned Go modules. It is cached outside the tree, under the hash of its
# inputs, so it is built again only after a change. If the directory in KUBEBUILDER_ASSETS contains all of the programs, it is used instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
say() { printf '==> %s\n' "$*" >&2; }

has_all() {
  local folder=$1 program
  shift
  for program; do [ -x "$folder/$program" ] || return 1; done
}
if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ $# -gt 0 ] && has_all "$KUBEBUILDER_ASSETS" "$@"; then
  echo "$KUBEBUILDER_ASSETS"
  exit
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/cluster
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/go/bin:$PATH
stamp=$({ go version; cat go.mod go.sum main.go build.sh; } | sha256sum | cut -c 1-16)
if [ -x "$cache/$stamp/kube" ]; then
  echo "$cache/$stamp"
  exit
fi

mkdir -p "$cache"
exec 8>"$cache/lock"
flock -n 8 || { say "another process is building the Kubernetes for tests; waiting for it" && flock 8; }
if ! [ -x "$cache/$stamp/kube" ]; then
  say "building the Kubernetes for tests from Go modules into $cache/$stamp: about ten minutes on two idle cores, once"
  draft=$(mktemp -d "$cache/draft.XXXXXX")
  trap 'rm -rf "$draft"' EXIT
  version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) # with an empty version, the programs panic when they start
  minor=${version#v1.}
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
  done
  CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -ldflags "$flags" -o "$draft/kube" . >&2
  for name in etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet hollow-node kwok; do
    ln -s kube "$draft/$name"
  done
  chmod 755 "$draft"
  mv -T "$draft" "$cache/$stamp"
  say "built: $("$cache/$stamp/kubectl" version --client | head -n 1)"
fi
echo "$cache/$stamp"
