//! Tests of the application.

use serde_json::json;

use super::*;
use crate::tests_support::objects;

#[test]
fn f1_application_deletes_no_machine_and_leaves_replicas_to_the_autoscaler() {
    let generated = argo_cd(&ArgoCdOptions {
        name: "machine-pools",
        namespace: "openshift-gitops",
        repository: "https://git.example/fleet",
        path: "deploy/machines",
        revision: "main",
    });
    let application = &objects(&generated, "application.yaml")[0];
    let metadata = json!({"name": "machine-pools", "namespace": "openshift-gitops"});
    // A finalizer would delete the machines together with the application.
    assert_eq!(application["metadata"], metadata);
    let spec = &application["spec"];
    assert_eq!(spec["syncPolicy"]["automated"]["prune"], false);
    let options = spec["syncPolicy"]["syncOptions"].as_array().unwrap();
    for option in ["Prune=false", "RespectIgnoreDifferences=true"] {
        assert!(options.contains(&json!(option)), "{options:?}");
    }
    let ignored = &spec["ignoreDifferences"][0];
    assert_eq!(ignored["kind"], "MachineSet");
    assert!(ignored["jsonPointers"].as_array().unwrap().contains(&json!("/spec/replicas")));
    assert_eq!(spec["source"]["repoURL"], "https://git.example/fleet");
}
