//! Access to the aggregator: closed by default, and open only in the ways that the values select.

use std::process::Command;

use serde_json::{Value, json};

use crate::manifests::chart::{helm_output, path, render_with};
use crate::time_limits::Finish;

/// The object of this kind and name.
#[track_caller]
fn object(all: &[Value], kind: &str, name: &str) -> Value {
    let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    let found = all.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
}

fn kinds(all: &[Value]) -> Vec<&str> {
    all.iter().map(|one| one["kind"].as_str().unwrap()).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

/// Authentication of HTTP clients by the aggregator.
fn http_auth(all: &[Value]) -> String {
    let deployment = object(all, "Deployment", "octavo-aggregator");
    let flags = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let mut flags = texts(&flags).into_iter().filter_map(|flag| flag.strip_prefix("--http-auth="));
    flags.next().unwrap().to_owned()
}

#[test]
fn pages_and_api_require_a_token_unless_the_values_open_them() {
    for closed in [json!({}), json!({"aggregator": {"httpAuth": null}})] {
        let all = render_with(&closed);
        assert_eq!(http_auth(&all), "token-review", "{closed}");
        let role = object(&all, "ClusterRole", "octavo-aggregator");
        let reviews = role["rules"].as_array().unwrap().iter();
        let reviews = reviews.flat_map(|rule| texts(&rule["resources"]));
        assert!(reviews.into_iter().any(|one| one == "subjectaccessreviews"), "{role}");
        assert_eq!(kinds(&all).iter().filter(|kind| **kind == "NetworkPolicy").count(), 2);
        for outside in ["Ingress", "HTTPRoute", "Route"] {
            assert!(!kinds(&all).contains(&outside), "{outside}");
        }
    }
    let open = json!({"aggregator": {"httpAuth": "none"}, "networkPolicy": {"enabled": false}});
    let all = render_with(&open);
    assert_eq!(http_auth(&all), "none");
    assert!(!kinds(&all).contains(&"NetworkPolicy"));
}

/// The command line finds the account by these labels and requests tokens of it.
#[test]
fn readers_have_an_account_with_their_role_whatever_the_authentication() {
    for values in [json!({}), json!({"aggregator": {"httpAuth": "none"}})] {
        let all = render_with(&values);
        let account = object(&all, "ServiceAccount", "octavo-reader");
        assert_eq!(account["metadata"]["namespace"], "octavo-system");
        let labels = &account["metadata"]["labels"];
        for (key, value) in [("name", "octavo"), ("instance", "octavo"), ("component", "reader")] {
            assert_eq!(labels[format!("app.kubernetes.io/{key}")], value, "{labels}");
        }
        let binding = object(&all, "ClusterRoleBinding", "octavo-reader");
        assert_eq!(binding["roleRef"]["name"], "octavo-reader");
        let subject = json!([{"kind": "ServiceAccount", "name": "octavo-reader", "namespace": "octavo-system"}]);
        assert_eq!(binding["subjects"], subject);
        let role = object(&all, "ClusterRole", "octavo-reader");
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(texts(&rule["apiGroups"]), ["octavo.dev"]);
            assert_eq!(texts(&rule["verbs"]), ["get", "list", "watch"]);
        }
    }
}

fn notes(values: &[&str]) -> String {
    let chart = path();
    let install = ["install", "octavo", chart.to_str().unwrap(), "--dry-run=client"];
    helm_output(&[&install[..], values].concat())
}

#[test]
fn notes_explain_access_and_warn_about_an_open_aggregator() {
    let grant = "kubectl create clusterrolebinding octavo-reader-users --clusterrole octavo-reader";
    let warning = "EVERY CLIENT THAT REACHES THE SERVICE";
    let closed = notes(&[]);
    for line in [grant, "    octavo nodes\n", "browsers do not send tokens"] {
        assert!(closed.contains(line), "{line}: {closed}");
    }
    assert!(!closed.contains(warning), "{closed}");
    let open = notes(&["--set=aggregator.httpAuth=none"]);
    assert!(open.contains(warning) && !open.contains(grant), "{open}");
    let proxy = "--set=aggregator.proxy.enabled=true,aggregator.proxy.image=proxy:1,\
        aggregator.ingress.enabled=true,aggregator.ingress.host=octavo.example.com";
    let proxied = notes(&[proxy]);
    assert!(proxied.contains("Web pages: https://octavo.example.com\n"), "{proxied}");
}

#[test]
fn external_routes_lead_to_the_proxy_if_it_is_enabled() {
    for (proxy, port, number) in [(false, "https", 8443), (true, "proxy", 4443)] {
        let all = render_with(&json!({"aggregator": {
            "proxy": {"enabled": proxy, "image": "proxy:1"},
            "ingress": {"enabled": true, "host": "octavo.example.com"},
            "httpRoute": {"enabled": true, "parentRefs": [{"name": "public"}]},
            "route": {"enabled": true},
        }}));
        let service = object(&all, "Service", "octavo-aggregator");
        let ports = service["spec"]["ports"].as_array().unwrap();
        let ports: Vec<_> = ports.iter().filter(|one| one["name"] == port).collect();
        assert_eq!(ports[0]["port"], number);
        let ingress = object(&all, "Ingress", "octavo-aggregator");
        let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
        assert_eq!(backend, &json!({"name": "octavo-aggregator", "port": {"name": port}}));
        let route = object(&all, "HTTPRoute", "octavo-aggregator");
        assert_eq!(route["spec"]["rules"][0]["backendRefs"][0]["port"], number);
        let tls = object(&all, "BackendTLSPolicy", "octavo-aggregator");
        assert_eq!(tls["spec"]["targetRefs"][0]["sectionName"], port);
        let route = object(&all, "Route", "octavo-aggregator");
        assert_eq!(route["spec"]["port"]["targetPort"], port);
    }
}

#[test]
fn passthrough_route_host_is_in_the_certificate() {
    let names = |termination: &str| {
        let all = render_with(&json!({"aggregator": {"route": {
            "enabled": true, "host": "octavo.apps.example.com", "termination": termination,
            "destinationCACertificate": "PEM",
        }}}));
        let secret = object(&all, "Secret", "octavo-aggregator-tls");
        let names = &secret["metadata"]["annotations"]["octavo.dev/certificate-for"];
        names.as_str().unwrap().split(',').any(|name| name == "octavo.apps.example.com")
    };
    assert!(names("passthrough"));
    assert!(!names("reencrypt"));
}

/// The arguments of the test pod change with the command line.
#[test]
fn command_line_accepts_the_arguments_of_the_test_pod() {
    let all = render_with(&json!({}));
    let pod = object(&all, "Pod", "octavo-test");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(texts(&container["command"]), ["/usr/local/bin/octavo"]);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("token"), "token").unwrap();
    let arguments = texts(&container["args"]).into_iter().map(|argument| {
        let argument = argument.replace("/etc/octavo/ca/ca.crt", &file("ca.crt"));
        argument.replace("/var/run/secrets/octavo/token", &file("token"))
    });
    let command = Command::new(env!("CARGO_BIN_EXE_octavo")).args(arguments).finish();
    let errors = String::from_utf8(command.stderr).unwrap();
    // Usage errors exit with 2.
    assert_eq!(command.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ca.crt"), "{errors}");
}
