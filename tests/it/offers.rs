//! Advertised resources of a node: a table of configurations, and properties that hold for all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use octavo_files::layouts::parse;
use octavo_files::plugin_config;
use octavo_model::id::{GpuUuid, MigUuid};
use octavo_model::inventory::{Completeness, Inventory, Mig};
use octavo_model::profile::ProfileName;
use octavo_model::source_position::SourcePosition;
use octavo_node::labels::{self, Options};
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::sharing::hand_off::{HandOffError, render};
use octavo_node::sharing::offer::compile;
use octavo_node::sharing::{Offers, Unit};
use octavo_planner::layout::{
    DeviceTarget, Dialect, ResourceRename, Share, ShareTarget, TargetScope, Targets, TimeSlicing,
    resolve,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::golden::golden;
use crate::layouts::checks;
use crate::layouts::properties::sharing;

const FILE: &str = "sharing/offers.txt";
const TEXT: &str = include_str!("../golden/sharing/offers.txt");

/// A configuration and its node.
#[derive(Debug, Default)]
struct Case {
    name: String,
    machine: String,
    strategy: MigStrategy,
    /// Changes to the recording.
    odd: Vec<(String, u32)>,
    input: String,
}

#[test]
fn every_configuration_yields_resources_ids_and_labels_of_the_table() {
    let cases = cases();
    assert!(cases.len() >= 30, "{}", cases.len());
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    let reported: Vec<Vec<String>> = cases.iter().map(describe).collect();
    golden(FILE, &rewritten(&reported));
}

/// A new warning needs a case here.
#[test]
fn every_warning_about_advertised_resources_is_in_the_table() {
    let reported: Vec<String> = cases().iter().flat_map(describe).collect();
    for words in [
        "not advertised: it is failing",
        "not advertised: no driver reports it",
        "not advertised: the driver does not report whether MIG mode is on",
        "not advertised: the driver does not report its UUID",
        "not advertised: another device has the same UUID",
        "not advertised: the driver does not report its UUID or profile",
        "only with --mig-strategy single or mixed",
        "does not report all of its partitions",
        "there is no partition to advertise",
        "a GPU in MIG mode has no partition",
        "some GPUs are in MIG mode and some are not",
        "the partitions have more than one profile",
        "the profile of a partition has no name",
        "but this node has no such resource",
        "but only",
        "which is not a",
        "a pod cannot choose among them; use a separate name",
        "a pod cannot choose among them; rename",
        "it applies to all of them",
        "replicas of",
    ] {
        let found = reported.iter().any(|line| line.contains(words));
        assert!(found, "{words}");
    }
}

proptest! {
    #[test]
    fn ids_are_unique_and_independent_of_device_order(
        specs in prop::collection::vec(prop::option::of(sharing()), 8),
        machine in select(&["a100", "failing", "mixed", "rtx-pro", "h100x8", "untold"][..]),
        strategy in select(&[MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed][..]),
        turn in 0..8_usize,
    ) {
        let node = recorded(machine);
        let targets = targets(&node, &specs);
        let compiled = compile(&node, &targets, strategy);
        checks::given(&compiled.offers);
        let mut other = node.clone();
        let turn = turn % other.devices.len();
        other.devices.rotate_left(turn);
        other.devices.reverse();
        prop_assert_eq!(&compile(&other, &targets, strategy), &compiled);
        let options = Options { mig_strategy: strategy, ..Options::default() };
        labels::compile(&node, &options, Some(&compiled.offers));
    }
}

proptest! {
    #[test]
    fn configuration_of_nvidia_plugin_is_equivalent_to_layout(
        spec in alike(),
        machine in select(&["a100", "a30", "failing", "mixed", "rtx-pro", "h100x8", "t4", "untold"][..]),
        strategy in select(&[MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed][..]),
    ) {
        let node = recorded(machine);
        let targets = targets(&node, &vec![Some(spec); node.devices.len()]);
        let _refused = report_and_read_back(&node, &targets, strategy);
    }
}

/// Counts the configurations that the plugin can express.
#[test]
fn every_plugin_configuration_round_trips() {
    let mut shown = 0;
    for case in cases() {
        let mut node = recorded(&case.machine);
        for (odd, index) in &case.odd {
            change(&mut node, odd, *index);
        }
        let Ok(parsed) = parse(&case.input) else {
            continue;
        };
        let layout = &parsed.layouts.layouts[0];
        let Ok(resolved) = resolve(layout, parsed.layouts.dialect, &node) else {
            continue;
        };
        let read = report_and_read_back(&node, &resolved.targets, case.strategy);
        shown += usize::from(read == Ok(true));
    }
    assert!(shown >= 10, "{shown}");
}

/// Renders targets, reads them back as a layout and compares both. Returns whether anything was shared, or why it
/// cannot be expressed.
fn report_and_read_back(
    node: &Inventory,
    targets: &Targets,
    strategy: MigStrategy,
) -> Result<bool, HandOffError> {
    let offers = compile(node, targets, strategy).offers;
    let config = render(&offers, strategy)?;
    if config.resources.is_empty() {
        return Ok(false);
    }
    let text = plugin_config::text(&config);
    let key = plugin_config::key("wanted", &text);
    assert_eq!(plugin_config::read(&key, &text), Ok(config));
    let parsed = parse(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    assert_eq!(parsed.layouts.dialect, Dialect::DevicePlugin);
    // The only finding: the agent has its own flag for the names of partitions.
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}\n{text}");
    };
    assert!(warning.contains("migStrategy"), "{warning}");
    let layout = &parsed.layouts.layouts[0];
    let resolved = resolve(layout, parsed.layouts.dialect, node);
    let resolved = resolved.unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let mut wanted = offers;
    // Internal data that the plugin does not use.
    let units = wanted.resources.iter_mut().flat_map(|one| &mut one.units);
    units.for_each(|unit| unit.memory_per_replica = None);
    let read = compile(node, &resolved.targets, strategy).offers;
    assert_eq!(read, wanted, "{text}");
    Ok(true)
}

/// Sharing of every device of a node in one way that NVIDIA's plugin can express.
fn alike() -> impl Strategy<Value = TimeSlicing> {
    let profile = select(&["1g.5gb", "2g.10gb", "3g.20gb", "1g.10gb", "3g.40gb", "7g.80gb"][..]);
    let profile = profile.prop_map(|name| name.parse::<ProfileName>().unwrap());
    let profiles = prop::collection::btree_map(profile, 2..50_u32, 0..4);
    let all = (prop::option::of(2..50_u32), profiles, any::<bool>(), any::<bool>());
    all.prop_map(|(everything, profiles, renamed, fails)| {
        let everything = everything.map(|replicas| (ShareTarget::AllUnits, replicas));
        let profiles = profiles
            .into_iter()
            .map(|(profile, replicas)| (ShareTarget::Profile(profile), replicas));
        let shares = everything.into_iter().chain(profiles);
        let share = |(of, replicas)| Share {
            of,
            rename: if renamed { ResourceRename::Shared } else { ResourceRename::No },
            fail_requests_greater_than_one: fails,
            ..Share::everything(replicas)
        };
        TimeSlicing {
            position: SourcePosition::default(),
            shares: shares.map(share).collect(),
            slice: None,
        }
    })
}

fn targets(node: &Inventory, specs: &[Option<TimeSlicing>]) -> Targets {
    let devices = node.devices.iter().zip(specs);
    let mut devices: Vec<DeviceTarget> = devices
        .map(|(device, spec)| DeviceTarget {
            pci: device.pci,
            rule: SourcePosition::default(),
            mig: None,
            time_slicing: spec.clone(),
            scope: TargetScope::Layout,
        })
        .collect();
    devices.sort_by_key(|target| target.pci);
    Targets { devices, ..Targets::default() }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in TEXT.lines() {
        if line.is_empty() || line.starts_with(['#', '>']) {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        if let Some(text) = line.strip_prefix('|') {
            case.input.push_str(text);
            case.input.push('\n');
            continue;
        }
        let (key, value) = line.split_once(' ').unwrap();
        match (key, value) {
            ("on", machine) => machine.clone_into(&mut case.machine),
            ("strategy", "single") => case.strategy = MigStrategy::Single,
            ("strategy", "mixed") => case.strategy = MigStrategy::Mixed,
            ("strategy", "none") => case.strategy = MigStrategy::None,
            (odd, index) => case.odd.push((odd.to_owned(), index.parse().unwrap())),
        }
    }
    cases
}

fn describe(case: &Case) -> Vec<String> {
    let mut node = recorded(&case.machine);
    for (odd, index) in &case.odd {
        change(&mut node, odd, *index);
    }
    let parsed = match parse(&case.input) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let errors = errors.iter();
            return errors.map(|error| format!("error {} {error}", error.position())).collect();
        }
    };
    let warnings = parsed.warnings.iter();
    let mut reported: Vec<String> =
        warnings.map(|warning| format!("warning {} {warning}", warning.position())).collect();
    let [layout] = parsed.layouts.layouts.as_slice() else {
        panic!("{}: one layout each", case.name);
    };
    let resolved = match resolve(layout, parsed.layouts.dialect, &node) {
        Ok(resolved) => resolved,
        Err(errors) => {
            let errors = errors.iter();
            reported.extend(errors.map(|error| format!("error {} {error}", error.position)));
            return reported;
        }
    };
    let warnings = resolved.warnings.iter();
    reported.extend(warnings.map(|warning| format!("warning {} {warning}", warning.position)));
    let compiled = compile(&node, &resolved.targets, case.strategy);
    checks::given(&compiled.offers);
    let warnings = compiled.warnings.iter();
    reported.extend(warnings.map(|warning| format!("warning {warning}")));
    reported.extend(given(&compiled.offers));
    let options = Options { mig_strategy: case.strategy, ..Options::default() };
    let compiled = labels::compile(&node, &options, Some(&compiled.offers));
    let ends = [".product", ".count", ".replicas", ".sharing-strategy"];
    let labels = compiled.labels.iter();
    let about = labels.filter(|(key, _)| {
        *key == "octavo.dev/sharing" || ends.iter().any(|end| key.ends_with(end))
    });
    reported.extend(about.map(|(key, value)| format!("{key}={value}")));
    reported
}

fn given(offers: &Offers) -> Vec<String> {
    let mut reported = Vec::new();
    for offer in &offers.resources {
        let each =
            if offer.fail_requests_greater_than_one { ", at most one per request" } else { "" };
        reported.push(format!("{}: {}{each}", offer.name, offer.count()));
        for unit in &offer.units {
            let share = unit.fair_share();
            let share =
                share.map_or_else(String::new, |memory| format!(", {} MiB each", memory.get()));
            reported.push(format!("  {}{share}", ids(unit)));
        }
    }
    reported
}

/// All ids of a unit; for many replicas only the first and the last.
fn ids(unit: &Unit) -> String {
    let ids: Vec<String> = unit.ids().iter().map(ToString::to_string).collect();
    match ids.as_slice() {
        [first, .., last] if ids.len() > 4 => format!("{first} to {last}"),
        _ => ids.join(" "),
    }
}

/// Changes that no recording has.
fn change(node: &mut Inventory, odd: &str, index: u32) {
    if odd == "only" {
        node.devices.retain(|device| device.index == Some(index));
        return;
    }
    if odd == "drop" {
        node.devices.retain(|device| device.index != Some(index));
        return;
    }
    let first: Option<GpuUuid> = node.devices[0].uuid.clone();
    let mut devices = node.devices.iter_mut();
    let device = devices.find(|device| device.index == Some(index)).unwrap();
    match (odd, &mut device.mig) {
        ("no-uuid", _) => device.uuid = None,
        ("uuid-of-the-first", _) => device.uuid = first,
        ("mig-unknown", mig) => *mig = Mig::Unknown,
        ("incomplete", Mig::Capable(state)) => state.geometry = Completeness::Partial,
        ("no-partition-uuid", Mig::Capable(state)) => {
            let unknown: Option<MigUuid> = None;
            state.gpu_instances[0].compute_instances[0].uuid = unknown;
        }
        other => panic!("no such change: {other:?}"),
    }
}

fn recorded(machine: &str) -> Inventory {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cli/machines");
    let text = fs::read_to_string(directory.join(format!("{machine}.json"))).unwrap();
    octavo_files::inventory::parse(&text).unwrap()
}

/// The table with new messages.
fn rewritten(reported: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut reported = reported.iter();
    let mut in_case = false;
    for line in TEXT.lines().chain(std::iter::once("")) {
        if line.starts_with('>') {
            continue;
        }
        if line.is_empty() && in_case {
            for line in reported.next().unwrap() {
                text.extend(["> ", line, "\n"]);
            }
            in_case = false;
        }
        in_case |= line.starts_with("case ");
        text.push_str(line);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}
