//! `octavo estimate`: an aggregator's estimates of times, speeds and costs, as a table or as the original document.

use octavo_documents::estimates::{
    DevicesJson, EstimateAnswer, EstimateRequest, EstimateRow, WorkloadJson, devices_of_profile,
};
use octavo_documents::hardware_profiles::document::ProfileDetail;

use super::client::{Client, RequestPath};
use super::style::Style;
use super::text::{Cell, columns, lines, printable, wrap};
use super::{CliError, Exit, Report, json, profiles, yaml};
use crate::settings::Colors;
use crate::settings::estimate::{EstimateCommand, EstimateDevices};
use crate::settings::fleet::{FleetFormat, OutputOptions};

/// Runs `octavo estimate`.
pub(super) async fn estimate(
    command: &EstimateCommand,
    colors: Colors,
) -> Result<Report, CliError> {
    let options = match command {
        EstimateCommand::Training(training) => &training.options,
        EstimateCommand::Decoding(decoding) => &decoding.options,
    };
    let client = Client::new(&options.server)?;
    let request = EstimateRequest {
        workload: workload(command),
        devices: devices(&client, &options.devices).await?,
        purchase_option: options.devices.purchase.clone(),
    };
    let target = RequestPath::new("/api/v1/estimates");
    let answer: EstimateAnswer = client.post(&target, &request).await?;
    let printed = options.output;
    let output = match printed.format {
        FleetFormat::Json => json(&answer)?,
        FleetFormat::Yaml => yaml(&answer)?,
        FleetFormat::Name => {
            let known = answer.items.iter().filter(|row| row.said().is_some());
            lines(known.map(|row| printable(&row.type_name)))
        }
        FleetFormat::Table | FleetFormat::Wide => table(&answer, printed, colors),
    };
    let said = "an estimate: nothing of it was measured on this fleet".to_owned();
    let notes = [said].into_iter().chain(answer.notices.iter().cloned());
    Ok(Report {
        output,
        notes: lines(notes.map(|text| format!("note: {}", printable(&text)))),
        exit: exit(&answer),
    })
}

fn workload(command: &EstimateCommand) -> WorkloadJson {
    match command {
        EstimateCommand::Decoding(decoding) => WorkloadJson::Decoding {
            model: decoding.model.model.clone(),
            parameters: decoding.model.parameters,
            precision: decoding.model.precision.clone(),
        },
        EstimateCommand::Training(training) => WorkloadJson::Training {
            model: training.model.model.clone(),
            parameters: training.model.parameters,
            tokens: training.tokens,
            samples: training.samples,
            tokens_per_sample: training.tokens_per_sample,
            batch: training.batch,
            precision: training.model.precision.clone(),
        },
    }
}

/// Returns the requested devices; `None` for one device of each type of the fleet.
async fn devices(
    client: &Client,
    on: &EstimateDevices,
) -> Result<Option<Vec<DevicesJson>>, CliError> {
    let Some(name) = &on.profile else {
        let all = on.types.iter().map(|name| DevicesJson {
            type_name: name.clone(),
            count: on.count.unwrap_or(1),
        });
        return Ok((!on.types.is_empty()).then(|| all.collect()));
    };
    let target = profiles::target(on.namespace.as_deref(), name);
    let detail: ProfileDetail = client.get(&target).await?;
    let devices = devices_of_profile(&detail.row, on.count);
    let devices = devices.map_err(|source| CliError::ProfileNotEstimable {
        name: printable(name),
        source,
    })?;
    Ok(Some(devices))
}

fn exit(answer: &EstimateAnswer) -> Exit {
    let has_figure = answer.items.iter().any(|row| row.said().is_some());
    match (has_figure, answer.times.as_str()) {
        (true, _) => Exit::Done,
        (false, "none") => Exit::Blocked,
        (false, _) => Exit::Infeasible,
    }
}

/// Formats the figures, the reasons for missing ones, and their source and assumptions.
fn table(answer: &EstimateAnswer, printed: OutputOptions, colors: Colors) -> String {
    let is_wide = printed.format == FleetFormat::Wide;
    let rows = answer.items.iter().map(|row| cells(row, is_wide));
    if !printed.with_headers() {
        return columns(&rows.collect::<Vec<_>>(), colors);
    }
    let mut names = vec!["TYPE", "COUNT", "ESTIMATE", "COST"];
    if is_wide {
        names.push("INTERPOLATED");
    }
    let header = names.into_iter().map(|name| Cell::new(name, Style::Strong));
    let all: Vec<Vec<Cell>> = [header.collect()].into_iter().chain(rows).collect();
    let mut parts = Vec::new();
    if !answer.items.is_empty() {
        parts.push(columns(&all, colors));
    }
    let missing = missing(answer);
    if !missing.is_empty() {
        let heading = "no estimate:".to_owned();
        parts.push(lines([heading].into_iter().chain(missing)));
    }
    let mut said = vec![wrap(&format!("source: {}", answer.source), 2)];
    if !answer.assumptions.is_empty() {
        said.push("taken for granted:".to_owned());
        let all = answer.assumptions.iter();
        said.extend(all.map(|text| wrap(&format!("  {text}"), 4)));
    }
    parts.push(lines(said));
    parts.join("\n")
}

fn cells(row: &EstimateRow, is_wide: bool) -> Vec<Cell> {
    let told = row.said();
    let (text, ink) = match &told {
        Some(text) => (text.as_str(), Style::Plain),
        None => ("no estimate", Style::Warning),
    };
    let mut cells = vec![
        Cell::plain(&row.type_name),
        Cell::plain(&row.count.to_string()),
        Cell::new(text, ink),
        Cell::plain(
            &row.cost
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string),
        ),
    ];
    if is_wide {
        let word = match (told, row.interpolated) {
            (None, _) => "-",
            (Some(_), true) => "yes",
            (Some(_), false) => "no",
        };
        cells.push(Cell::plain(word));
    }
    cells
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
    use octavo_documents::estimates::{CostRangeJson, IntervalJson};

    use super::*;
    use crate::settings::Headers;

    fn row(name: &str) -> EstimateRow {
        EstimateRow {
            type_name: name.to_owned(),
            count: 8,
            seconds: None,
            tokens_per_second: None,
            interpolated: false,
            cost: None,
            why_not: None,
        }
    }

    fn answer() -> EstimateAnswer {
        let known = EstimateRow {
            seconds: Some(IntervalJson {
                low: 1.4e6,
                high: 3.3e6,
            }),
            interpolated: true,
            cost: Some(CostRangeJson {
                low: "4000.00".to_owned(),
                high: "9600.50".to_owned(),
                currency: "USD".to_owned(),
                per: "run".to_owned(),
                purchase_option: "spot".to_owned(),
            }),
            ..row("acme-x")
        };
        let untold = EstimateRow {
            why_not: Some("the catalogue knows nothing of acme\u{1b}-y".to_owned()),
            ..row("acme-y")
        };
        EstimateAnswer {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "EstimateAnswer".to_owned(),
            is_estimate: true,
            times: "estimated".to_owned(),
            reason: None,
            source: "bench 2026.3".to_owned(),
            assumptions: vec!["flash attention".to_owned()],
            items: vec![known, untold],
            notices: Vec::new(),
        }
    }

    fn text(answer: &EstimateAnswer, format: FleetFormat, headers: Headers) -> String {
        table(answer, OutputOptions { format, headers }, Colors::Off)
    }

    #[test]
    fn table_has_intervals_source_and_missing_reasons() {
        assert_eq!(
            text(&answer(), FleetFormat::Table, Headers::Shown),
            "\
TYPE    COUNT  ESTIMATE       COST
acme-x  8      16 to 38 days  4,000 to 9,600 USD a run
acme-y  8      no estimate    -

no estimate:
  8 x acme-y: the catalogue knows nothing of acme�-y

source: bench 2026.3
taken for granted:
  flash attention
"
        );
        let wide = text(&answer(), FleetFormat::Wide, Headers::Hidden);
        assert!(wide.contains("a run  yes\n"), "{wide}");
        assert_eq!(exit(&answer()), Exit::Done);
    }

    #[test]
    fn unreachable_engine_leaves_times_empty_and_sets_exit_code() {
        let mut away = answer();
        away.times = "none".to_owned();
        away.reason = Some("the estimate engine did not answer within 2s".to_owned());
        away.items = vec![row("acme-x")];
        let told = text(&away, FleetFormat::Table, Headers::Shown);
        assert!(
            told.contains("no estimate:\n  the estimate engine did not answer within 2s\n"),
            "{told}"
        );
        assert_eq!(exit(&away), Exit::Blocked);
        away.times = "estimated".to_owned();
        assert_eq!(exit(&away), Exit::Infeasible);
    }

    #[test]
    fn invalid_interval_is_not_shown() {
        let mut odd = row("acme-x");
        odd.seconds = Some(IntervalJson {
            low: f64::NAN,
            high: -1.0,
        });
        assert_eq!(odd.said(), None);
    }
}
