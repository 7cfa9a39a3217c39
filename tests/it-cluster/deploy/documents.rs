//! Commands of the documentation, run against a real API server.

use std::process::Command;

use serde_json::Value;

use crate::cluster::Api;
use crate::manifests::privileges::objects;
use crate::manifests::{chart, commands, list};
use crate::time_limits::Finish;

#[test]
fn removal_with_kubectl_leaves_no_permission_behind() {
    let api = Api::fresh();
    for path in ["tiers/applier", "options/drain", "options/follow-cluster", "options/nodefeature"]
    {
        api.kubectl(&["apply", "-k", &super::path(path)]);
    }
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings";
    let rights = || api.kubectl(&["get", "-A", "-o", "name", kinds]);
    assert!(rights().contains("octavo-drain") && rights().contains("octavo-aggregator-follow"));
    let mut typed = 0;
    for command in commands(list::page(), "kubectl delete ") {
        // No controller deletes the content of the namespace here.
        let output = api.try_kubectl(&[&command[..], &["--wait=false"]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{command:?}: {errors}");
        typed += 1;
    }
    assert!(typed >= 3, "{typed}");
    let left = rights();
    assert!(!left.contains("octavo"), "{left}");
}

#[test]
fn option_applied_with_kubectl_reaches_the_agents() {
    let api = Api::fresh();
    api.kubectl(&["apply", "-k", &super::path("tiers/applier")]);
    let install = include_str!("../../../docs/get-started/install.md");
    let verbs = ["set env daemonset/", "patch daemonset "];
    for verb in verbs {
        let beginning = format!("kubectl -n octavo-system {verb}");
        let typed: Vec<Vec<&str>> = commands(install, &beginning).collect();
        assert_eq!(typed.len(), 1, "{beginning}");
        let unquoted: Vec<&str> = typed[0].iter().map(|word| word.trim_matches('\'')).collect();
        api.kubectl(&unquoted);
    }
    let path = "jsonpath={.spec.template.spec.containers[0]}";
    let get = ["get", "daemonset", "octavo-agent", "-n", "octavo-system", "-o", path];
    let agent: Value = serde_json::from_str(&api.kubectl(&get)).unwrap();
    assert_eq!(agent["args"][0], "--label-sink=nodefeature");
    assert_eq!(agent["args"][1], "--follow-node");
    // The agent parses these arguments: only a node name and an API server are missing.
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let arguments = agent["args"].as_array().unwrap().iter().map(text);
    let shown = agent["env"].as_array().unwrap().iter();
    let shown = shown.filter(|one| one["name"].as_str().unwrap().starts_with("OCTAVO_DRAIN"));
    let shown: Vec<(String, String)> =
        shown.map(|one| (text(&one["name"]), text(&one["value"]))).collect();
    assert_eq!(shown.len(), 2, "{agent}");
    let agent = |more: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
            .args(arguments.clone())
            .envs(shown.clone())
            .env("OCTAVO_NODE_NAME", "node-a")
            .env_remove("KUBECONFIG")
            .envs(more.iter().copied())
            .finish();
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = agent(&[]);
    assert!(errors.contains("no service account found"), "{errors}");
    let errors = agent(&[("OCTAVO_DRAIN", "everything")]);
    assert!(errors.contains("invalid value 'everything' for '--drain"), "{errors}");
}

#[test]
fn kubectl_creates_policies_before_agents_and_helm_after_them() {
    let kinds = |rendered: &str| {
        let all = objects(rendered);
        let place = |kind: &str| all.iter().position(|one| one["kind"] == kind).unwrap();
        (place("ValidatingAdmissionPolicyBinding"), place("DaemonSet"))
    };
    for tier in ["tiers/reader", "tiers/applier"] {
        let (policy, agents) = kinds(&Api::shared().kubectl(&["kustomize", &super::path(tier)]));
        assert!(policy < agents, "{tier}");
    }
    // Helm applies in the order in which it renders; permissions.md documents it.
    let (policy, agents) = kinds(&chart::render(&chart::values("default")));
    assert!(agents < policy);
}
