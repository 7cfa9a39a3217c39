//! `octavo estimate`: an aggregator's estimates of times, speeds and costs, as a table or as the original document.

use octavo_client::{Client, RequestPath};
use octavo_fleet::estimate::profile_devices::devices_of_profile;
use octavo_fleet::estimate::{
    DeviceGroup, EstimateAnswer, EstimateRequest, EstimateRow, TimesStatus, Workload,
};
use octavo_fleet::hardware_profile::document::ProfileDetail;

use super::output::render;
use super::style::Style;
use super::text::{self, Cell, lines, printable, wrap};
use super::{CliError, Exit, Report, profiles};
use crate::settings::Colors;
use crate::settings::estimate::{EstimateCommand, EstimateDevices};
use crate::settings::fleet::OutputOptions;

const COLUMNS: [&str; 4] = ["TYPE", "COUNT", "ESTIMATE", "COST"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 1] = ["INTERPOLATED"];

/// Runs `octavo estimate`.
pub(super) async fn estimate(
    command: &EstimateCommand,
    colors: Colors,
) -> Result<Report, CliError> {
    let options = match command {
        EstimateCommand::Training(training) => &training.options,
        EstimateCommand::Decoding(decoding) => &decoding.options,
    };
    let client = Client::connect(&options.server).await?;
    let request = EstimateRequest {
        workload: workload(command),
        devices: devices(&client, &options.devices).await?,
        purchase_option: options.devices.purchase,
    };
    let target = RequestPath::new("/api/v1/estimates");
    let answer: EstimateAnswer = client.post(&target, &request).await?;
    let printed = options.output;
    let known = answer.items.iter().filter(|row| row.summary().is_some());
    let names = known.map(|row| row.type_name.as_str());
    let output = render(printed.format, &answer, names, || table(&answer, printed, colors))?;
    let mut notes = vec!["estimates only; nothing was measured on this fleet"];
    notes.extend(answer.notices.iter().map(String::as_str));
    Ok(Report::with_notes(output, &notes, exit(&answer)))
}

fn workload(command: &EstimateCommand) -> Workload {
    match command {
        EstimateCommand::Decoding(decoding) => Workload::Decoding {
            model: decoding.model.model.clone(),
            parameters: decoding.model.parameters,
            precision: decoding.model.precision,
        },
        EstimateCommand::Training(training) => Workload::Training {
            model: training.model.model.clone(),
            parameters: training.model.parameters,
            tokens: training.tokens,
            samples: training.samples,
            tokens_per_sample: training.tokens_per_sample,
            batch: training.batch,
            precision: training.model.precision,
        },
    }
}

/// Returns the requested devices; `None` for one device of each type of the fleet.
async fn devices(
    client: &Client,
    on: &EstimateDevices,
) -> Result<Option<Vec<DeviceGroup>>, CliError> {
    let Some(name) = &on.profile else {
        let all = on
            .types
            .iter()
            .map(|name| DeviceGroup { type_name: name.clone(), count: on.count.unwrap_or(1) });
        return Ok((!on.types.is_empty()).then(|| all.collect()));
    };
    let target = profiles::target(on.namespace.as_deref(), name);
    let detail: ProfileDetail = client.get(&target).await?;
    let devices = devices_of_profile(&detail.row, on.count);
    let devices = devices
        .map_err(|source| CliError::ProfileNotEstimable { name: printable(name), source })?;
    Ok(Some(devices))
}

fn exit(answer: &EstimateAnswer) -> Exit {
    let has_figure = answer.items.iter().any(|row| row.summary().is_some());
    match has_figure {
        true => Exit::Done,
        false if answer.times == TimesStatus::Unavailable => Exit::Blocked,
        false => Exit::Infeasible,
    }
}

/// Formats the figures, the reasons for missing ones, and their source and assumptions.
fn table(answer: &EstimateAnswer, printed: OutputOptions, colors: Colors) -> String {
    let wide: &[&str] = if printed.is_wide() { &WIDE_COLUMNS } else { &[] };
    let rows = answer.items.iter().map(cells);
    let rows = text::table(&[&COLUMNS, wide], rows, printed.headers, colors);
    if !printed.with_headers() {
        return rows;
    }
    let mut parts = Vec::new();
    if !answer.items.is_empty() {
        parts.push(rows);
    }
    let missing = missing(answer);
    if !missing.is_empty() {
        let heading = "no estimate:".to_owned();
        parts.push(lines([heading].into_iter().chain(missing)));
    }
    let mut basis = vec![wrap(&format!("source: {}", answer.source), 2)];
    if !answer.assumptions.is_empty() {
        basis.push("assumptions:".to_owned());
        let all = answer.assumptions.iter();
        basis.extend(all.map(|text| wrap(&format!("  {text}"), 4)));
    }
    parts.push(lines(basis));
    parts.join("\n")
}

fn cells(row: &EstimateRow) -> Vec<Cell> {
    let estimate = row.summary();
    let (text, style) = match &estimate {
        Some(text) => (text.as_str(), Style::Plain),
        None => ("no estimate", Style::Warning),
    };
    let interpolated = estimate.is_some().then_some(if row.interpolated { "yes" } else { "no" });
    vec![
        Cell::plain(row.type_name.as_str()),
        Cell::plain(&row.count),
        Cell::new(text, style),
        Cell::optional(row.cost.as_ref()),
        Cell::optional(interpolated),
    ]
}

/// Returns the reasons for missing figures; a reason that applies to all is listed once.
fn missing(answer: &EstimateAnswer) -> Vec<String> {
    let of_all = answer.reason.iter().map(|why| format!("  {why}"));
    let of_rows = answer.items.iter().filter_map(|row| {
        let why = row.why_not.as_ref()?;
        Some(format!("  {} x {}: {why}", row.count, row.type_name))
    });
    let all = of_all.chain(of_rows);
    all.map(|text| wrap(&text, 4)).collect()
}

#[cfg(test)]
mod tests {
    use octavo_fleet::estimate::{CostRange, CostUnit, Interval};
    use octavo_fleet::price::PurchaseOption;

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn row(name: &str) -> EstimateRow {
        EstimateRow::new(&DeviceGroup { type_name: name.parse().unwrap(), count: 8 })
    }

    fn answer() -> EstimateAnswer {
        let known = EstimateRow {
            seconds: Interval::new(1.4e6, 3.3e6).ok(),
            interpolated: true,
            cost: Some(CostRange {
                low: "4000.00".parse().unwrap(),
                high: "9600.50".parse().unwrap(),
                currency: "USD".parse().unwrap(),
                per: CostUnit::Run.into(),
                purchase_option: PurchaseOption::Spot.into(),
            }),
            ..row("acme-x")
        };
        let unknown = EstimateRow {
            why_not: Some("the catalog does not contain acme\u{1b}-y".to_owned()),
            ..row("acme-y")
        };
        EstimateAnswer {
            assumptions: vec!["flash attention".to_owned()],
            ..EstimateAnswer::new("bench 2026.3", vec![known, unknown])
        }
    }

    fn text(answer: &EstimateAnswer, format: FleetFormat, headers: Headers) -> String {
        table(answer, OutputOptions { format, headers }, Colors::Off)
    }

    #[test]
    fn invalid_interval_is_not_shown() {
        let mut json = serde_json::to_value(row("acme-x")).unwrap();
        json["seconds"] = serde_json::json!({"low": 2.0, "high": -1.0});
        let row: EstimateRow = serde_json::from_value(json).unwrap();
        assert_eq!(row.seconds, None);
    }

    #[test]
    fn table_has_intervals_source_and_missing_reasons() {
        assert_eq!(
            text(&answer(), FleetFormat::Table, Headers::Shown),
            "\
TYPE    COUNT  ESTIMATE       COST
acme-x  8      16 to 38 days  4,000 to 9,600 USD per run
acme-y  8      no estimate    -

no estimate:
  8 x acme-y: the catalog does not contain acme�-y

source: bench 2026.3
assumptions:
  flash attention
"
        );
        let wide = text(&answer(), FleetFormat::Wide, Headers::Hidden);
        assert!(wide.contains("per run  yes\n"), "{wide}");
        assert_eq!(exit(&answer()), Exit::Done);
    }

    #[test]
    fn unreachable_engine_leaves_times_empty_and_sets_exit_code() {
        let mut away = answer();
        away.times = TimesStatus::Unavailable.into();
        away.reason = Some("the estimate engine did not respond within 2s".to_owned());
        away.items = vec![row("acme-x")];
        let shown = text(&away, FleetFormat::Table, Headers::Shown);
        assert!(
            shown.contains("no estimate:\n  the estimate engine did not respond within 2s\n"),
            "{shown}"
        );
        assert_eq!(exit(&away), Exit::Blocked);
        away.times = TimesStatus::Estimated.into();
        assert_eq!(exit(&away), Exit::Infeasible);
    }
}
