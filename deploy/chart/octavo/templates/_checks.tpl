{{/* What a schema cannot say of values that do not go together. */}}
{{- define "octavo.checks" -}}
{{- $names := list -}}
{{- range include "octavo.agents" . | fromJsonArray -}}
  {{- $place := empty .pool | ternary "" (printf "pools, %s: " .pool) -}}
  {{- if has .name $names }}{{ fail (printf "%sthere are two pools of this name" $place) }}{{ end -}}
  {{- $names = append $names .name -}}
  {{- if gt (len .name) 63 }}{{ fail (printf "%s%s is longer than the 63 characters that a label may have: give the release or the pool a shorter name" $place .name) }}{{ end -}}
  {{- $agent := .agent -}}
  {{- if ne .tier "applier" -}}
    {{- if ne $agent.drain.policy "never" }}{{ fail (printf "%sagent.drain.policy: %s is for the tier applier: the tier %s changes no device" $place $agent.drain.policy .tier) }}{{ end -}}
    {{- if ne $agent.sharing.mode "auto" }}{{ fail (printf "%sagent.sharing.mode: %s is for the tier applier: only it has layouts" $place $agent.sharing.mode) }}{{ end -}}
    {{- range list "hostPID" "podEvents" -}}
      {{- if index $agent.usage . }}{{ fail (printf "%sagent.usage.%s is for the tier applier: only it sees who uses a device" $place .) }}{{ end -}}
    {{- end -}}
    {{- range list "compat" "taintNotReady" "layout" "allow" "drift" -}}
      {{- if index $agent . }}{{ fail (printf "%sagent.%s is for the tier applier: the tier that was chosen changes no device" $place .) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- if and $agent.neuron.enabled $.Values.openshift.enabled (ne .tier "applier") }}{{ fail (printf "%sagent.neuron.enabled on OpenShift is for the tier applier: no other may mount a folder of the host" $place) }}{{ end -}}
  {{- if eq .tier "reporter" -}}
    {{- if has $agent.labelSink (list "node" "nodefeature") }}{{ fail (printf "%sagent.labelSink: %s needs the tier reader or applier: the reporter has no access to the API server" $place $agent.labelSink) }}{{ end -}}
    {{- if $agent.migStrategy }}{{ fail (printf "%sagent.migStrategy needs the tier reader or applier: the reporter does not read the driver" $place) }}{{ end -}}
  {{- end -}}
  {{- if and (eq $agent.sharing.mode "hand-off") (not $.Values.handOff.configMap) }}{{ fail (printf "%sagent.sharing.mode: hand-off needs handOff: the ConfigMap that NVIDIA's device plugin reads" $place) }}{{ end -}}
  {{- range list "podEvents" "dcgm" -}}
    {{- if and (index $agent.usage .) (not $agent.usage.interval) }}{{ fail (printf "%sagent.usage.%s needs agent.usage.interval" $place .) }}{{ end -}}
  {{- end -}}
  {{- if and $agent.devicePluginConfigs (not $agent.compat) }}{{ fail (printf "%sagent.devicePluginConfigs needs agent.compat: mig-manager" $place) }}{{ end -}}
{{- end -}}
{{- if ne (empty .Values.handOff.namespace) (empty .Values.handOff.configMap) }}{{ fail "handOff: give both namespace and configMap" }}{{ end -}}
{{- if and .Values.layouts .Values.layoutsConfigMap }}{{ fail "layouts and layoutsConfigMap: give one of them" }}{{ end -}}
{{- include "octavo.checkLayouts" . -}}
{{- $aggregator := include "octavo.aggregatorName" . -}}
{{- if and .Values.aggregator.enabled (gt (len $aggregator) 63) }}{{ fail (printf "%s is longer than the 63 characters that a Service's name may have: give the release a shorter name" $aggregator) }}{{ end -}}
{{- with .Values.aggregator -}}
  {{- if and .enabled (eq (.httpAuth | default "none") "proxy-header") (not .trustedProxies) }}{{ fail "aggregator.trustedProxies: name the proxy that aggregator.httpAuth: proxy-header believes" }}{{ end -}}
  {{- if and (ne (.httpAuth | default "none") "proxy-header") (or .trustedProxies .trustedProxyGroups) }}{{ fail "aggregator.trustedProxies and aggregator.trustedProxyGroups are for aggregator.httpAuth: proxy-header" }}{{ end -}}
  {{- if and .createProfiles (not .followCluster) }}{{ fail "aggregator.createProfiles needs aggregator.followCluster: a profile is made of what the cluster's nodes have" }}{{ end -}}
  {{- if and .createProfiles (eq (.httpAuth | default "none") "none") }}{{ fail "aggregator.createProfiles needs aggregator.httpAuth: token-review or proxy-header: whoever reaches it could make hardware profiles" }}{{ end -}}
  {{- if and .enabled .annotatePods (not $.Values.policy.enabled) }}{{ fail "aggregator.annotatePods needs policy.enabled: nothing else keeps it to three annotations of pods" }}{{ end -}}
  {{- if and .enabled (not .tls.secretName) (not .tls.generate) (not .tls.certManager.enabled) }}{{ fail "aggregator.tls: give secretName, or set generate or certManager.enabled: tokens are never shown unencrypted" }}{{ end -}}
  {{- if and .enabled .tls.certManager.enabled (not .tls.certManager.issuerRef.name) }}{{ fail "aggregator.tls.certManager.issuerRef: name an issuer" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether `layouts` is a file that agents can read, as far as that can be checked without a device; `octavo layouts check` finds the rest. */}}
{{- define "octavo.checkLayouts" -}}
{{- with .Values.layouts -}}
  {{- $file := fromYaml . -}}
  {{- if $file.Error }}{{ fail (printf "layouts: not YAML: %s" $file.Error) }}{{ end -}}
  {{- if not $file }}{{ fail "layouts: the file is empty" }}{{ end -}}
  {{- $layouts := dict -}}
  {{- $keys := list -}}
  {{- if hasKey $file "apiVersion" -}}
    {{- if or (ne (toString $file.apiVersion) "octavo.dev/v1") (ne (toString $file.kind) "Layouts") }}{{ fail "layouts: apiVersion must be octavo.dev/v1, and kind Layouts" }}{{ end -}}
    {{- range $key, $_ := omit $file "apiVersion" "kind" "layouts" }}{{ fail (printf "layouts: unknown key %q" $key) }}{{ end -}}
    {{- $layouts = $file.layouts -}}
    {{- $keys = list "devices" "mig" "timeSlicing" -}}
  {{- else if hasKey $file "version" -}}
    {{- if ne (toString $file.version) "v1" }}{{ fail (printf "layouts: version must be v1, not %v" $file.version) }}{{ end -}}
    {{- range $key, $_ := omit $file "version" "mig-configs" "flags" "resources" "sharing" "imex" }}{{ fail (printf "layouts: unknown key %q" $key) }}{{ end -}}
    {{- $plugin := list -}}
    {{- range $key, $_ := omit $file "version" "mig-configs" }}{{ $plugin = append $plugin $key }}{{ end -}}
    {{- if and (hasKey $file "mig-configs") $plugin }}{{ fail (printf "layouts: mig-configs and %s are of two dialects" (first $plugin)) }}{{ end -}}
    {{- if not (or (hasKey $file "mig-configs") $plugin) }}{{ fail "layouts: mig-configs is missing" }}{{ end -}}
    {{- if hasKey $file "mig-configs" }}{{ $layouts = index $file "mig-configs" }}{{ end -}}
    {{- $keys = list "device-filter" "devices" "mig-enabled" "mig-devices" -}}
  {{- else -}}
    {{- fail "layouts: it begins with apiVersion: octavo.dev/v1 or, in NVIDIA's dialects, version: v1" -}}
  {{- end -}}
  {{- if not (kindIs "map" $layouts) }}{{ fail "layouts: layouts must be a map from names to lists of rules" }}{{ end -}}
  {{- if and (or (hasKey $file "layouts") (hasKey $file "mig-configs")) (not $layouts) }}{{ fail "layouts: the file has no layouts" }}{{ end -}}
  {{- range $name, $rules := $layouts -}}
    {{- if not (kindIs "slice" $rules) }}{{ fail (printf "layouts: %s must be a list of rules" $name) }}{{ end -}}
    {{- if not $rules }}{{ fail (printf "layouts: %s has no rules" $name) }}{{ end -}}
    {{- range $number, $rule := $rules -}}
      {{- $place := printf "layouts: %s, rule %d" $name (add1 $number) -}}
      {{- if not (kindIs "map" $rule) }}{{ fail (printf "%s must be a map" $place) }}{{ end -}}
      {{- if not (hasKey $rule "devices") }}{{ fail (printf "%s: devices is missing" $place) }}{{ end -}}
      {{- range $key, $_ := $rule -}}
        {{- if not (has $key $keys) }}{{ fail (printf "%s: unknown key %q; there are %s" $place $key (join ", " $keys)) }}{{ end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
