//! Sequences of reports and their changes, and the bounded record.

use std::time::Duration;

use octavo_model::examples::gpu;
use octavo_model::inventory::{Completeness, Mig};
use octavo_model::inventory::{Condition, Device, Driver, MigMode, MigState, NvmlState};
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{ResourceStatus, SharingStatus, UnitStatus};

use super::*;
use crate::summary::{DeviceSummary, LayoutSummary, NodeSummary, SharingSummary};

const UUID: &str = "GPU-00000000-0000-0000-0000-00000000000";

/// A report that tests change.
#[derive(Clone)]
struct State {
    boot: &'static str,
    epoch: u64,
    version: &'static str,
    nvml: NvmlState,
    devices: Vec<Device>,
    layout: Option<LayoutSummary>,
    sharing: Option<SharingStatus>,
}

impl State {
    fn new() -> Self {
        let device = |number: u8| {
            let mut device = gpu();
            device.pci = octavo_model::id::PciAddress::new(0, number, 0, 0).unwrap();
            device.index = Some(number.into());
            device.uuid = format!("{UUID}{number}").parse().ok();
            device.mig = mig(MigMode::Disabled);
            device
        };
        Self {
            boot: "a",
            epoch: 1,
            version: "0.1.0",
            nvml: ready("570.133.20"),
            devices: (0..4).map(device).collect(),
            layout: Some(layout("serving", Reason::Applied)),
            sharing: None,
        }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut state = self.clone();
        change(&mut state);
        state
    }

    fn report(&self, baseline: &mut Baseline) -> Vec<Change> {
        let devices: Vec<DeviceSummary> =
            self.devices.iter().map(|device| DeviceSummary::new(device, &self.nvml)).collect();
        let summary = NodeSummary::new(&devices, &self.nvml, self.layout.clone());
        let summary = summary.with_sharing(self.sharing.as_ref().map(SharingSummary::of));
        let agent = AgentRun { boot_id: self.boot, epoch: self.epoch, version: self.version };
        baseline.update(&Report { agent, summary: &summary, devices: &devices })
    }
}

fn ready(version: &str) -> NvmlState {
    NvmlState::Ready(Driver { version: version.parse().unwrap(), cuda: None })
}

fn mig(current: MigMode) -> Mig {
    Mig::Capable(MigState {
        current,
        pending: current,
        gpu_instances: Vec::new(),
        geometry: Completeness::Complete,
        catalog: octavo_model::catalog::ProfileCatalog::default(),
    })
}

fn layout(name: &str, state: Reason) -> LayoutSummary {
    LayoutSummary {
        name: Some(name.to_owned()),
        state: Some(state.into()),
        is_changing: state == Reason::Applying,
        ..LayoutSummary::default()
    }
}

fn sharing(replicas: Option<u32>, reason: Option<&str>) -> SharingStatus {
    let unit =
        UnitStatus { uuid: format!("{UUID}2"), replicas, health: reason.map(str::to_owned).into() };
    SharingStatus {
        state: Reason::SharingInForce.into(),
        resources: vec![ResourceStatus {
            name: octavo_model::resource::ResourceName::gpu(),
            wanted: 1,
            allocatable: None,
            units: vec![unit],
        }],
        ..SharingStatus::default()
    }
}

/// Lines of changes, marked if they need attention.
fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        let mark = if change.needs_attention { "! " } else { "" };
        let message = change.message.as_ref().map(|text| format!(" ({text})"));
        format!("{mark}{}{}", change.summary(), message.unwrap_or_default())
    };
    changes.iter().map(line).collect()
}

/// Changes of the last of several reports.
fn last(reports: &[State]) -> Vec<String> {
    let mut baseline = Baseline::default();
    let mut changes = Vec::new();
    for report in reports {
        changes = report.report(&mut baseline);
    }
    lines(&changes)
}

#[test]
fn changes_of_agent_driver_and_devices_are_recorded() {
    let state = State::new();
    let cases: Vec<(State, Vec<&str>)> = vec![
        (state.clone(), vec![]),
        (state.with(|new| new.epoch = 2), vec!["Agent: restarted"]),
        (
            state.with(|new| (new.epoch, new.version) = (2, "0.2.0")),
            vec!["Agent version: 0.1.0 -> 0.2.0"],
        ),
        (state.with(|new| (new.epoch, new.boot) = (2, "b")), vec!["Node: rebooted"]),
        (
            state.with(|new| new.nvml = ready("575.51.03")),
            vec!["NVIDIA driver: 570.133.20 -> 575.51.03"],
        ),
        (
            state.with(|new| {
                new.nvml = NvmlState::Lost { reason: "unloaded".to_owned() };
            }),
            vec!["! NVML: ready -> lost (unloaded)", "! GPU 0 to GPU 3: ok -> stale"],
        ),
        (
            state.with(|new| {
                for number in [1, 3] {
                    let reason = "GPU is lost".to_owned();
                    new.devices[number].condition = Condition::Failing { reason };
                }
            }),
            vec!["! GPU 1, GPU 3: ok -> failing (failing: GPU is lost)"],
        ),
        (
            state.with(|new| {
                new.devices.remove(2);
            }),
            vec!["! GPU 2: removed"],
        ),
        (
            state.with(|new| new.devices[0].uuid = format!("{UUID}9").parse().ok()),
            vec!["GPU 0: replaced"],
        ),
        (
            state.with(|new| {
                for device in &mut new.devices {
                    device.mig = mig(MigMode::Enabled);
                }
            }),
            vec!["GPU 0 to GPU 3: whole -> no partition"],
        ),
    ];
    for (new, expected) in cases {
        assert_eq!(last(&[state.clone(), new]), expected);
    }
}

#[test]
fn changes_of_layout_and_allocation_are_recorded() {
    let state = State::new();
    let blocked = LayoutSummary {
        message: Some("GPU 1: blocked: in use by pid 7".to_owned()),
        ..layout("serving", Reason::Blocked)
    };
    let drained = LayoutSummary {
        drain: Some("drain (affected) is evicting pods: pod a/b: refused".to_owned()),
        ..layout("serving", Reason::Applied)
    };
    let manual = LayoutSummary { is_manual: true, ..layout("training", Reason::Applied) };
    let cases: Vec<(State, Vec<&str>)> = vec![
        (
            state.with(|new| new.layout = Some(blocked)),
            vec!["! Layout state: applied -> blocked (GPU 1: blocked: in use by pid 7)"],
        ),
        (
            state.with(|new| new.layout = Some(drained)),
            vec!["Drain: evicting pods (pod a/b: refused)"],
        ),
        (
            state.with(|new| new.layout = Some(manual)),
            vec!["Desired layout: serving -> training (selected manually)"],
        ),
        (state.with(|new| new.layout = None), vec!["Desired layout: serving -> none"]),
        (
            state.with(|new| new.sharing = Some(sharing(Some(4), None))),
            vec!["nvidia.com/gpu: not shared -> 4 replicas"],
        ),
    ];
    for (new, expected) in cases {
        assert_eq!(last(&[state.clone(), new]), expected);
    }
}

#[test]
fn replicas_and_unhealthy_units_are_recorded() {
    let with = |replicas, reason| {
        State::new().with(|state| state.sharing = Some(sharing(replicas, reason)))
    };
    let (before, after) = (with(None, None), with(Some(4), Some("Xid 79")));
    assert_eq!(
        last(&[before.clone(), after.clone()]),
        ["nvidia.com/gpu: not shared -> 4 replicas", "! GPU 2: not allocatable (Xid 79)"]
    );
    assert_eq!(last(&[before.clone(), after, with(Some(4), None)]), ["GPU 2: allocatable again"]);
    let state =
        |reason: Reason| before.with(|new| new.sharing.as_mut().unwrap().state = reason.into());
    assert_eq!(
        last(&[before.clone(), state(Reason::SharingPending), state(Reason::SharingRefused)]),
        ["! Allocation to pods: sharing-in-force -> sharing-refused"]
    );
    assert_eq!(last(&[before.clone(), state(Reason::SharingPending), before.clone()]), [""; 0]);
    // The status is unknown, not changed.
    assert_eq!(last(&[before.clone(), State::new(), before]), [""; 0]);
}

#[test]
fn unhealthy_partitions_are_counted() {
    let with = |uuids: &[String]| {
        State::new().with(|state| {
            let mut sharing = sharing(None, Some("Xid 48"));
            sharing.resources[0].units.extend(uuids.iter().map(|uuid| UnitStatus {
                uuid: uuid.clone(),
                replicas: None,
                health: Some("Xid 48".to_owned()).into(),
            }));
            state.sharing = Some(sharing);
        })
    };
    let mut before = State::new();
    before.sharing = Some(sharing(None, None));
    let partitions = ["MIG-a", "MIG-b"].map(str::to_owned);
    for (uuids, object) in [
        (&partitions[..0], "GPU 2"),
        (&partitions[..1], "GPU 2 and 1 partition"),
        (&partitions[..], "GPU 2 and 2 partitions"),
    ] {
        let expected = format!("! {object}: not allocatable (Xid 48)");
        assert_eq!(last(&[before.clone(), with(uuids)]), [expected]);
    }
    let changing = with(&partitions).with(|new| {
        new.layout = Some(layout("serving", Reason::Applying));
    });
    assert_eq!(last(&[before.clone(), changing.clone()]), ["Layout state: applied -> applying"]);
    let expected = ["Layout state: applying -> applied"];
    assert_eq!(last(&[before.clone(), changing, before]), expected);
}

#[test]
fn unknown_values_are_compared_with_the_last_known_ones() {
    let state = State::new();
    let loading = state.with(|new| {
        (new.epoch, new.nvml, new.layout) = (2, NvmlState::Loading, None);
        for device in &mut new.devices {
            device.condition = Condition::PciOnly { kernel_driver: None };
            (device.uuid, device.mig) = (None, Mig::Unknown);
        }
    });
    assert_eq!(last(&[state.clone(), loading.clone()]), ["Agent: restarted"]);
    let again = state.with(|new| new.epoch = 2);
    assert_eq!(last(&[state.clone(), loading.clone(), again.clone()]), [""; 0]);
    let upgraded = again.with(|new| {
        new.nvml = ready("575.51.03");
        new.devices[2].mig = mig(MigMode::Enabled);
    });
    assert_eq!(
        last(&[state, loading, upgraded]),
        ["NVIDIA driver: 570.133.20 -> 575.51.03", "GPU 2: whole -> no partition"]
    );
}

#[test]
fn device_without_driver_keeps_its_identity() {
    let state =
        State::new().with(|new| new.devices.iter_mut().for_each(|one| one.mig = Mig::NotCapable));
    let absent = state.with(|new| {
        new.nvml = NvmlState::Absent { reason: "none".to_owned() };
        for device in &mut new.devices {
            device.condition = Condition::PciOnly { kernel_driver: None };
            (device.uuid, device.index, device.mig) = (None, None, Mig::Unknown);
        }
    });
    let changes = last(&[state.clone(), absent.clone()]);
    assert!(changes.iter().any(|line| line.contains("GPU 0 to GPU 3: ")), "{changes:?}");
    let replaced = state.with(|new| new.devices[0].uuid = format!("{UUID}9").parse().ok());
    let changes = last(&[state, absent, replaced]);
    assert!(changes.iter().any(|line| line.contains("GPU 0: replaced")), "{changes:?}");
}

#[test]
fn numbers_of_devices_do_not_overflow() {
    let names = |numbers: [u64; 3]| {
        let state = State::new().with(|new| new.sharing = Some(sharing(None, None)));
        let next = state.with(|new| {
            let units = numbers.map(|number| UnitStatus {
                uuid: format!("x {number}"),
                replicas: None,
                health: Some("failed".to_owned()).into(),
            });
            new.sharing.as_mut().unwrap().resources[0].units.extend(units);
        });
        last(&[state, next])
    };
    let most = u64::MAX;
    let shown = names([most - 2, most - 1, most]);
    assert!(shown[0].contains(&format!("x {} to x {most}", most - 2)), "{shown:?}");
}

#[test]
fn intermediate_steps_of_a_layout_are_not_recorded() {
    let state = State::new();
    let applying = state.with(|new| {
        new.layout = Some(layout("serving", Reason::Applying));
        new.devices[0].mig = mig(MigMode::Enabled);
    });
    assert_eq!(last(&[state.clone(), applying.clone()]), ["Layout state: applied -> applying"]);
    let applied = applying.with(|new| new.layout = Some(layout("serving", Reason::Applied)));
    assert_eq!(
        last(&[state, applying, applied]),
        ["GPU 0: whole -> no partition", "Layout state: applying -> applied"]
    );
}

#[test]
fn connection_is_recorded_after_the_first_report() {
    let mut baseline = Baseline::default();
    assert_eq!(baseline.set_connection(true, false), []);
    assert_eq!(State::new().report(&mut baseline), []);
    assert_eq!(baseline.set_connection(true, false), []);
    let gone = baseline.set_connection(false, false);
    assert_eq!(lines(&gone), ["! Agent: connected -> disconnected"]);
    assert_eq!(lines(&baseline.set_connection(false, true)), ["! Reports: current -> stale"]);
    assert_eq!(
        lines(&baseline.set_connection(true, false)),
        ["Agent: disconnected -> connected", "Reports: stale -> current"]
    );
}

#[test]
fn texts_are_bounded() {
    let long = "é".repeat(1000);
    let change = Change::between(ChangeKind::Layout, Some(&long), Some(&long));
    let change = change.of(&long).because(Some(&long));
    for text in [&change.object, &change.from, &change.to] {
        assert!(text.as_ref().unwrap().len() <= MAX_VALUE_BYTES);
    }
    let message = change.message.unwrap();
    assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with('\u{2026}'));
}

#[test]
fn record_is_bounded_and_counts_repeated_changes() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let change = |to: &str| Change::to(ChangeKind::Layout, to);
    let mut log = ChangeLog::new(minutes(1));
    assert_eq!((log.since(), log.newest().count()), (minutes(1), 0));
    for (to, at) in [("a", 2), ("b", 3), ("a", 17), ("a", 40)] {
        log = log.with(vec![change(to)], minutes(at));
    }
    let entries = |log: &ChangeLog| -> Vec<(String, u64, u64, u32)> {
        let minutes = |time: Duration| time.as_secs() / 60;
        let entry = |one: &ChangeEntry| {
            (one.change.to.clone().unwrap(), minutes(one.first), minutes(one.last), one.count)
        };
        log.newest().map(entry).collect()
    };
    let row = |to: &str, first, last, count| (to.to_owned(), first, last, count);
    assert_eq!(entries(&log), [row("a", 40, 40, 1), row("a", 2, 17, 2), row("b", 3, 3, 1)]);
    let before = log.clone();
    let many = (0..MAX_ENTRIES).map(|number| change(&number.to_string()));
    log = log.with(many.collect(), minutes(50));
    assert_eq!((log.newest().count(), log.dropped()), (MAX_ENTRIES, 3));
    assert_eq!(entries(&before).len(), 3);
}

#[test]
fn document_has_the_words_of_the_kinds() {
    for kind in ChangeKind::VARIANTS {
        let change = Change::to(*kind, "x");
        let json = serde_json::to_value(&change).unwrap();
        assert_eq!(json["kind"], kind.as_ref());
        assert_eq!(serde_json::from_value::<Change>(json).unwrap(), change);
        assert!(change.summary().ends_with(": x"));
    }
    let newer = serde_json::json!({"kind": "fan", "to": "off", "needsAttention": true});
    assert_eq!(serde_json::from_value::<Change>(newer).unwrap().summary(), "fan: off");
}
