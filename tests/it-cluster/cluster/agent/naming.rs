//! Manual types of unknown devices, set by a label of the Node.

use super::Rig;
use crate::cluster::Api;
use crate::time_limits::{Finish, until};
use crate::tree::write_tree;

const LABEL: &str = "octavo.dev/type-override";
const NONE: &str = " []";

/// Adds a board that is in no catalog to the machine.
fn stranger(rig: &Rig<'_>, slot: &str) {
    let at = format!("sys/bus/pci/devices/0000:{slot}:00.0");
    let tree = [("vendor", "0x1e52"), ("device", "0xfff7"), ("class", "0x120000")];
    let tree: Vec<String> =
        tree.iter().map(|(file, value)| format!("{at}/{file} = {value}\\n")).collect();
    write_tree(rig.machine.machine.path(), &tree.join("\n"));
}

/// Labels about the devices of the node, as `key=value`.
fn types(rig: &Rig<'_>) -> Vec<String> {
    let own = rig.labels("octavo.dev/type").into_iter();
    let each = rig.labels("type.octavo.dev/").into_iter();
    let all = own.chain(each).filter(|(key, _)| key != LABEL);
    all.map(|(key, value)| format!("{key}={value}")).collect()
}

#[test]
fn label_names_unknown_devices_until_removal_and_outlives_agents() {
    let api = Api::fresh();
    let rig = Rig::new(&api, NONE);
    stranger(&rig, "5d");
    let mut agent = rig.start(&[]);
    rig.await_label("octavo.dev/type", "unknown");
    rig.label(&[&format!("{LABEL}=acme-x1")]);
    let reported = agent.expect_log("manually set");
    assert!(
        reported
            .contains("octavo.dev/type-override=acme-x1: 1 device is manually set to type acme-x1"),
        "{reported}"
    );
    rig.await_label("octavo.dev/type", "acme-x1");
    let named =
        ["octavo.dev/type=acme-x1", "octavo.dev/type-source=manual", "type.octavo.dev/acme-x1=1"];
    assert_eq!(types(&rig), named);
    // A product of the catalog has a SKU, which only devices of its vendor can have.
    rig.label(&[&format!("{LABEL}=Acme_X2")]);
    rig.await_label("octavo.dev/type", "acme-x2");
    rig.label(&[&format!("{LABEL}=acme-x1")]);
    rig.await_label("octavo.dev/type", "acme-x1");
    let before = rig.writes();
    agent.kill();
    // The next agent reports the same from the start: nothing is written.
    let mut agent = rig.start(&["--log-level=debug"]);
    agent.expect_log("manually set to type acme-x1");
    agent.expect_log("the Node is up to date");
    assert_eq!(rig.writes(), before);
    assert_eq!(types(&rig), named);
    // Removing our labels keeps those of other owners.
    rig.label(&[&format!("{LABEL}-")]);
    agent.expect_log("type override removed from the Node");
    rig.await_label("octavo.dev/type", "unknown");
    assert_eq!(types(&rig), ["octavo.dev/type=unknown", "type.octavo.dev/unknown=1"]);
    rig.label(&[&format!("{LABEL}=acme-x1")]);
    rig.await_label("octavo.dev/type", "acme-x1");
    agent.kill();
    let cleaned = rig.agent(&["--label-sink=node", "--cleanup"]).finish();
    assert!(cleaned.status.success(), "{cleaned:?}");
    let retained = [(LABEL.to_owned(), "acme-x1".to_owned())];
    assert_eq!(rig.labels("octavo.dev/"), retained);
    assert_eq!(rig.labels("type.octavo.dev/"), []);
}

#[test]
fn invalid_type_override_is_reported_and_changes_nothing() {
    let rig = Rig::new(Api::shared(), "- {board: H100_80GB_SXM, count: 1}\n");
    rig.label(&[&format!("{LABEL}=acme-x1")]);
    let mut agent = rig.start(&[]);
    agent.expect_log(
        "octavo.dev/type-override=acme-x1 has no effect: the type of every device on this node is known and does not change",
    );
    rig.await_label("octavo.dev/type", "nvidia-h100-80gb");
    // A new device is named by the next scan.
    stranger(&rig, "5d");
    agent.expect_log("1 device is manually set to type acme-x1");
    rig.await_label("octavo.dev/type", "mixed");
    rig.await_label("octavo.dev/type-source", "manual");
    for (value, expected) in [
        ("H100", "=H100 has no effect: it is ambiguous and matches nvidia-h100-sxm5-80gb, "),
        ("", "type-override= is empty and has no effect"),
        ("mixed", "=mixed has no effect: the word is reserved for nodes without a single type"),
        (
            "nvidia-b300",
            "0 devices are manually set to type nvidia-b300-288gb; 1 device stays unknown",
        ),
    ] {
        rig.label(&[&format!("{LABEL}={value}")]);
        let reported = agent.expect_log(expected);
        assert!(reported.contains("WARN"), "{reported}");
        let expected = [
            "octavo.dev/type=mixed",
            "type.octavo.dev/nvidia-h100-80gb=1",
            "type.octavo.dev/unknown=1",
        ];
        until(value, || types(&rig), |types| *types == expected);
        rig.label(&[&format!("{LABEL}=acme-x1")]);
        rig.await_label("octavo.dev/type-source", "manual");
    }
    // Invalid label values are rejected by Kubernetes.
    for value in ["h 7", &"x".repeat(64)] {
        let wrong = format!("{LABEL}={value}");
        let arguments = ["label", "--overwrite", "node", rig.name(), &wrong];
        assert!(!rig.api.try_kubectl(&arguments).status.success());
    }
}
