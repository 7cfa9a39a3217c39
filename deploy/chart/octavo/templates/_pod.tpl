{{/* Security context of non-root pods, as the pod security standard `restricted` requires. OpenShift assigns user IDs itself. */}}
{{- define "octavo.unprivileged" -}}
runAsNonRoot: true
{{- if not .Values.openshift.enabled }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* CA and token for the API server; the token expires after one hour. */}}
{{- define "octavo.apiToken" -}}
- name: api
  projected:
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
{{- end -}}

{{/* CA certificate of the aggregator in the file ca.crt. */}}
{{- define "octavo.caVolume" -}}
- name: ca
  {{- if .Values.aggregator.tls.certManager.enabled }}
  secret: {secretName: {{ include "octavo.tlsSecret" . }}, items: [{key: ca.crt, path: ca.crt}]}
  {{- else }}
  configMap: {name: {{ include "octavo.aggregatorName" . }}-ca, items: [{key: ca.crt, path: ca.crt}]}
  {{- end }}
{{- end -}}

{{/* (dict "root" root "one" one of octavo.agents): affinity of its pods. */}}
{{- define "octavo.affinity" -}}
{{- $agent := .one.agent -}}
{{- $affinity := deepCopy $agent.affinity -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list $affinity -}}
{{- $mode := $agent.nodes -}}
{{- if eq $mode "auto" }}{{ $mode = eq .one.tier "reporter" | ternary "all" "labelled" }}{{ end -}}
{{- if and (not $terms) (eq $mode "labelled") -}}
  {{- range list "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "nvidia.com/gpu.present" -}}
    {{- $terms = append $terms (dict "matchExpressions" (list (dict "key" . "operator" "In" "values" (list "true")))) -}}
  {{- end -}}
{{- end -}}
{{- if .one.match -}}
  {{- $narrowed := list -}}
  {{- range $terms | default (list dict) -}}
    {{- $narrowed = append $narrowed (set (deepCopy .) "matchExpressions" (concat (.matchExpressions | default list) $.one.match)) -}}
  {{- end -}}
  {{- $terms = $narrowed -}}
{{- end -}}
{{- if $terms -}}
  {{- $node := $affinity.nodeAffinity | default dict -}}
  {{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
  {{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- if $affinity }}{{ toYaml $affinity }}{{ end -}}
{{- end -}}

{{/* Address that the agents report to; empty if none. */}}
{{- define "octavo.reportsTo" -}}
{{- $root := .root -}}
{{- if .one.agent.aggregator.address }}{{ .one.agent.aggregator.address }}
{{- else if $root.Values.aggregator.enabled }}https://{{ include "octavo.aggregatorHost" $root }}:7443
{{- end -}}
{{- end -}}
