#!/usr/bin/env bash
# render.sh [DIRECTORY]: renders the manifests for `kubectl apply -k` from the chart, into `deploy` or another directory.
#
# A test renders them again and compares them. Rendering is deterministic and independent of a cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-deploy}
tools=$(hack/tools/build.sh)

# render PLACE [TEMPLATE...]: renders the chart, or these templates of it, with the values of PLACE.
render() {
  local place=$1 template only=()
  shift
  for template; do only+=(--show-only "templates/$template"); done
  mkdir -p "$out/$place"
  {
    echo "# Rendered by hack/render.sh from deploy/chart/octavo and values.yaml in this directory. Do not edit."
    "$tools/helm" template octavo deploy/chart/octavo --skip-tests --namespace octavo-system --values "deploy/$place/values.yaml" "${only[@]}"
  } >"$out/$place/octavo.yaml"
}

for tier in reporter reader applier; do render "tiers/$tier"; done
render options/drain agent/drain.yaml
render options/follow-cluster aggregator/follow.yaml
render options/nodefeature agent/nodefeature.yaml agent/policy-nodefeature.yaml
render overlays/openshift agent/scc.yaml
