//! Octavo's own keys, complete sets.

use octavo_model::inventory::{Condition, Identity, NvmlState};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ApplyState, NodeLayoutStatus};

use super::machines::{A100_80, L40S, driverless, gpu, hgx, machine, on_bus};
use super::*;

fn octavo_only() -> Options {
    Options { nvidia: KeyPolicy::Withhold, ..Options::default() }
}

#[test]
fn node_without_accelerators_has_no_labels() {
    let options = Options { timestamp: Some(1), ..Options::default() };
    for node in [machine(vec![]), driverless(vec![])] {
        assert_eq!(compile(&node, &options, None), CompiledLabels::default());
    }
}

#[test]
fn mixed_node_lists_types_and_common_attributes() {
    let node = machine(vec![gpu(1, &L40S), gpu(2, &L40S), gpu(3, &A100_80)]);
    check(
        &node,
        &octavo_only(),
        &["
        octavo.dev/driver=570.133.20
        octavo.dev/interconnect-domain=1
        octavo.dev/interconnect=pcie
        octavo.dev/mig-capable=true
        octavo.dev/sharing=exclusive
        octavo.dev/type=mixed
        type.octavo.dev/nvidia-a100-80gb=1
        type.octavo.dev/nvidia-l40s-48gb=2"],
    );
}

#[test]
fn without_driver_only_pci_types_and_counts_are_labeled() {
    let node = driverless((1..=2).map(|bus| on_bus(bus, 0x10de, 0x20b2)).collect());
    check(
        &node,
        &Options::default(),
        &["
        octavo.dev/architecture=ampere
        octavo.dev/count=2
        octavo.dev/sku=nvidia-a100-sxm4-80gb
        octavo.dev/type=nvidia-a100-80gb
        octavo.dev/vendor=nvidia
        type.octavo.dev/nvidia-a100-80gb=2"],
    );
    assert_eq!(
        notes(&node, &Options::default()),
        [
            "octavo.dev/memory-mib is omitted: no responding device reports its memory",
            "octavo.dev/interconnect is omitted: the links between the devices are unknown",
            "octavo.dev/mig-capable is omitted: no device responds",
            "octavo.dev/sharing is omitted: no device responds",
            "octavo.dev/driver is omitted: the driver does not respond",
            "0000:01:00.0 is not counted in nvidia.com/*: its driver does not report it",
            "0000:02:00.0 is not counted in nvidia.com/*: its driver does not report it",
        ]
    );
}

#[test]
fn failing_device_is_counted_but_not_in_domain_or_nvidia_count() {
    let mut node = machine(hgx(|bus| gpu(bus, &A100_80)));
    let whole = compile(&node, &Options::default(), None).labels;
    let failed = &mut node.devices[2];
    *failed = on_bus(3, 0x10de, 0x20b2);
    failed.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    let compiled = compile(&node, &Options::default(), None);
    let before = whole.iter().collect();
    let after = compiled.labels.iter().collect();
    let changes: Vec<String> =
        diff(&before, &after, KeyPolicy::Publish).iter().map(ToString::to_string).collect();
    assert_eq!(
        changes,
        [
            "-nvidia.com/gpu.count=8",
            "+nvidia.com/gpu.count=7",
            "-octavo.dev/interconnect-domain=8",
            "+octavo.dev/interconnect-domain=7",
        ]
    );
}

#[test]
fn stalled_driver_call_changes_no_label() {
    let mut node = machine(hgx(|bus| gpu(bus, &A100_80)));
    let before = compile(&node, &Options::default(), None);
    node.nvml = NvmlState::Stalled {
        call: "nvmlDeviceGetMemoryInfo".to_owned(),
        driver: node.nvml.driver().cloned(),
    };
    assert_eq!(compile(&node, &Options::default(), None), before);
}

#[test]
fn unidentified_device_is_counted_as_unknown() {
    let unknown = driverless(vec![on_bus(1, 0x10de, 0xffff)]);
    check(
        &unknown,
        &Options::default(),
        &["
        octavo.dev/count=1
        octavo.dev/type=unknown
        octavo.dev/vendor=nvidia
        type.octavo.dev/unknown=1"],
    );
    let both = driverless(vec![on_bus(1, 0x8086, 0x0bd0), on_bus(2, 0x10de, 0xffff)]);
    check(
        &both,
        &Options::default(),
        &["
        octavo.dev/count=2
        octavo.dev/type=unknown
        type.octavo.dev/unknown=2"],
    );
}

#[test]
fn manual_type_is_marked_and_passthrough_is_counted_separately() {
    let mut named = driverless(vec![on_bus(1, 0x1acc, 0x0001), on_bus(2, 0x1acc, 0x0001)]);
    for device in &mut named.devices {
        device.identity = Identity::Manual { type_name: "acme-x1".parse().unwrap(), sku: None };
    }
    named.devices[1].condition = Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) };
    check(
        &named,
        &Options::default(),
        &["
        octavo.dev/count=2
        octavo.dev/passthrough=1
        octavo.dev/type-source=manual
        octavo.dev/type=acme-x1
        octavo.dev/vendor=pci-1acc
        type.octavo.dev/acme-x1=2"],
    );
    named.devices[0].identity = Identity::Unknown;
    check(
        &named,
        &Options::default(),
        &["
        octavo.dev/passthrough=1
        octavo.dev/type-source=manual
        octavo.dev/type=mixed
        type.octavo.dev/acme-x1=1
        type.octavo.dev/unknown=1"],
    );
}

#[test]
fn other_vendors_are_labeled() {
    let neuron = driverless((1..=2).map(|bus| on_bus(bus, 0x1d0f, 0x7264)).collect());
    check(
        &neuron,
        &Options::default(),
        &["
        octavo.dev/architecture=neuroncore-v2
        octavo.dev/count=2
        octavo.dev/sku=aws-inferentia2
        octavo.dev/type=aws-inferentia2-32gb
        octavo.dev/vendor=aws
        type.octavo.dev/aws-inferentia2-32gb=2"],
    );
}

#[test]
fn two_skus_of_one_type_are_homogeneous_without_a_sku() {
    let node = driverless(vec![on_bus(1, 0x10de, 0x20b2), on_bus(2, 0x10de, 0x20b5)]);
    check(
        &node,
        &octavo_only(),
        &["
        octavo.dev/architecture=ampere
        octavo.dev/count=2
        octavo.dev/type=nvidia-a100-80gb
        octavo.dev/vendor=nvidia
        type.octavo.dev/nvidia-a100-80gb=2"],
    );
}

#[test]
fn layout_state_label_has_four_values() {
    let label = |status: &NodeLayoutStatus, node: &Inventory| {
        let options = Options { layout: LayoutState::from_status(status), ..Options::default() };
        let labels = compile(node, &options, None).labels;
        let mut all = labels.iter();
        all.find(|(key, _)| *key == "octavo.dev/layout-state").map(|(_, value)| value.to_owned())
    };
    let node = machine(vec![gpu(1, &A100_80)]);
    let stands = |state: Option<Reason>| NodeLayoutStatus {
        layout: Some("serving".to_owned()),
        state: state.map(Reported::from),
        ..NodeLayoutStatus::default()
    };
    for reason in ApplyState::REASONS {
        let expected = match reason.as_str() {
            "applied" => "applied",
            "pending" | "applying" | "yielded" => "pending",
            "blocked" | "needs-reset" | "drifted" => "blocked",
            _ => "failed",
        };
        let status = stands(Some(reason));
        assert_eq!(label(&status, &node).as_deref(), Some(expected), "{reason}");
    }
    // Before the first observation, and with a layout that does not apply to this node.
    assert_eq!(label(&stands(None), &node), None);
    let nonsense =
        NodeLayoutStatus { notice: Some("there is no such layout".to_owned()), ..stands(None) };
    assert_eq!(label(&nonsense, &node).as_deref(), Some("failed"));
    // Without a layout, finishing the change to an older layout has no label; neither has a node without devices.
    let left =
        NodeLayoutStatus { state: Some(Reason::Applying.into()), ..NodeLayoutStatus::default() };
    assert_eq!(label(&left, &node), None);
    assert_eq!(label(&stands(Some(Reason::Applied)), &machine(Vec::new())), None);
}
