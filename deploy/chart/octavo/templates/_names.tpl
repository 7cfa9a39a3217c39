{{/* Prefix of all names. */}}
{{- define "octavo.prefix" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end -}}

{{- define "octavo.agentName" -}}{{ include "octavo.prefix" . }}-agent{{- end -}}
{{- define "octavo.aggregatorName" -}}{{ include "octavo.prefix" . }}-aggregator{{- end -}}

{{/* User name of the agents in admission policies. */}}
{{- define "octavo.agentUser" -}}system:serviceaccount:{{ .Release.Namespace }}:{{ include "octavo.agentName" . }}{{- end -}}

{{/* ServiceAccount and ClusterRole of readers. */}}
{{- define "octavo.readerName" -}}{{ include "octavo.prefix" . }}-reader{{- end -}}

{{/* Authentication of HTTP clients. A value that was removed with `null` does not open the aggregator. */}}
{{- define "octavo.httpAuth" -}}{{ .Values.aggregator.httpAuth | default "token-review" }}{{- end -}}

{{/* Name of the Service port that users reach: that of the proxy, if it is enabled. */}}
{{- define "octavo.webPort" -}}{{ .Values.aggregator.proxy.enabled | ternary "proxy" "https" }}{{- end -}}

{{- define "octavo.aggregatorHost" -}}{{ include "octavo.aggregatorName" . }}.{{ .Release.Namespace }}.svc{{- end -}}

{{/* Labels of every object. */}}
{{- define "octavo.labels" -}}
app.kubernetes.io/part-of: octavo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* (list root image) */}}
{{- define "octavo.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* All agent DaemonSets as JSON: name, tier, values of `agent`, and node label requirements. */}}
{{- define "octavo.agents" -}}
{{- $earlier := list -}}
{{- $all := list -}}
{{- range $pool := .Values.pools -}}
  {{- $agent := deepCopy $.Values.agent -}}
  {{- range $key, $value := $pool.agent | default dict -}}
    {{- if has $key (list "drain" "sharing" "usage") }}{{ $value = mergeOverwrite (deepCopy (index $agent $key)) $value }}{{ end -}}
    {{- $_ := set $agent $key $value -}}
  {{- end -}}
  {{- $ours := dict "key" $pool.match.key "operator" "In" "values" $pool.match.values -}}
  {{- $name := printf "%s-%s" (include "octavo.agentName" $) $pool.name -}}
  {{- $all = append $all (dict "name" $name "pool" $pool.name "tier" ($pool.tier | default $.Values.tier) "agent" $agent "match" (concat (list $ours) $earlier)) -}}
  {{- $earlier = append $earlier (dict "key" $pool.match.key "operator" "NotIn" "values" $pool.match.values) -}}
{{- end -}}
{{- $all = append $all (dict "name" (include "octavo.agentName" .) "pool" "" "tier" .Values.tier "agent" .Values.agent "match" $earlier) -}}
{{- $all | toJson -}}
{{- end -}}

{{/* Union of the requirements of all pools, as a list for `has`. */}}
{{- define "octavo.needs" -}}
{{- $needs := list -}}
{{- range include "octavo.agents" . | fromJsonArray -}}
  {{- $needs = append $needs .tier -}}
  {{- if or .agent.cleanup (ne .tier "reporter") }}{{ $needs = append $needs "access" }}{{ end -}}
  {{- if or .agent.drain.allowPolicies (ne .agent.drain.policy "never") }}{{ $needs = append $needs "drain" }}{{ end -}}
  {{- if eq .agent.labelSink "nodefeature" }}{{ $needs = append $needs "nodefeature" }}{{ end -}}
  {{- if and (eq .tier "applier") (has .agent.sharing.mode (list "auto" "hand-off")) $.Values.handOff.configMap }}{{ $needs = append $needs "hand-off" }}{{ end -}}
  {{- if and (eq .tier "applier") $.Values.dra.enabled }}{{ $needs = append $needs "dra" }}{{ end -}}
  {{- if .agent.devicePluginConfigs }}{{ $needs = append $needs "plugin-configs" }}{{ end -}}
  {{- if and (eq .tier "applier") .agent.usage.interval (not .agent.cleanup) }}{{ $needs = append $needs "pod-types" }}{{ end -}}
  {{- if .agent.usage.podEvents }}{{ $needs = append $needs "pod-events" }}{{ end -}}
  {{- if .agent.usage.hostPID }}{{ $needs = append $needs "host-pid" }}{{ end -}}
  {{- if or (eq .tier "applier") .agent.neuron.enabled }}{{ $needs = append $needs "host-path" }}{{ end -}}
{{- end -}}
{{- $needs | uniq | toJson -}}
{{- end -}}

{{/* Not empty if the aggregator has several replicas: a leader and its standbys. */}}
{{- define "octavo.standby" -}}
{{- if and .Values.aggregator.enabled (gt (int .Values.aggregator.replicas) 1) }}true{{ end -}}
{{- end -}}

{{/* Not empty if the aggregator annotates pods. Only agents of the tier `applier` know the devices of each pod. */}}
{{- define "octavo.annotatePods" -}}
{{- $known := has "pod-types" (include "octavo.needs" . | fromJsonArray) -}}
{{- $value := .Values.aggregator.annotatePods -}}
{{- if eq (toString $value) "auto" }}{{ $value = and .Values.policy.enabled $known }}{{ end -}}
{{- if and .Values.aggregator.enabled $value }}true{{ end -}}
{{- end -}}
