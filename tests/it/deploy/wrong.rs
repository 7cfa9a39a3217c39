//! The chart rejects invalid values with their location.

use std::fs;

use crate::manifests::chart::{helm, path};

/// Invalid values and the expected message.
const WRONG: &[(&str, &str)] = &[
    ("{tier: writer}", "'/tier': value must be one of"),
    ("{agents: {}}", "additional properties 'agents' not allowed"),
    ("{agent: {intervall: 3s}}", "'/agent': additional properties 'intervall'"),
    ("{agent: {interval: 3}}", "'/agent/interval'"),
    ("{agent: {interval: 3 seconds}}", "'/agent/interval'"),
    ("{agent: {drain: {policy: all}}}", "'/agent/drain/policy'"),
    ("{dra: {extendedResources: [nvidia.com/mig-3g]}}", "'/dra/extendedResources/0'"),
    ("{agent: {drain: {deadline: ''}}}", "'/agent/drain/deadline'"),
    ("{agent: {drain: {deadline: 0s}}}", "'/agent/drain/deadline'"),
    ("{agent: {drain: {deadline: 500ms}}}", "'/agent/drain/deadline'"),
    ("{agent: {interval: 0s}}", "'/agent/interval'"),
    ("{agent: {devicePluginConfigs: [a, a]}}", "'/agent/devicePluginConfigs'"),
    ("{agent: {devicePluginConfigs: ['a,b', c]}}", "'/agent/devicePluginConfigs/0'"),
    ("{agent: {taintNotReady: maybe}}", "'/agent/taintNotReady': got string, want boolean"),
    ("{agent: {tolerations: [{op: Exists}]}}", "'/agent/tolerations/0'"),
    ("{agent: {devicePluginConfigs: [one]}}", "'/agent/devicePluginConfigs'"),
    ("{agent: {aggregator: {address: 'http://plain:1'}}}", "'/agent/aggregator/address'"),
    ("{aggregator: {priceBook: {currency: USD}}}", "'/aggregator/priceBook'"),
    ("{aggregator: {budgets: [team-a]}}", "'/aggregator/budgets'"),
    (
        "{aggregator: {budgets: 'kind: Budgets', ledger: {enabled: true}}}",
        "aggregator.budgets requires aggregator.ledger.enabled and aggregator.priceBook",
    ),
    ("{aggregator: {prometheusUrl: 'prometheus:9090'}}", "'/aggregator/prometheusUrl'"),
    ("{aggregator: {estimate: {engine: 'estimator:8080'}}}", "'/aggregator/estimate/engine'"),
    (
        "{aggregator: {estimate: {engine: 'http://estimator', timeout: 2}}}",
        "'/aggregator/estimate/timeout'",
    ),
    ("{image: {agent: {digest: 'sha256:1'}}}", "'/image/agent/digest'"),
    ("{pools: [{name: A, match: {key: pool, values: [a]}}]}", "'/pools/0/name'"),
    ("{pools: [{name: a, match: {key: pool, values: []}}]}", "'/pools/0/match/values'"),
    (
        "{pools: [{name: a, match: {key: pool, values: [a]}, agent: {drains: 1}}]}",
        "'/pools/0/agent'",
    ),
    (
        "{pools: [{name: a, match: {key: pool, values: [a]}}, {name: a, match: {key: pool, values: [a]}}]}",
        "pools, a: duplicate pool name",
    ),
    ("{agent: {drain: {policy: node}}}", "agent.drain.policy: node requires the tier applier"),
    (
        "{agent: {drain: {allowPolicies: true}}}",
        "agent.drain.allowPolicies requires the tier applier",
    ),
    ("{agent: {layout: small}}", "agent.layout requires the tier applier"),
    (
        "{pools: [{name: a, match: {key: pool, values: [a]}, agent: {taintNotReady: true}}]}",
        "pools, a: agent.taintNotReady requires the tier applier",
    ),
    (
        "{tier: reporter, agent: {labelSink: node}}",
        "agent.labelSink: node requires the tier reader or applier",
    ),
    ("{tier: reporter, agent: {compat: mig-manager}}", "agent.compat requires the tier applier"),
    ("{agent: {compat: mig-manager}}", "agent.compat requires the tier applier"),
    (
        "{tier: applier, pools: [{name: a, tier: reader, match: {key: pool, values: [a]}}], agent: {compat: mig-manager}}",
        "pools, a: agent.compat requires the tier applier",
    ),
    (
        "{tier: reporter, agent: {migStrategy: mixed}}",
        "agent.migStrategy requires the tier reader or applier",
    ),
    ("{agent: {devicePluginConfigs: [a, b]}}", "agent.devicePluginConfigs requires agent.compat"),
    ("{agent: {sharing: {mode: mps}}}", "'/agent/sharing/mode': value must be one of"),
    ("{agent: {sharing: {deviceList: []}}}", "'/agent/sharing/deviceList'"),
    ("{agent: {sharing: {deviceList: [cdi, cdi]}}}", "'/agent/sharing/deviceList'"),
    ("{agent: {sharing: {ignoreXids: [79, x]}}}", "'/agent/sharing/ignoreXids"),
    ("{agent: {usage: {interval: 500ms}}}", "'/agent/usage/interval'"),
    (
        "{agent: {sharing: {mode: embedded}}}",
        "agent.sharing.mode: embedded requires the tier applier",
    ),
    (
        "{tier: applier, agent: {sharing: {mode: hand-off}}}",
        "agent.sharing.mode: hand-off requires handOff",
    ),
    ("{dra: {enabled: true}}", "dra.enabled requires the tier applier"),
    (
        "{tier: applier, dra: {enabled: true}, agent: {sharing: {mode: embedded}}}",
        "agent.sharing.mode: embedded excludes dra.enabled",
    ),
    (
        "{tier: applier, dra: {enabled: true}, handOff: {namespace: a, configMap: b}}",
        "dra.enabled excludes handOff",
    ),
    ("{layouts: 'layouts: ['}", "layouts: not YAML: "),
    ("{layouts: 'halves: 1'}", "layouts: the file must begin with apiVersion: octavo.dev/v1 or"),
    ("{layouts: 'version: v2'}", "layouts: version must be v1, not v2"),
    (
        "{layouts: '{apiVersion: octavo.dev/v1, kind: Layouts, layouts: [7]}'}",
        "layouts: layouts must be a map from names to lists of rules",
    ),
    (
        "{layouts: '{apiVersion: octavo.dev/v1, kind: Layouts, layouts: {a: 7}}'}",
        "layouts: a must be a list of rules",
    ),
    (
        "{layouts: '{apiVersion: octavo.dev/v1, kind: Layouts, layouts: {a: [{devices: all, migg: disabled}]}}'}",
        "layouts: a, rule 1: unknown key \"migg\"; valid keys: devices, mig, timeSlicing",
    ),
    (
        "{layouts: '{version: v1, mig-configs: {a: [{mig-enabled: false}]}}'}",
        "layouts: a, rule 1: devices is missing",
    ),
    (
        "{layouts: '{version: v1, mig-config: {a: [{devices: all, mig-enabled: false}]}}'}",
        "layouts: unknown key \"mig-config\"",
    ),
    ("{layouts: '{version: v1}'}", "layouts: mig-configs is missing"),
    ("{layouts: '{version: v1, mig-configs: {}}'}", "layouts: the file has no layouts"),
    ("{layouts: '{version: v1, mig-configs: {a: []}}'}", "layouts: a has no rules"),
    (
        "{layouts: '{version: v1, mig-configs: {a: [{devices: all, mig-enabled: false}]}, sharing: {}}'}",
        "layouts: mig-configs and sharing belong to different formats",
    ),
    (
        "{layouts: '{apiVersion: octavo.dev/v1, kind: Layouts, layouts: {}}'}",
        "layouts: the file has no layouts",
    ),
    (
        "{openshift: {enabled: true}, agent: {neuron: {enabled: true}}}",
        "agent.neuron.enabled on OpenShift requires the tier applier",
    ),
    ("{handOff: {configMap: a}}", "handOff: set both namespace and configMap"),
    ("{agent: {usage: {hostPID: true}}}", "agent.usage.hostPID requires the tier applier"),
    (
        "{tier: applier, agent: {usage: {interval: '', podEvents: true}}}",
        "agent.usage.podEvents requires agent.usage.interval",
    ),
    ("{layouts: a, layoutsConfigMap: b}", "layouts and layoutsConfigMap: set only one"),
    ("{aggregator: {followCluster: nodes}}", "'/aggregator/followCluster'"),
    (
        "{aggregator: {createProfiles: true, httpAuth: token-review}}",
        "aggregator.createProfiles requires aggregator.followCluster",
    ),
    (
        "{aggregator: {createProfiles: true, followCluster: true, httpAuth: none}}",
        "aggregator.createProfiles requires aggregator.httpAuth",
    ),
    (
        "{aggregator: {httpAuth: proxy-header}}",
        "aggregator.trustedProxies: set the address of the proxy",
    ),
    ("{aggregator: {trustedProxies: [10.0.0.1]}}", "require aggregator.httpAuth: proxy-header"),
    ("{aggregator: {httpAuth: some}}", "httpAuth"),
    ("{aggregator: {replicas: 0}}", "'/aggregator/replicas'"),
    (
        "{aggregator: {replicas: 2, ledger: {enabled: true}}}",
        "aggregator.replicas above 1 requires aggregator.ledger.secretName",
    ),
    (
        "{aggregator: {replicas: 2}, policy: {enabled: false}}",
        "aggregator.replicas above 1 requires policy.enabled",
    ),
    ("{aggregator: {proxy: {enabled: true}}}", "aggregator.proxy.image: set the image"),
    (
        "{aggregator: {httpAuth: none, proxy: {enabled: true, image: 'proxy:1'}}}",
        "aggregator.proxy requires aggregator.httpAuth",
    ),
    (
        "{aggregator: {proxy: {enabled: true, image: 'proxy:1', port: 8443}}}",
        "aggregator.proxy.port: the aggregator uses port 8443",
    ),
    ("{aggregator: {proxy: {port: 80}}}", "'/aggregator/proxy/port'"),
    ("{aggregator: {ingress: {enabled: true}}}", "aggregator.ingress.host: set the host name"),
    (
        "{aggregator: {ingress: {hosts: [a]}}}",
        "'/aggregator/ingress': additional properties 'hosts'",
    ),
    (
        "{aggregator: {httpRoute: {enabled: true}}}",
        "aggregator.httpRoute.parentRefs: set the Gateway",
    ),
    (
        "{aggregator: {httpRoute: {parentRefs: [{gateway: a}]}}}",
        "'/aggregator/httpRoute/parentRefs/0'",
    ),
    (
        "{aggregator: {route: {enabled: true, termination: reencrypt}}}",
        "aggregator.route.destinationCACertificate: set the CA",
    ),
    ("{aggregator: {route: {termination: edge}}}", "'/aggregator/route/termination'"),
    ("{networkPolicy: {scrapers: [{}]}}", "'/networkPolicy/scrapers/0'"),
    ("{aggregator: {tls: {generate: false}}}", "aggregator.tls: set secretName"),
    ("{aggregator: {tls: {certManager: {enabled: true}}}}", "issuerRef: set the name of an issuer"),
];

#[test]
fn invalid_values_are_rejected_with_their_location() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    let chart = path();
    for (values, reported) in WRONG {
        fs::write(&file, values).unwrap();
        let (chart, file) = (chart.to_str().unwrap(), file.to_str().unwrap());
        let output = helm(&["template", "octavo", chart, "--values", file]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "accepted: {values}");
        assert!(errors.contains(reported), "{values}: {errors}");
    }
}
