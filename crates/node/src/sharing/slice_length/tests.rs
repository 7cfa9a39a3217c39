//! Desired lengths, events, and the resulting commands.

use TimeSlice::{Long, Short};
use octavo_model::examples::gpu;
use octavo_model::inventory::{Device, Driver};
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{DeviceTarget, Share, TargetScope, TimeSlicing};

use super::*;

fn pci(number: u8) -> PciAddress {
    PciAddress::new(0, number, 0, 0).unwrap()
}

fn uuid(number: u8) -> GpuUuid {
    let text = format!("GPU-00000000-0000-0000-0000-{number:012}");
    text.parse().unwrap()
}

/// Devices, their desired lengths, and the commands run.
struct Node {
    inventory: Inventory,
    targets: Targets,
    unsteady: BTreeSet<PciAddress>,
    is_busy: bool,
    slices: SliceLengths,
}

impl Node {
    fn new(lengths: &[Option<TimeSlice>]) -> Self {
        let numbers = (1..).take(lengths.len());
        let device = |number| Device { pci: pci(number), uuid: Some(uuid(number)), ..gpu() };
        let mut node = Self {
            inventory: Inventory {
                nvml: ready(),
                devices: numbers.map(device).collect(),
                ..Inventory::default()
            },
            targets: Targets::default(),
            unsteady: BTreeSet::new(),
            is_busy: false,
            slices: SliceLengths::default(),
        };
        node.ask(lengths);
        node
    }

    fn ask(&mut self, lengths: &[Option<TimeSlice>]) {
        let target = |(number, slice): (u8, &Option<TimeSlice>)| DeviceTarget {
            pci: pci(number),
            rule: SourcePosition::default(),
            mig: None,
            scope: TargetScope::Layout,
            time_slicing: Some(TimeSlicing {
                position: SourcePosition::default(),
                shares: vec![Share::everything(2)],
                slice: *slice,
            }),
        };
        self.targets.devices = (1..).zip(lengths).map(target).collect();
    }

    fn reconcile_at(&mut self, now: u64) -> Option<SetSliceLength> {
        let input = SliceInput {
            inventory: &self.inventory,
            targets: &self.targets,
            unsteady: &self.unsteady,
            is_busy: self.is_busy,
        };
        self.slices.reconcile(Duration::from_secs(now), input)
    }

    /// Runs all due commands successfully; returns device and number of each.
    fn settle(&mut self, now: u64) -> Vec<(PciAddress, u32)> {
        let mut all = Vec::new();
        while let Some(order) = self.reconcile_at(now) {
            all.push((order.pci, order.number()));
            self.slices.done(Duration::from_secs(now), Ok(()));
            assert!(all.len() < 100, "commands without end");
        }
        all
    }

    fn fail(&mut self, now: u64) {
        let outcome = Err("not supported".to_owned());
        self.slices.done(Duration::from_secs(now), outcome);
    }
}

fn ready() -> NvmlState {
    NvmlState::Ready(Driver { version: "580.95.05".parse().unwrap(), cuda: None })
}

fn lost() -> NvmlState {
    NvmlState::Lost { reason: "gone".to_owned() }
}

#[test]
fn slice_length_is_set_once_per_request() {
    let mut node = Node::new(&[Some(Short), None, Some(Long)]);
    assert_eq!(node.settle(0), [(pci(1), 1), (pci(3), 3)]);
    assert_eq!(node.settle(1), []);
    node.ask(&[Some(Long), None, None]);
    assert_eq!(node.settle(2), [(pci(1), 3), (pci(3), 0)]);
    assert_eq!(node.slices.unmet().count(), 0);
    // A device that is no longer part of the layout.
    node.ask(&[]);
    assert_eq!(node.settle(3), [(pci(1), 0)]);
    assert_eq!(node.settle(4), []);
}

#[test]
fn untouched_slice_length_is_not_reset() {
    let mut node = Node::new(&[None, Some(Short)]);
    let order = node.reconcile_at(0).unwrap();
    assert_eq!((order.pci, order.uuid), (pci(2), uuid(2)));
    node.fail(0);
    node.ask(&[None, None]);
    assert_eq!(node.settle(1000), []);
}

#[test]
fn unshared_device_has_no_slice_length() {
    let mut node = Node::new(&[Some(Short)]);
    for target in &mut node.targets.devices {
        target.time_slicing.as_mut().unwrap().shares.clear();
    }
    assert_eq!(node.settle(0), []);
}

#[test]
fn one_call_runs_at_a_time_and_none_while_a_device_changes() {
    let mut node = Node::new(&[Some(Short), Some(Short)]);
    node.is_busy = true;
    assert_eq!(node.reconcile_at(0), None);
    node.is_busy = false;
    assert_eq!(node.reconcile_at(1).map(|order| order.pci), Some(pci(1)));
    assert_eq!(node.reconcile_at(2), None);
    node.slices.done(Duration::from_secs(3), Ok(()));
    assert_eq!(node.reconcile_at(4).map(|order| order.pci), Some(pci(2)));
}

/// An event of the node.
type NodeEvent = fn(&mut Node);

#[test]
fn slice_length_is_set_again_after_possible_reset() {
    let table: [(&str, NodeEvent, NodeEvent); 4] = [
        (
            "the driver was away",
            |node| node.inventory.nvml = lost(),
            |node| node.inventory.nvml = ready(),
        ),
        ("it was changed", |node| _ = node.unsteady.insert(pci(1)), |node| node.unsteady.clear()),
        (
            "it did not answer",
            |node| {
                let reason = "lost".to_owned();
                node.inventory.devices[0].condition = Condition::Failing { reason };
            },
            |node| node.inventory.devices[0].condition = Condition::Working,
        ),
        ("it is another one", |node| node.inventory.devices[0].uuid = Some(uuid(9)), |_| {}),
    ];
    for (what, happens, is_over) in table {
        let mut node = Node::new(&[Some(Short)]);
        node.settle(0);
        happens(&mut node);
        let meanwhile = usize::from(what == "it is another one");
        assert_eq!(node.settle(1).len(), meanwhile, "{what}");
        is_over(&mut node);
        assert_eq!(node.settle(2).len(), 1 - meanwhile, "{what}");
        assert_eq!(node.settle(3), [], "{what}");
    }
}

#[test]
fn device_change_during_command_requires_another_command() {
    let mut node = Node::new(&[Some(Short)]);
    assert!(node.reconcile_at(0).is_some());
    node.inventory.nvml = lost();
    assert_eq!(node.reconcile_at(1), None);
    node.inventory.nvml = ready();
    assert_eq!(node.reconcile_at(2), None);
    node.slices.done(Duration::from_secs(3), Ok(()));
    assert_eq!(node.settle(4), [(pci(1), 1)]);
    node.inventory.nvml =
        NvmlState::Stalled { call: "nvmlDeviceGetMigMode".to_owned(), driver: None };
    assert_eq!(node.settle(5), []);
    node.inventory.nvml = ready();
    assert_eq!(node.settle(6), []);
}

#[test]
fn withdrawn_slice_length_is_reset_to_default() {
    let mut node = Node::new(&[Some(Short)]);
    node.settle(0);
    node.unsteady.insert(pci(1));
    node.settle(1);
    node.ask(&[None]);
    node.unsteady.clear();
    assert_eq!(node.settle(2), [(pci(1), 0)]);
    assert_eq!(node.settle(3), []);
}

#[test]
fn failure_is_reported_and_retried_with_backoff_or_after_new_request() {
    let mut node = Node::new(&[Some(Short), Some(Short)]);
    let mut now = 0;
    let mut waits = Vec::new();
    assert!(node.reconcile_at(0).is_some());
    node.fail(0);
    // The other device is not blocked by it.
    assert_eq!(node.settle(0), [(pci(2), 1)]);
    for _ in 0..9 {
        let next = node.slices.again().unwrap().as_secs();
        waits.push(next - now);
        assert_eq!(node.reconcile_at(next - 1), None);
        assert!(node.reconcile_at(next).is_some());
        node.fail(next);
        now = next;
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    let unmet: Vec<UnmetSliceLength<'_>> = node.slices.unmet().collect();
    let expected =
        UnmetSliceLength { pci: pci(1), length: Some(Short), reason: Some("not supported") };
    assert_eq!(unmet, [expected]);
    node.ask(&[Some(Long), Some(Short)]);
    assert_eq!(node.settle(now + 1), [(pci(1), 3)]);
    assert_eq!(node.slices.again(), None);
    assert_eq!(node.slices.unmet().count(), 0);
}
