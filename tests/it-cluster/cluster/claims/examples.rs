//! The example claims of `docs/tasks/dra.md`, from the text of the page.

use std::fs;

use serde_json::json;

use super::{Workload, await_slices, chart_objects, device_of};
use crate::cluster::Api;
use crate::cluster::agent::Rig;

const PAGE: &str = include_str!("../../../../docs/tasks/dra.md");
/// Three whole GPUs and two partitioned ones, all connected.
const MACHINE: &str = "- {board: A100_80GB, count: 3}\n- {board: A100_80GB, count: 2, mig: enabled}\nlinks: nvswitch\n";

/// The YAML blocks of the examples.
fn examples() -> Vec<&'static str> {
    let section = PAGE.split_once("\n## Example claims\n").unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```yaml\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0).collect()
}

/// Creates the objects of a block.
fn apply(workload: &Workload<'_>, text: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("example.yaml");
    fs::write(&file, text).unwrap();
    workload.api.kubectl(&["create", "-n", &workload.namespace, "-f", file.to_str().unwrap()]);
}

#[test]
fn examples_of_the_page_are_allocated() {
    let api = Api::shared();
    api.apply(&chart_objects(&["dra.yaml"]));
    let rig = Rig::new(api, MACHINE);
    let _agent = rig.start(&["--dra"]);
    await_slices(api, rig.name(), 4);
    let workload = Workload { api, namespace: api.namespace() };
    api.await_account(&workload.namespace);
    let label = "resource.kubernetes.io/admin-access=true";
    api.kubectl(&["label", "namespace", &workload.namespace, label]);

    let examples = examples();
    let (complete, fragments) = examples.split_first().unwrap();
    // Only this node has the devices of this test.
    let place = format!(
        "spec:\n  nodeSelector: {{kubernetes.io/hostname: {}}}\n  tolerations: [{{operator: Exists}}]\n  resourceClaims",
        rig.name()
    );
    apply(&workload, &complete.replace("spec:\n  resourceClaims", &place));
    workload.await_scheduled("half", "True");
    let mut counts = Vec::new();
    for (number, fragment) in fragments.iter().enumerate() {
        let name = format!("example-{number}");
        let devices: Vec<String> = fragment.lines().map(|line| format!("    {line}")).collect();
        let devices = devices.join("\n");
        let head = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n"
        );
        apply(&workload, &format!("{head}spec:\n  devices:\n{devices}"));
        workload.pod(&name, rig.name(), &name, &[json!({"claims": [{"name": "device"}]})]);
        workload.await_scheduled(&name, "True");
        let results = workload.results(&name);
        let admin = results.iter().filter(|one| one["adminAccess"] == true).count();
        let parts = results.iter().filter(|one| device_of(one).contains("-mig-")).count();
        counts.push((results.len(), parts, admin));
    }
    // A GPU, 40 GB, a pair, a partition with a fallback, and all GPUs of the node with administrative access.
    assert_eq!(counts, [(1, 0, 0), (1, 1, 0), (2, 0, 0), (1, 1, 0), (3, 0, 3)]);
    api.kubectl(&["delete", "namespace", &workload.namespace, "--wait=false"]);
}
