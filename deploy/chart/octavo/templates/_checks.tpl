{{/* Checks of value combinations that a schema cannot express. */}}
{{- define "octavo.checks" -}}
{{- $names := list -}}
{{- range include "octavo.agents" . | fromJsonArray -}}
  {{- $place := empty .pool | ternary "" (printf "pools, %s: " .pool) -}}
  {{- if has .name $names }}{{ fail (printf "%sduplicate pool name" $place) }}{{ end -}}
  {{- $names = append $names .name -}}
  {{- if gt (len .name) 63 }}{{ fail (printf "%s%s exceeds 63 characters, the maximum length of a label value: choose a shorter name for the release or the pool" $place .name) }}{{ end -}}
  {{- $agent := .agent -}}
  {{- if ne .tier "applier" -}}
    {{- if ne $agent.drain.policy "never" }}{{ fail (printf "%sagent.drain.policy: %s requires the tier applier: the tier %s never changes devices" $place $agent.drain.policy .tier) }}{{ end -}}
    {{- if $agent.drain.allowPolicies }}{{ fail (printf "%sagent.drain.allowPolicies requires the tier applier: the tier %s never changes devices" $place .tier) }}{{ end -}}
    {{- if ne $agent.sharing.mode "auto" }}{{ fail (printf "%sagent.sharing.mode: %s requires the tier applier: other tiers have no layouts" $place $agent.sharing.mode) }}{{ end -}}
    {{- range list "hostPID" "podEvents" -}}
      {{- if index $agent.usage . }}{{ fail (printf "%sagent.usage.%s requires the tier applier: other tiers cannot attribute devices to pods" $place .) }}{{ end -}}
    {{- end -}}
    {{- range list "compat" "taintNotReady" "layout" "allow" "drift" -}}
      {{- if index $agent . }}{{ fail (printf "%sagent.%s requires the tier applier: the selected tier never changes devices" $place .) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- if and $agent.neuron.enabled $.Values.openshift.enabled (ne .tier "applier") }}{{ fail (printf "%sagent.neuron.enabled on OpenShift requires the tier applier: other tiers cannot mount host directories" $place) }}{{ end -}}
  {{- if eq .tier "reporter" -}}
    {{- if has $agent.labelSink (list "node" "nodefeature") }}{{ fail (printf "%sagent.labelSink: %s requires the tier reader or applier: the reporter has no access to the API server" $place $agent.labelSink) }}{{ end -}}
    {{- if $agent.migStrategy }}{{ fail (printf "%sagent.migStrategy requires the tier reader or applier: the reporter does not read the driver" $place) }}{{ end -}}
  {{- end -}}
  {{- if and (eq $agent.sharing.mode "hand-off") (not $.Values.handOff.configMap) }}{{ fail (printf "%sagent.sharing.mode: hand-off requires handOff, the ConfigMap of NVIDIA's device plugin" $place) }}{{ end -}}
  {{- if and $.Values.dra.enabled (eq .tier "applier") (has $agent.sharing.mode (list "hand-off" "embedded")) }}{{ fail (printf "%sagent.sharing.mode: %s excludes dra.enabled: a GPU must not be allocated by two drivers" $place $agent.sharing.mode) }}{{ end -}}
  {{- range list "podEvents" "dcgm" -}}
    {{- if and (index $agent.usage .) (not $agent.usage.interval) }}{{ fail (printf "%sagent.usage.%s requires agent.usage.interval" $place .) }}{{ end -}}
  {{- end -}}
  {{- if and $agent.devicePluginConfigs (not $agent.compat) }}{{ fail (printf "%sagent.devicePluginConfigs requires agent.compat: mig-manager" $place) }}{{ end -}}
{{- end -}}
{{- if ne (empty .Values.handOff.namespace) (empty .Values.handOff.configMap) }}{{ fail "handOff: set both namespace and configMap" }}{{ end -}}
{{- if and .Values.dra.enabled (not (has "applier" (include "octavo.needs" . | fromJsonArray))) }}{{ fail "dra.enabled requires the tier applier: other tiers never change devices" }}{{ end -}}
{{- if and .Values.dra.enabled .Values.handOff.configMap }}{{ fail "dra.enabled excludes handOff: a GPU must not be allocated by two drivers" }}{{ end -}}
{{- if and .Values.layouts .Values.layoutsConfigMap }}{{ fail "layouts and layoutsConfigMap: set only one of them" }}{{ end -}}
{{- include "octavo.checkLayouts" . -}}
{{- $aggregator := include "octavo.aggregatorName" . -}}
{{- if and .Values.aggregator.enabled (gt (len $aggregator) 63) }}{{ fail (printf "%s exceeds 63 characters, the maximum length of a Service name: choose a shorter name for the release" $aggregator) }}{{ end -}}
{{- $httpAuth := include "octavo.httpAuth" . -}}
{{- with .Values.aggregator -}}
  {{- if and .enabled (eq $httpAuth "proxy-header") (not .trustedProxies) }}{{ fail "aggregator.trustedProxies: set the address of the proxy, which aggregator.httpAuth: proxy-header requires" }}{{ end -}}
  {{- if and (ne $httpAuth "proxy-header") (or .trustedProxies .trustedProxyGroups) }}{{ fail "aggregator.trustedProxies and aggregator.trustedProxyGroups require aggregator.httpAuth: proxy-header" }}{{ end -}}
  {{- if and .enabled .proxy.enabled -}}
    {{- if not .proxy.image }}{{ fail "aggregator.proxy.image: set the image of the proxy" }}{{ end -}}
    {{- if eq $httpAuth "none" }}{{ fail "aggregator.proxy requires aggregator.httpAuth: token-review or proxy-header; otherwise, clients that bypass the proxy could read everything" }}{{ end -}}
    {{- if has (int .proxy.port) (list 7443 8443) }}{{ fail (printf "aggregator.proxy.port: the aggregator uses port %d" (int .proxy.port)) }}{{ end -}}
  {{- end -}}
  {{- if and .enabled .ingress.enabled (not .ingress.host) }}{{ fail "aggregator.ingress.host: set the host name of the Ingress" }}{{ end -}}
  {{- if and .enabled .httpRoute.enabled (not .httpRoute.parentRefs) }}{{ fail "aggregator.httpRoute.parentRefs: set the Gateway of the HTTPRoute" }}{{ end -}}
  {{- if and .enabled .route.enabled (eq .route.termination "reencrypt") (not .route.destinationCACertificate) }}{{ fail "aggregator.route.destinationCACertificate: set the CA of the aggregator, which termination: reencrypt requires" }}{{ end -}}
  {{- if and .createProfiles (not .followCluster) }}{{ fail "aggregator.createProfiles requires aggregator.followCluster: profiles are created from the resources of nodes" }}{{ end -}}
  {{- if and .createProfiles (eq $httpAuth "none") }}{{ fail "aggregator.createProfiles requires aggregator.httpAuth: token-review or proxy-header; otherwise, any client could create hardware profiles" }}{{ end -}}
  {{- if and (include "octavo.annotatePods" $) (not $.Values.policy.enabled) }}{{ fail "aggregator.annotatePods requires policy.enabled: only the policy restricts the aggregator to three annotations of pods" }}{{ end -}}
  {{- if and .policies.enabled (not .followCluster) }}{{ fail "aggregator.policies.enabled requires aggregator.followCluster: policies select nodes of the cluster" }}{{ end -}}
  {{- if and .enabled .policies.enabled (not $.Values.policy.enabled) }}{{ fail "aggregator.policies.enabled requires policy.enabled: only the policy restricts the aggregator to the labels and taints of accelerator policies" }}{{ end -}}
  {{- if and .ledger.enabled .ledger.teamLabel (not .followCluster) }}{{ fail "aggregator.ledger.teamLabel requires aggregator.followCluster: teams are labels of pods" }}{{ end -}}
  {{- if include "octavo.standby" $ -}}
    {{- if not $.Values.policy.enabled }}{{ fail "aggregator.replicas above 1 requires policy.enabled: only the policy restricts the aggregator to one label of its pods" }}{{ end -}}
    {{- if and .ledger.enabled (not .ledger.secretName) }}{{ fail "aggregator.replicas above 1 requires aggregator.ledger.secretName: replicas cannot share a SQLite file; use a PostgreSQL database" }}{{ end -}}
  {{- end -}}
  {{- $upstreams := list -}}
  {{- range .upstreams -}}
    {{- if has .name $upstreams }}{{ fail (printf "aggregator.upstreams: two aggregators have the name %s" .name) }}{{ end -}}
    {{- $upstreams = append $upstreams .name -}}
  {{- end -}}
  {{- if and .enabled .budgets (not (and .ledger.enabled .priceBook)) }}{{ fail "aggregator.budgets requires aggregator.ledger.enabled and aggregator.priceBook: costs are calculated from the usage ledger" }}{{ end -}}
  {{- if and .enabled (not .tls.secretName) (not .tls.generate) (not .tls.certManager.enabled) }}{{ fail "aggregator.tls: set secretName, generate or certManager.enabled: tokens are never sent unencrypted" }}{{ end -}}
  {{- if and .enabled .tls.certManager.enabled (not .tls.certManager.issuerRef.name) }}{{ fail "aggregator.tls.certManager.issuerRef: set the name of an issuer" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Checks the structure of `layouts`; `octavo layouts check` finds all other errors. */}}
{{- define "octavo.checkLayouts" -}}
{{- with .Values.layouts -}}
  {{- $file := fromYaml . -}}
  {{- if $file.Error }}{{ fail (printf "layouts: not YAML: %s" $file.Error) }}{{ end -}}
  {{- if not $file }}{{ fail "layouts: the file is empty" }}{{ end -}}
  {{- $layouts := dict -}}
  {{- $keys := list -}}
  {{- if hasKey $file "apiVersion" -}}
    {{- if or (ne (toString $file.apiVersion) "octavo.dev/v1") (ne (toString $file.kind) "Layouts") }}{{ fail "layouts: apiVersion must be octavo.dev/v1, and kind must be Layouts" }}{{ end -}}
    {{- range $key, $_ := omit $file "apiVersion" "kind" "layouts" }}{{ fail (printf "layouts: unknown key %q" $key) }}{{ end -}}
    {{- $layouts = $file.layouts -}}
    {{- $keys = list "devices" "mig" "timeSlicing" "claims" -}}
  {{- else if hasKey $file "version" -}}
    {{- if ne (toString $file.version) "v1" }}{{ fail (printf "layouts: version must be v1, not %v" $file.version) }}{{ end -}}
    {{- range $key, $_ := omit $file "version" "mig-configs" "flags" "resources" "sharing" "imex" }}{{ fail (printf "layouts: unknown key %q" $key) }}{{ end -}}
    {{- $plugin := list -}}
    {{- range $key, $_ := omit $file "version" "mig-configs" }}{{ $plugin = append $plugin $key }}{{ end -}}
    {{- if and (hasKey $file "mig-configs") $plugin }}{{ fail (printf "layouts: mig-configs and %s belong to different formats" (first $plugin)) }}{{ end -}}
    {{- if not (or (hasKey $file "mig-configs") $plugin) }}{{ fail "layouts: mig-configs is missing" }}{{ end -}}
    {{- if hasKey $file "mig-configs" }}{{ $layouts = index $file "mig-configs" }}{{ end -}}
    {{- $keys = list "device-filter" "devices" "mig-enabled" "mig-devices" -}}
  {{- else -}}
    {{- fail "layouts: the file must begin with apiVersion: octavo.dev/v1 or, in NVIDIA's formats, version: v1" -}}
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
        {{- if not (has $key $keys) }}{{ fail (printf "%s: unknown key %q; valid keys: %s" $place $key (join ", " $keys)) }}{{ end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
