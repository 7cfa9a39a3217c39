//! Network policies allow only the required ports.

use serde_json::{Value, json};

use crate::manifests::chart;

/// Ports that agents may connect to.
fn ports(values: &Value) -> Vec<(String, String)> {
    ports_of("octavo-agent", values)
}

/// Ports that pods with this policy may connect to.
fn ports_of(name: &str, values: &Value) -> Vec<(String, String)> {
    let all = chart::render_with(values);
    let is_it = |one: &&Value| one["kind"] == "NetworkPolicy" && one["metadata"]["name"] == name;
    let policy = all.iter().find(is_it).unwrap();
    let rules = policy["spec"]["egress"].as_array().unwrap().iter();
    let ports = rules.flat_map(|rule| rule["ports"].as_array().unwrap());
    ports
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            (port["port"].to_string(), protocol.to_owned())
        })
        .collect()
}

#[test]
fn agents_reach_configured_port_of_aggregator() {
    for (address, port) in [
        ("https://octavo.example.com:7443", "7443"),
        ("https://octavo.example.com:7443/", "7443"),
        ("https://octavo.example.com", "443"),
        ("https://10.0.0.5", "443"),
        ("https://10.0.0.5:8443", "8443"),
        ("https://[fd00::5]", "443"),
        ("https://[fd00::5]:8443", "8443"),
    ] {
        let let_out = ports(&json!({
            "tier": "reporter", "networkPolicy": {"enabled": true},
            "aggregator": {"enabled": false}, "agent": {"aggregator": {"address": address}},
        }));
        let expected = [("53", "UDP"), ("53", "TCP"), (port, "TCP")];
        let expected = expected.map(|(port, protocol)| (port.to_owned(), protocol.to_owned()));
        assert_eq!(let_out, expected, "{address}");
    }
}

#[test]
fn agents_reach_port_of_openshift_dns() {
    let values = |openshift: bool| json!({"networkPolicy": {"enabled": true}, "openshift": {"enabled": openshift}});
    for protocol in ["TCP", "UDP"] {
        let dns = ("5353".to_owned(), protocol.to_owned());
        assert!(ports(&values(true)).contains(&dns), "{protocol}");
        assert!(!ports(&values(false)).contains(&dns), "{protocol}");
    }
}

#[test]
fn aggregator_reaches_port_of_estimation_engine() {
    for (engine, port) in [
        ("http://estimator.ml.svc:8080/estimate", "8080"),
        ("http://estimator.ml.svc/estimate:9", "80"),
        ("https://estimator.example.com", "443"),
        ("https://[fd00::5]:8443/", "8443"),
    ] {
        let let_out = ports_of(
            "octavo-aggregator",
            &json!({
                "networkPolicy": {"enabled": true}, "aggregator": {"estimate": {"engine": engine}},
            }),
        );
        assert_eq!(
            let_out.last(),
            Some(&(port.to_owned(), "TCP".to_owned())),
            "{engine}: {let_out:?}"
        );
    }
    // Network policies apply to the port of the pods, not to that of the Service.
    let let_out = ports_of(
        "octavo-aggregator",
        &json!({
            "networkPolicy": {"enabled": true},
            "aggregator": {"estimate": {"engine": "http://estimator.ml.svc/estimate", "ports": [8080, 9090]}},
        }),
    );
    let expected = ["80", "8080", "9090"].map(|port| (port.to_owned(), "TCP".to_owned()));
    assert!(let_out.ends_with(&expected), "{let_out:?}");
}

/// Rules for connections to the pods of this policy, by port.
fn peers(all: &[Value], name: &str) -> Vec<(u64, Option<Value>)> {
    let is_it = |one: &&Value| one["kind"] == "NetworkPolicy" && one["metadata"]["name"] == name;
    let policy = all.iter().find(is_it).unwrap();
    let rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    rules
        .map(|rule| {
            assert_eq!(rule["ports"].as_array().unwrap().len(), 1, "{rule}");
            (rule["ports"][0]["port"].as_u64().unwrap(), rule.get("from").cloned())
        })
        .collect()
}

/// Labels of the pods of a controller, or of a pod.
fn labels(all: &[Value], kind: &str) -> Value {
    let found = all.iter().find(|one| one["kind"] == kind).unwrap();
    match kind {
        "Pod" => found["metadata"]["labels"].clone(),
        _ => found["spec"]["template"]["metadata"]["labels"].clone(),
    }
}

/// True if a selector without expressions selects pods with these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object().unwrap();
    wanted.iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn agents_reach_the_aggregator_and_prometheus_reaches_the_agents_by_default() {
    let all = chart::render_with(&json!({}));
    let agent = labels(&all, "DaemonSet");
    let aggregator = labels(&all, "Deployment");
    // Each policy selects its pods only.
    for (name, own, other) in
        [("octavo-agent", &agent, &aggregator), ("octavo-aggregator", &aggregator, &agent)]
    {
        let is_it =
            |one: &&Value| one["kind"] == "NetworkPolicy" && one["metadata"]["name"] == name;
        let selector = all.iter().find(is_it).unwrap()["spec"]["podSelector"].clone();
        assert!(selects(&selector, own) && !selects(&selector, other), "{selector}");
    }
    let prometheus = json!({
        "namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    });
    assert_eq!(peers(&all, "octavo-agent"), [(9402, Some(json!([prometheus])))]);
    let [(7443, Some(grpc)), (8443, None)] = &peers(&all, "octavo-aggregator")[..] else {
        panic!("{:?}", peers(&all, "octavo-aggregator"));
    };
    let [from] = &grpc.as_array().unwrap()[..] else { panic!("{grpc}") };
    assert!(selects(&from["podSelector"], &agent) && from.get("namespaceSelector").is_none());
    // The numbers are those of the pods.
    for (kind, name, number) in [
        ("DaemonSet", "metrics", 9402),
        ("Deployment", "grpc", 7443),
        ("Deployment", "https", 8443),
    ] {
        let one = all.iter().find(|one| one["kind"] == kind).unwrap();
        let ports = one["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["name"] == name).unwrap();
        assert_eq!(port["containerPort"], number, "{name}");
    }
}

#[test]
fn selected_readers_scrapers_and_the_test_pod_reach_the_aggregator() {
    let reader = json!({"podSelector": {"matchLabels": {"app": "reader"}}});
    let scraper = json!({"ipBlock": {"cidr": "192.0.2.0/24"}});
    let all = chart::render_with(&json!({
        "networkPolicy": {"readers": [reader], "scrapers": [scraper]},
        "aggregator": {"proxy": {"enabled": true, "image": "proxy:1", "egressPorts": [9443]}},
    }));
    let peers = peers(&all, "octavo-aggregator");
    let [(7443, _), (8443, Some(https)), (4443, Some(proxy))] = &peers[..] else {
        panic!("{peers:?}");
    };
    assert_eq!(proxy, &json!([reader]));
    let [first, second, test] = &https.as_array().unwrap()[..] else { panic!("{https}") };
    assert_eq!((first, second), (&reader, &scraper));
    assert!(selects(&test["podSelector"], &labels(&all, "Pod")), "{test}");
    let let_out = ports_of(
        "octavo-aggregator",
        &json!({"aggregator": {"proxy": {"enabled": true, "image": "proxy:1", "egressPorts": [9443]}}}),
    );
    assert!(let_out.contains(&("9443".to_owned(), "TCP".to_owned())), "{let_out:?}");
    // The API server of every common distribution.
    for port in ["443", "6443", "8443", "16443"] {
        assert!(let_out.contains(&(port.to_owned(), "TCP".to_owned())), "{port}");
    }
}
