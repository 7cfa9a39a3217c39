//! `octavo simulate`: strategies for MIG instances under a trace of requests.

use std::collections::BTreeSet;

use octavo_demand::simulation::{
    Discipline, Job, Load, Mix, OmittedRows, StrategyResult, TraceReport, compare, parse_trace,
    random_profiles,
};
use octavo_demand::{Fleet, Geometry, GeometryError};
use octavo_model::inventory::{Device, Inventory, MigState};
use octavo_model::profile::ProfileName;
use octavo_model::text::{count_noun, group_thousands};
use octavo_policy::PolicyDemand;
use octavo_policy::document::PolicyManifest;
use octavo_policy::validation::problems;
use octavo_simulation_report::text::{count, percent, seconds, share};
use octavo_simulation_report::{Requests, SimulationReport};
use octavo_terminal::output::note;
use serde::Serialize;
use strum::VariantArray;

use super::output::render;
use super::style::Style;
use super::text::{self, Cell};
use super::{CliError, Exit, Report, input};
use crate::settings::simulate::SimulateSettings;
use crate::settings::{Colors, Headers, Input};

const COLUMNS: [&str; 7] =
    ["STRATEGY", "ACCEPTED", "OPERATIONS", "IN USE", "FRAGMENTED", "MEAN WAIT", "P95 WAIT"];

/// Answer of `octavo simulate`.
#[derive(Debug, Serialize)]
struct SimulationDocument {
    items: Vec<TraceReport>,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy)]
struct Model<'a> {
    device: &'a Device,
    state: &'a MigState,
    /// Number in the inventory.
    inventory: usize,
    /// Number in the simulation.
    simulated: usize,
}

/// Runs `octavo simulate`.
pub(super) fn simulate(
    inventory: &Inventory,
    settings: &SimulateSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let models = models(inventory, settings)?;
    let demand = settings.policy.as_ref().map(policy).transpose()?;
    let discipline = settings.discipline(demand);
    let mut notes = Vec::new();
    let items: Vec<TraceReport> = match (&settings.trace, settings.mix.as_slice()) {
        (Some(file), _) => vec![recorded(&models, file, (settings, discipline), &mut notes)?],
        (None, mixes) => {
            let mixes = if mixes.is_empty() { Mix::VARIANTS } else { mixes };
            let items = mixes.iter().map(|mix| random(&models, *mix, (settings, discipline)));
            items.collect::<Result<_, CliError>>()?
        }
    };
    let output = match settings.output.format.of_document() {
        None => {
            let report = html_report(&models, items, notes.clone(), (settings, discipline));
            report.html().map_err(|error| CliError::Serialize(Box::new(error)))?
        }
        Some(format) => {
            let document = SimulationDocument { items };
            let names = document.items.iter().map(|item| item.trace.as_str());
            render(format, &document, names, || tables(&document, (settings, discipline), colors))?
        }
    };
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

fn html_report(
    models: &[Model<'_>],
    traces: Vec<TraceReport>,
    notes: Vec<String>,
    (settings, discipline): (&SimulateSettings, Discipline),
) -> SimulationReport {
    let requests = settings.requests as usize;
    SimulationReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        gpus: models.iter().map(|model| (product(model.device), model.inventory)).collect(),
        gpus_per_model: settings.gpus,
        requests: match settings.trace {
            Some(_) => Requests::File,
            None => Requests::Random {
                count: requests,
                warm_up: warm_up(requests),
                runs: settings.runs,
                load: settings.load,
            },
        },
        discipline,
        notes,
        traces,
    }
}

fn product(device: &Device) -> String {
    device.product_name.clone().unwrap_or_else(|| "GPU".to_owned())
}

/// The models of the MIG-capable GPUs whose profiles are known.
fn models<'a>(
    inventory: &'a Inventory,
    settings: &SimulateSettings,
) -> Result<Vec<Model<'a>>, CliError> {
    let mut models: Vec<Model<'a>> = Vec::new();
    let devices = inventory.devices.iter();
    let known = devices.filter_map(|device| Some((device, device.mig.state()?)));
    for (device, state) in known.filter(|(_, state)| state.catalog.memory_slices() > 0) {
        match models.iter_mut().find(|model| model.state.catalog == state.catalog) {
            Some(model) => model.inventory = model.inventory.saturating_add(1),
            None => models.push(Model { device, state, inventory: 1, simulated: 1 }),
        }
    }
    if models.is_empty() {
        return Err(CliError::rejected(
            "error: the inventory has no MIG-capable GPU whose profiles are known; use --from with the inventory of a \
             node that has one\n"
                .to_owned(),
        ));
    }
    for model in &mut models {
        model.simulated = settings.gpus.map_or(model.inventory, |gpus| gpus as usize);
    }
    Ok(models)
}

/// GPUs with only these profiles: placements of others do not matter. GPUs without them are omitted.
fn fleet(models: &[Model<'_>], requested: &BTreeSet<&ProfileName>) -> Result<Fleet, CliError> {
    let mut fleet = Fleet::default();
    for model in models {
        match Geometry::new(model.state, |profile| requested.contains(&profile.name)) {
            Ok(geometry) => fleet.add(geometry, model.simulated),
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

/// Reads the demand of a policy.
fn policy(file: &Input) -> Result<PolicyDemand, CliError> {
    let manifest: PolicyManifest = input::yaml(file, "a policy", "policy")?;
    let place = input::place(file);
    let rejected = |why: &str| CliError::rejected(format!("error: {place}: {why}\n"));
    if let Some(problem) = problems(&manifest.spec).into_iter().next() {
        return Err(rejected(&problem.to_string()));
    }
    manifest.spec.demand.ok_or_else(|| {
        rejected("the policy has no spec.demand, so it creates no instances for pending pods")
    })
}

/// Simulates the requests of a file.
fn recorded(
    models: &[Model<'_>],
    file: &Input,
    rules: (&SimulateSettings, Discipline),
    notes: &mut Vec<String>,
) -> Result<TraceReport, CliError> {
    let place = input::place(file);
    let text = input::trace(file)?;
    let trace =
        parse_trace(&text).map_err(|source| CliError::document("trace", place.clone(), source))?;
    notes.extend(omitted(trace.omitted));
    let jobs = trace.jobs;
    let fleet = fleet(models, &jobs.iter().map(|job| &job.profile).collect())?;
    if let Some(job) = jobs.iter().find(|job| fleet.slices_of(&job.profile).is_none()) {
        return Err(CliError::rejected(format!(
            "error: {place} requests {}, which no GPU of the inventory supports; remove these rows, or use --from \
             with an inventory that has such a GPU\n",
            job.profile
        )));
    }
    Ok(compared(place, &fleet, &[jobs], 0, rules))
}

/// Notes on usage of the ledger that is not simulated.
fn omitted(rows: OmittedRows) -> impl Iterator<Item = String> {
    let all = [
        (rows.without_partition, "without a MIG partition"),
        (rows.compute_instances, "of compute instances that share a MIG instance"),
    ];
    let omitted = all.into_iter().filter(|(number, _)| *number > 0);
    omitted.map(|(number, kind)| {
        let rows = if number == 1 { "row" } else { "rows" };
        format!("not simulated: {} {rows} {kind}", count(number))
    })
}

/// Simulates random requests for profiles of the first model.
fn random(
    models: &[Model<'_>],
    mix: Mix,
    (settings, discipline): (&SimulateSettings, Discipline),
) -> Result<TraceReport, CliError> {
    let profiles =
        models.first().map_or_else(Vec::new, |model| random_profiles(&model.state.catalog));
    let fleet = fleet(models, &profiles.iter().map(|profile| &profile.name).collect())?;
    let load = Load { slices: fleet.slices(), factor: settings.load };
    let count = settings.requests as usize;
    let seeds = 0..u64::from(settings.runs);
    let runs: Vec<Vec<Job>> = seeds.map(|seed| mix.jobs(&profiles, load, count, seed)).collect();
    let name = <&str>::from(mix).to_owned();
    Ok(compared(name, &fleet, &runs, warm_up(count), (settings, discipline)))
}

/// Number of the first random requests that are not counted.
fn warm_up(requests: usize) -> usize {
    requests / 5
}

fn compared(
    trace: String,
    fleet: &Fleet,
    runs: &[Vec<Job>],
    warm_up: usize,
    (settings, discipline): (&SimulateSettings, Discipline),
) -> TraceReport {
    note(&format!("simulating {trace}"));
    let strategies = match settings.strategy.as_slice() {
        [] => VariantArray::VARIANTS,
        chosen => chosen,
    };
    let comparison = compare(fleet, runs, strategies, discipline, warm_up);
    TraceReport { trace, gpus: fleet.gpus().len(), slices: fleet.slices(), comparison }
}

fn tables(
    report: &SimulationDocument,
    (settings, discipline): (&SimulateSettings, Discipline),
    colors: Colors,
) -> String {
    let waits = discipline != Discipline::Loss;
    let columns = if waits { &COLUMNS[..] } else { &COLUMNS[..5] };
    let mut output = String::new();
    for item in &report.items {
        if settings.output.headers == Headers::Shown {
            output.push_str(&title(item));
        }
        let best = item.comparison.best_acceptance();
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
        count(item.comparison.requests),
        count_noun(item.gpus, "GPU", "GPUs"),
        group_thousands(&item.slices.to_string()),
        pooled.unwrap_or_default()
    )
}

fn row(result: &StrategyResult, best: f64, waits: bool) -> Vec<Cell> {
    let style = if result.is_best(best) { Style::Good } else { Style::Plain };
    let mut cells = vec![
        Cell::plain(<&str>::from(result.strategy)),
        Cell::new(&share(result.acceptance), style),
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
