//! Layout files: every input of the table with its messages.

pub(crate) mod checks;
pub(crate) mod properties;
pub(crate) mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use octavo_files::layouts::parse;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::{Dialect, Layout, MigTarget, TargetScope, Targets, resolve};
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{Feasibility, feasible};

use crate::golden::golden;
use table::{Case, Original, Verdict};

#[test]
fn every_table_input_has_its_verdict_and_message() {
    let mut wrong = Vec::new();
    let mut reported = Vec::new();
    for case in table::cases() {
        let (verdict, words) = describe(&case);
        if verdict != case.ours {
            wrong.push(format!("{}: {verdict:?}, not {:?}: {words:#?}", case.name, case.ours));
        }
        reported.push(words);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    golden(table::FILE, &table::rewritten(&reported));
}

#[test]
fn errors_are_located_in_input_and_accepted_input_round_trips() {
    let machines = checks::machines();
    for case in table::cases() {
        checks::check(&case.input, &machines);
    }
}

#[test]
fn layouts_on_documentation_pages_are_accepted() {
    for page in ["docs/tasks/sharing.md", "docs/reference/layouts.md"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        let blocks = text.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
        let layouts: Vec<&str> = blocks.filter(|block| block.starts_with("apiVersion")).collect();
        assert!(!layouts.is_empty(), "{page} shows no layouts");
        for block in layouts {
            let read = parse(block);
            assert!(read.is_ok(), "{page}: {:#?}\n{block}", read.err());
        }
    }
}

#[test]
fn table_is_large_and_its_names_are_unique() {
    let cases = table::cases();
    let theirs = cases.iter().filter(|case| case.dialect == Dialect::MigParted);
    assert!(theirs.count() >= 70);
    assert!(cases.len() >= 150);
    let names: BTreeSet<&String> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len());
}

/// The rule for the whole dialect; `peer_mig_parted` verifies the table against the original.
#[test]
fn verdicts_agree_with_mig_parted_or_the_table_explains_why() {
    for case in table::cases() {
        let agrees = match (case.original, case.ours) {
            (None, _) => case.dialect != Dialect::MigParted,
            (Some(Original::Accepts), ours) => ours != Verdict::Error || case.on.is_some(),
            (Some(Original::Refuses), ours) => ours == Verdict::Error,
            (Some(Original::Misreads), _) => true,
        };
        assert!(agrees || case.because.is_some(), "{case:#?}");
        assert!(!agrees || case.because.is_none(), "{case:#?}");
    }
}

/// The verdict and all messages.
fn describe(case: &Case) -> (Verdict, Vec<String>) {
    let parsed = match parse(&case.input) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let errors = errors.iter();
            let reported = errors.map(|error| format!("error {} {error}", error.position()));
            return (Verdict::Error, reported.collect());
        }
    };
    assert_eq!(parsed.layouts.dialect, case.dialect, "{}", case.name);
    let layout = parsed.layouts.by_name(&case.select);
    let layout = layout.unwrap_or_else(|| panic!("{}: no {}", case.name, case.select));
    let warnings = parsed.warnings.iter();
    let mut reported: Vec<String> =
        warnings.map(|warning| format!("warning {} {warning}", warning.position())).collect();
    let mut verdict = Verdict::Ok;
    if !reported.is_empty() {
        verdict = Verdict::Warning;
    }
    if let Some(machine) = &case.on {
        verdict = verdict.max(mean(layout, case.dialect, &recorded(machine), &mut reported));
    }
    (verdict, reported)
}

/// Evaluates the layout on a machine.
fn mean(
    layout: &Layout,
    dialect: Dialect,
    machine: &Inventory,
    reported: &mut Vec<String>,
) -> Verdict {
    match resolve(layout, dialect, machine) {
        Err(errors) => {
            let errors = errors.iter();
            reported.extend(errors.map(|error| format!("error {} {error}", error.position)));
            Verdict::Error
        }
        Ok(resolved) => {
            let warnings = resolved.warnings.iter();
            let before = reported.len();
            reported
                .extend(warnings.map(|warning| format!("warning {} {warning}", warning.position)));
            let mut verdict = Verdict::Ok;
            if reported.len() > before {
                verdict = Verdict::Warning;
            }
            verdict.max(describe_targets(&resolved.targets, machine, reported))
        }
    }
}

fn describe_targets(targets: &Targets, machine: &Inventory, reported: &mut Vec<String>) -> Verdict {
    let mut verdict = Verdict::Ok;
    for target in &targets.devices {
        let device = machine.devices.iter().find(|device| device.pci == target.pci).unwrap();
        let words = PlanFormatter::new(machine, target.pci);
        let name = words.device(target.pci);
        match &target.mig {
            None => {}
            Some(MigTarget::Disabled) => reported.push(format!("{name}: MIG off")),
            Some(MigTarget::Enabled(instances)) => match feasible(device, instances) {
                Ok(Feasibility::Feasible) => {
                    reported.push(format!("{name}: MIG on, {}", words.list(instances)));
                }
                Ok(Feasibility::Unknown) => reported.push(format!("{name}: unknown")),
                Err(infeasible) => {
                    verdict = Verdict::Error;
                    let nearest = words.alternatives(&infeasible).join(" | ");
                    let rule = words.rule(&infeasible.rule);
                    reported
                        .push(format!("error {} {name}: {rule}; nearest: {nearest}", target.rule));
                }
            },
        }
        if let Some(sharing) = &target.time_slicing {
            reported.push(format!("{name}: time-slicing: {sharing}"));
        }
        if target.scope == TargetScope::Mode {
            reported.push(format!("{name}: partitions by claims"));
        }
    }
    verdict
}

fn recorded(machine: &str) -> Inventory {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cli/machines");
    let text = fs::read_to_string(directory.join(format!("{machine}.json"))).unwrap();
    octavo_files::inventory::parse(&text).unwrap()
}
