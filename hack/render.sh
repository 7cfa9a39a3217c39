#!/usr/bin/env bash
# render.sh [FOLDER]: renders the manifests for `kubectl apply -k` from the chart, into `deploy` or into another folder like it.
#
# A test renders them again and compares. Rendering is deterministic: nothing in there is made of chance or of a cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-deploy}
tools=$(hack/tools/build.sh)

# render PLACE [TEMPLATE...]: all of the chart with the values of this place, or these templates of it.
render() {
  local place=$1 template only=()
  shift
  for template; do only+=(--show-only "templates/$template"); done
  mkdir -p "$out/$place"
  {
    echo "# Rendered from deploy/chart/octavo with the values beside this file, by hack/render.sh: change those, and render it again."
    "$tools/helm" template octavo deploy/chart/octavo --namespace octavo-system --values "deploy/$place/values.yaml" "${only[@]}"
  } >"$out/$place/octavo.yaml"
}

for tier in reporter reader applier; do render "tiers/$tier"; done
render options/drain agent/drain.yaml
render options/follow-cluster aggregator/follow.yaml
render options/nodefeature agent/nodefeature.yaml agent/policy-nodefeature.yaml
render overlays/openshift agent/scc.yaml
