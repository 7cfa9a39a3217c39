//! `octavo simulate`: strategies for MIG instances under a trace of requests.

use std::collections::BTreeSet;

use octavo_demand::simulation::{
    Comparison, Discipline, Job, Load, Mix, Spread, StrategyResult, compare, parse_trace,
};
use octavo_demand::{Fleet, Geometry, GeometryError};
use octavo_model::inventory::{Inventory, MigState};
use octavo_model::profile::ProfileName;
use octavo_model::text::{count_noun, group_thousands};
use octavo_terminal::output::note;
use serde::Serialize;
use strum::VariantArray;

use super::output::render;
use super::style::Style;
use super::text::{self, Cell};
use super::{CliError, Exit, Report, input};
use crate::settings::simulate::SimulateSettings;
use crate::settings::{Colors, Input};

const COLUMNS: [&str; 7] =
    ["STRATEGY", "ACCEPTED", "OPERATIONS", "IN USE", "FRAGMENTED", "MEAN WAIT", "P95 WAIT"];

/// Answer of `octavo simulate`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SimulationReport {
    /// Number of GPUs.
    gpus: usize,
    /// Number of their slices.
    slices: u32,
    items: Vec<TraceReport>,
}

/// Comparison of the strategies for one trace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceReport {
    /// Mix or file.
    trace: String,
    #[serde(flatten)]
    comparison: Comparison,
}

/// Requests of one mix or file.
struct Trace {
    name: String,
    runs: Vec<Vec<Job>>,
    warm_up: usize,
}

/// Runs `octavo simulate`.
pub(super) fn simulate(
    inventory: &Inventory,
    settings: &SimulateSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let all = fleet(inventory, settings, |_| true)?;
    let traces = match &settings.trace {
        Some(file) => vec![recorded(&all, file)?],
        None => random(&all, settings),
    };
    let strategies = match settings.strategy.as_slice() {
        [] => VariantArray::VARIANTS,
        chosen => chosen,
    };
    let mut items = Vec::new();
    for Trace { name, runs, warm_up } in traces {
        note(&format!("simulating {name}"));
        let requested: BTreeSet<&ProfileName> =
            runs.iter().flatten().map(|job| &job.profile).collect();
        // Placements of other profiles do not matter.
        let fleet = fleet(inventory, settings, |profile| requested.contains(profile))?;
        let comparison = compare(&fleet, &runs, strategies, settings.discipline(), warm_up);
        items.push(TraceReport { trace: name, comparison });
    }
    let report = SimulationReport { gpus: all.gpus().len(), slices: all.slices(), items };
    let names = report.items.iter().map(|item| item.trace.as_str());
    let table = || tables(&report, settings, colors);
    let output = render(settings.output.format, &report, names, table)?;
    Ok(Report { output, notes: String::new(), exit: Exit::Done })
}

/// The MIG-capable devices of the inventory without instances, with these profiles.
fn fleet(
    inventory: &Inventory,
    settings: &SimulateSettings,
    includes: impl Fn(&ProfileName) -> bool,
) -> Result<Fleet, CliError> {
    let mut fleet = Fleet::default();
    let mut models: Vec<&MigState> = Vec::new();
    for state in inventory.devices.iter().filter_map(|device| device.mig.state()) {
        let is_known = models.iter().any(|model| model.catalog == state.catalog);
        if is_known && settings.gpus.is_some() {
            continue;
        }
        models.push(state);
        match Geometry::new(state, |profile| includes(&profile.name)) {
            Ok(geometry) => fleet.add(geometry, settings.gpus.map_or(1, |count| count as usize)),
            Err(GeometryError::NoProfiles) => {}
            Err(error @ GeometryError::TooLarge) => {
                return Err(CliError::rejected(format!(
                    "error: cannot simulate the GPUs: {error}\n"
                )));
            }
        }
    }
    if fleet.gpus().is_empty() {
        return Err(CliError::rejected(
            "error: the inventory has no MIG-capable GPU whose profiles are known; use --from with the inventory of a \
             node that has one\n"
                .to_owned(),
        ));
    }
    Ok(fleet)
}

/// Requests of a file.
fn recorded(fleet: &Fleet, file: &Input) -> Result<Trace, CliError> {
    let text = input::text(file, "a trace")?;
    let jobs = parse_trace(&text)
        .map_err(|source| CliError::document("trace", input::place(file), source))?;
    if let Some(job) = jobs.iter().find(|job| fleet.slices_of(&job.profile).is_none()) {
        return Err(CliError::rejected(format!(
            "error: {} requests {}, which no device of the inventory supports\n",
            input::place(file),
            job.profile
        )));
    }
    Ok(Trace { name: input::place(file), runs: vec![jobs], warm_up: 0 })
}

/// Random requests for the first model.
fn random(fleet: &Fleet, settings: &SimulateSettings) -> Vec<Trace> {
    let mixes = match settings.mix.as_slice() {
        [] => Mix::VARIANTS,
        chosen => chosen,
    };
    let load = Load { slices: fleet.slices(), factor: settings.load };
    let profiles = fleet.geometries().first().map_or(&[][..], Geometry::profiles);
    let count = settings.requests as usize;
    let trace = |mix: &Mix| {
        let runs = 0..u64::from(settings.runs);
        Trace {
            name: <&str>::from(mix).to_owned(),
            runs: runs.map(|seed| mix.jobs(profiles, load, count, seed)).collect(),
            warm_up: count / 5,
        }
    };
    mixes.iter().map(trace).collect()
}

fn tables(report: &SimulationReport, settings: &SimulateSettings, colors: Colors) -> String {
    let waits = settings.discipline() != Discipline::Loss;
    let columns = if waits { &COLUMNS[..] } else { &COLUMNS[..5] };
    let mut output = String::new();
    for item in &report.items {
        if settings.output.with_headers() {
            output.push_str(&title(report, item));
        }
        let best = item.comparison.strategies.iter().map(|one| one.acceptance.mean);
        let best = best.fold(0.0, f64::max);
        let rows = item.comparison.strategies.iter().map(|one| row(one, best, waits));
        output.push_str(&text::table(&[columns], rows, settings.output.headers, colors));
        output.push('\n');
    }
    output.pop();
    output
}

fn title(report: &SimulationReport, item: &TraceReport) -> String {
    let ideal = item.comparison.free_defragmentation;
    let ideal =
        ideal.map(|ideal| format!("; free defragmentation would accept {}", percent(ideal.mean)));
    format!(
        "{}: {} requests, {} with {} slices{}\n",
        item.trace,
        group_thousands(&item.comparison.requests.to_string()),
        count_noun(report.gpus, "GPU", "GPUs"),
        group_thousands(&report.slices.to_string()),
        ideal.unwrap_or_default()
    )
}

fn row(result: &StrategyResult, best: f64, waits: bool) -> Vec<Cell> {
    let accepted = result.acceptance;
    let is_best = accepted.mean + accepted.standard_deviation >= best;
    let style = if is_best { Style::Good } else { Style::Plain };
    let mut cells = vec![
        Cell::plain(<&str>::from(result.strategy)),
        Cell::new(&share(accepted), style),
        Cell::plain(&format!("{:.2}", result.operations_per_request.mean)),
        Cell::plain(&percent(result.utilization.mean)),
        Cell::plain(&percent(result.fragmentation.mean)),
    ];
    if waits {
        cells.push(Cell::plain(&seconds(result.wait.mean_seconds)));
        cells.push(Cell::plain(&seconds(result.wait.p95_seconds)));
    }
    cells
}

fn share(value: Spread) -> String {
    if value.standard_deviation > 0.0 {
        format!("{} ± {:.1}", percent(value.mean), value.standard_deviation * 100.0)
    } else {
        percent(value.mean)
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.0} s")
}
