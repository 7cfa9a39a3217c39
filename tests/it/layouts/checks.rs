//! Properties of every text: it is read to its end, errors are located within it, and accepted text can be written,
//! read again and evaluated on any machine.

use std::collections::BTreeSet;

use octavo_files::layouts::{parse, render, write, write_json};
use octavo_model::inventory::Inventory;
use octavo_model::source_position::SourcePosition;
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::sharing::offer::compile;
use octavo_node::sharing::{Offer, Offers};
use octavo_planner::layout::{Dialect, Layouts, MigTarget, Rule, TimeSlicing, compare, resolve};
use octavo_planner::plan::feasible;

/// Recorded machines.
pub(crate) const MACHINES: &[&str] = &[
    include_str!("../../golden/cli/machines/a100.json"),
    include_str!("../../golden/cli/machines/mixed.json"),
    include_str!("../../golden/cli/machines/failing.json"),
];

pub(crate) fn machines() -> Vec<Inventory> {
    let read = |text: &&str| octavo_files::inventory::parse(text).unwrap();
    MACHINES.iter().map(read).collect()
}

/// Checks a text and returns whether it is accepted.
///
/// # Panics
/// If a property does not hold.
#[track_caller]
pub(crate) fn check(text: &str, machines: &[Inventory]) -> bool {
    match parse(text) {
        Err(errors) => {
            assert!(!errors.is_empty(), "rejected without a message");
            for error in &errors {
                within(text, error.position(), &error.to_string());
                render(("f", text), error.position(), ("error", error));
            }
            false
        }
        Ok(parsed) => {
            for warning in &parsed.warnings {
                within(text, warning.position(), &warning.to_string());
            }
            again(&parsed.layouts);
            for machine in machines {
                meant(&parsed.layouts, machine);
            }
            true
        }
    }
}

/// Removes source positions, so that equal layouts of different files compare equal.
pub(crate) fn without_places(mut layouts: Layouts) -> Layouts {
    for layout in &mut layouts.layouts {
        layout.position = SourcePosition::default();
        layout.rules.iter_mut().for_each(clear_places);
    }
    layouts
}

fn clear_places(rule: &mut Rule) {
    use octavo_planner::layout::MigSpec;
    rule.position = SourcePosition::default();
    if let Some(MigSpec::Enabled(counts)) = &mut rule.mig {
        for count in counts {
            count.position = SourcePosition::default();
        }
    }
    rule.time_slicing = rule.time_slicing.take().map(TimeSlicing::without_positions);
}

/// A written layout is read as the same layout.
#[track_caller]
pub(crate) fn again(layouts: &Layouts) {
    let mut layouts = without_places(layouts.clone());
    if layouts.dialect == Dialect::DevicePlugin {
        // Its form in our dialect is equivalent.
        layouts.dialect = Dialect::Octavo;
    }
    let dialect = layouts.dialect;
    for written in [write(&layouts, dialect), write_json(&layouts, dialect)] {
        let written = match written {
            Ok(written) => written,
            // Index ranges, which mig-parted's dialect must list one by one, never come from its files.
            Err(error) => panic!("not written: {error}\n{layouts:#?}"),
        };
        let read = parse(&written).unwrap_or_else(|errors| panic!("{errors:#?}\n{written}"));
        assert_eq!(without_places(read.layouts), layouts, "{written}");
    }
}

fn meant(layouts: &Layouts, machine: &Inventory) {
    for layout in &layouts.layouts {
        let Ok(resolved) = resolve(layout, layouts.dialect, machine) else {
            continue;
        };
        compare(&resolved.targets, machine);
        for strategy in [MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed] {
            given(&compile(machine, &resolved.targets, strategy).offers);
        }
        for target in &resolved.targets.devices {
            let device = machine.devices.iter().find(|one| one.pci == target.pci);
            if let (Some(device), Some(MigTarget::Enabled(instances))) = (device, &target.mig) {
                let _ = feasible(device, instances);
            }
        }
    }
}

/// No id is advertised twice, and the count equals that of the replicas.
#[track_caller]
pub(crate) fn given(offers: &Offers) {
    let mut ids = BTreeSet::new();
    for (offer, unit) in offers.units() {
        let own = unit.ids();
        let replicas = unit.replicas.map_or(1, |replicas| usize::try_from(replicas).unwrap());
        assert_eq!(own.len(), replicas, "{offer:?}");
        assert!(own.iter().all(|id| id.to_string().len() <= 63), "{own:?}");
        for id in own {
            assert!(ids.insert(id.clone()), "{id} twice");
        }
    }
    let counts = offers.resources.iter().map(Offer::count);
    assert_eq!(counts.sum::<usize>(), ids.len());
}

/// A location is that of a character or directly after the last one of a line.
#[track_caller]
pub(crate) fn within(text: &str, position: SourcePosition, message: &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    let line = usize::try_from(position.line).unwrap().checked_sub(1);
    let line = line.and_then(|index| unix.split('\n').nth(index));
    let width = line.map_or(0, |line| line.chars().count() + 1);
    let column = usize::try_from(position.column).unwrap();
    assert!(
        (1..=width).contains(&column),
        "{position} is outside of the text: {message}\n{text:?}"
    );
}
