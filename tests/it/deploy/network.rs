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
