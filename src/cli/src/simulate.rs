//! `octavo simulate`: strategies for MIG instances under a trace of requests.

use std::collections::BTreeSet;

use octavo_demand::simulation::{
    Comparison, Discipline, Job, Load, MeanAndDeviation, Mix, StrategyResult, compare, parse_trace,
    random_profiles,
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
use super::{CliError, Report, input};
use crate::settings::simulate::SimulateSettings;
use crate::settings::{Colors, Input};

const COLUMNS: [&str; 7] =
    ["STRATEGY", "ACCEPTED", "OPERATIONS", "IN USE", "FRAGMENTED", "MEAN WAIT", "P95 WAIT"];

/// Answer of `octavo simulate`.
#[derive(Debug, Serialize)]
struct SimulationReport {
    items: Vec<TraceReport>,
}

/// Comparison of the strategies for one trace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceReport {
    /// Mix or file.
    trace: String,
    /// Number of GPUs that support a requested profile.
    gpus: usize,
    /// Number of their slices.
    slices: u32,
    #[serde(flatten)]
    comparison: Comparison,
}

/// GPUs of one model, and their number.
type Models<'a> = Vec<(&'a MigState, usize)>;

/// Runs `octavo simulate`.
pub(super) fn simulate(
    inventory: &Inventory,
    settings: &SimulateSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let models = models(inventory, settings)?;
    let items: Vec<TraceReport> = match (&settings.trace, settings.mix.as_slice()) {
        (Some(file), _) => vec![recorded(&models, file, settings)?],
        (None, mixes) => {
            let mixes = if mixes.is_empty() { Mix::VARIANTS } else { mixes };
            let items = mixes.iter().map(|mix| random(&models, *mix, settings));
            items.collect::<Result<_, CliError>>()?
        }
    };
    let report = SimulationReport { items };
    let names = report.items.iter().map(|item| item.trace.as_str());
    let table = || tables(&report, settings, colors);
    let output = render(settings.output.format, &report, names, table)?;
    Ok(Report { output, ..Report::default() })
}

/// The models of the MIG-capable GPUs whose profiles are known.
fn models<'a>(
    inventory: &'a Inventory,
    settings: &SimulateSettings,
) -> Result<Models<'a>, CliError> {
    let mut models = Models::new();
    let known = inventory.devices.iter().filter_map(|device| device.mig.state());
    for state in known.filter(|state| state.catalog.memory_slices() > 0) {
        match models.iter_mut().find(|(model, _)| model.catalog == state.catalog) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => models.push((state, 1)),
        }
    }
    if models.is_empty() {
        return Err(CliError::rejected(
            "error: the inventory has no MIG-capable GPU whose profiles are known; use --from with the inventory of a \
             node that has one\n"
                .to_owned(),
        ));
    }
    if let Some(gpus) = settings.gpus {
        for (_, count) in &mut models {
            *count = gpus as usize;
        }
    }
    Ok(models)
}

/// GPUs with only these profiles: placements of others do not matter. GPUs without them are omitted.
fn fleet(models: &Models<'_>, requested: &BTreeSet<&ProfileName>) -> Result<Fleet, CliError> {
    let mut fleet = Fleet::default();
    for (state, count) in models {
        match Geometry::new(state, |profile| requested.contains(&profile.name)) {
            Ok(geometry) => fleet.add(geometry, *count),
            Err(GeometryError::NoProfiles) => {}
            Err(error @ GeometryError::TooLarge) => {
                return Err(CliError::rejected(format!(
                    "error: cannot simulate the GPUs: {error}\n"
                )));
            }
        }
    }
    Ok(fleet)
}

/// Simulates the requests of a file.
fn recorded(
    models: &Models<'_>,
    file: &Input,
    settings: &SimulateSettings,
) -> Result<TraceReport, CliError> {
    let place = input::place(file);
    let text = input::text(file, "a trace")?;
    let jobs =
        parse_trace(&text).map_err(|source| CliError::document("trace", place.clone(), source))?;
    let fleet = fleet(models, &jobs.iter().map(|job| &job.profile).collect())?;
    if let Some(job) = jobs.iter().find(|job| fleet.slices_of(&job.profile).is_none()) {
        return Err(CliError::rejected(format!(
            "error: {place} requests {}, which no GPU of the inventory supports\n",
            job.profile
        )));
    }
    Ok(compared(place, &fleet, &[jobs], 0, settings))
}

/// Simulates random requests for profiles of the first model.
fn random(
    models: &Models<'_>,
    mix: Mix,
    settings: &SimulateSettings,
) -> Result<TraceReport, CliError> {
    let profiles =
        models.first().map_or_else(Vec::new, |(state, _)| random_profiles(&state.catalog));
    let fleet = fleet(models, &profiles.iter().map(|profile| &profile.name).collect())?;
    let load = Load { slices: fleet.slices(), factor: settings.load };
    let count = settings.requests as usize;
    let seeds = 0..u64::from(settings.runs);
    let runs: Vec<Vec<Job>> = seeds.map(|seed| mix.jobs(&profiles, load, count, seed)).collect();
    Ok(compared(<&str>::from(mix).to_owned(), &fleet, &runs, count / 5, settings))
}

fn compared(
    trace: String,
    fleet: &Fleet,
    runs: &[Vec<Job>],
    warm_up: usize,
    settings: &SimulateSettings,
) -> TraceReport {
    note(&format!("simulating {trace}"));
    let strategies = match settings.strategy.as_slice() {
        [] => VariantArray::VARIANTS,
        chosen => chosen,
    };
    let comparison = compare(fleet, runs, strategies, settings.discipline(), warm_up);
    TraceReport { trace, gpus: fleet.gpus().len(), slices: fleet.slices(), comparison }
}

fn tables(report: &SimulationReport, settings: &SimulateSettings, colors: Colors) -> String {
    let waits = settings.discipline() != Discipline::Loss;
    let columns = if waits { &COLUMNS[..] } else { &COLUMNS[..5] };
    let mut output = String::new();
    for item in &report.items {
        if settings.output.with_headers() {
            output.push_str(&title(item));
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

fn title(item: &TraceReport) -> String {
    let pooled = item.comparison.pool_acceptance;
    let pooled = pooled.map(|pooled| {
        format!("; one pool of as many slices would accept {}", percent(pooled.mean))
    });
    format!(
        "{}: {} requests, {} with {} slices{}\n",
        item.trace,
        group_thousands(&item.comparison.requests.to_string()),
        count_noun(item.gpus, "GPU", "GPUs"),
        group_thousands(&item.slices.to_string()),
        pooled.unwrap_or_default()
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

fn share(value: MeanAndDeviation) -> String {
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
    format!("{} s", group_thousands(&format!("{seconds:.0}")))
}
