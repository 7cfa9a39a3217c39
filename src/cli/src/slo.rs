//! `octavo slo`: the measured rows that meet a service's objectives, as a table with the evidence for each, or as the
//! original document.

use octavo_client::{Client, RequestPath};
use octavo_files::measured_rows::parse;
use octavo_fleet::slo::{MeasuredRow, Objectives, SloAnswer, SloRequest, SloRow};
use octavo_model::id::TypeName;

use super::output::render;
use super::style::Style;
use super::text::{self, Cell, count_noun, lines, wrap};
use super::{CliError, Exit, Report, input};
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::settings::slo::{SloObjectives, SloSettings};

const ROW_COLUMNS: [&str; 5] = ["HARDWARE", "DEVICES", "REPLICAS", "COST/H", "IN FLEET"];
/// Columns that are shown if a row has a hardware profile.
const PROFILE_COLUMNS: [&str; 2] = ["PROFILE", "FREE"];
const FIGURE_COLUMNS: [&str; 2] = ["MET", "REQ/S"];

/// Runs `octavo slo`.
pub(super) async fn slo(settings: &SloSettings, colors: Colors) -> Result<Report, CliError> {
    let text = input::text(&settings.file, "rows")?;
    let found = parse(&text)
        .map_err(|source| CliError::document("rows", input::place(&settings.file), source))?;
    let wanted = &settings.objectives;
    let unread = found.unread_pages_notice();
    let request = SloRequest { objectives: objectives(wanted), rows: found.rows };
    let client = Client::connect(&settings.server).await?;
    let target = RequestPath::new("/api/v1/slo");
    let answer: SloAnswer = client.post(&target, &request).await?;
    let printed = settings.output;
    let met = answer.items.iter().filter(|row| row.misses.is_empty());
    let names = met.map(|row| row.hardware.as_str());
    let output = render(printed.format, &answer, names, || {
        table(&answer, (&request.rows, wanted), printed, colors)
    })?;
    let mut notes = answer.notices.clone();
    if found.skipped > 0 {
        let items = count_noun(found.skipped, "item", "items");
        notes.push(format!("{items} skipped: no measurement on hardware"));
    }
    notes.extend(unread.map(str::to_owned));
    let rows = count_noun(answer.items.len(), "row", "rows");
    notes.push(format!("{} of {rows} meet all objectives", answer.met));
    let exit = if answer.met > 0 { Exit::Done } else { Exit::Infeasible };
    Ok(Report::with_notes(output, &notes, exit))
}

fn objectives(wanted: &SloObjectives) -> Objectives {
    Objectives {
        requests_per_second_at_least: wanted.requests_per_second,
        latencies_at_most: wanted.latencies.iter().cloned().collect(),
        price_at_most_per_hour: wanted.max_price,
        purchase_option: wanted.purchase,
    }
}

/// Formats the rows with the measured values of the requested objectives, which shows how much slower a cheaper row
/// is; then the objectives that others miss.
fn table(
    answer: &SloAnswer,
    (measured, wanted): (&[MeasuredRow], &SloObjectives),
    printed: OutputOptions,
    colors: Colors,
) -> String {
    let with_profiles = answer.items.iter().any(|row| !row.profiles.is_empty());
    let rows = answer.items.iter().map(|row| {
        let of = measured.get(row.row);
        cells(row, (of, with_profiles), wanted)
    });
    let latencies: Vec<String> =
        wanted.latencies.iter().map(|(name, _)| name.to_uppercase()).collect();
    let of_profile = PROFILE_COLUMNS.into_iter().filter(|_| with_profiles);
    let names = ROW_COLUMNS.into_iter().chain(of_profile).chain(FIGURE_COLUMNS);
    let names: Vec<&str> = names.chain(latencies.iter().map(String::as_str)).collect();
    let rows = text::table(&[&names], rows, printed.headers, colors);
    if !printed.with_headers() {
        return rows;
    }
    let mut parts = vec![rows];
    parts.extend(choices(answer));
    let misses = answer.items.iter().filter(|row| !row.misses.is_empty());
    let misses: Vec<String> = misses
        .map(|row| {
            let text = format!("  {} x {}: {}", row.count, row.hardware, row.misses.join("; "));
            wrap(&text, 4)
        })
        .collect();
    if !misses.is_empty() {
        let heading = "misses objectives:".to_owned();
        parts.push(lines([heading].into_iter().chain(misses)));
    }
    if printed.is_wide() {
        let types = answer.items.iter().map(|row| {
            let types = match row.types.as_slice() {
                [] => "unknown".to_owned(),
                all => all.iter().map(TypeName::as_str).collect::<Vec<_>>().join(", "),
            };
            wrap(&format!("  {}: {types}", row.hardware), 4)
        });
        let mut types: Vec<String> = types.collect();
        types.sort();
        types.dedup();
        let heading = "possible types:".to_owned();
        parts.push(lines([heading].into_iter().chain(types)));
    }
    parts.join("\n")
}

/// Formats the hardware profiles of rows that meet all objectives, in the order of the rows.
fn choices(answer: &SloAnswer) -> Option<String> {
    let met = answer.items.iter().filter(|row| row.misses.is_empty());
    let mut all: Vec<String> = Vec::new();
    for row in met {
        let offers = row.profile_descriptions().into_iter();
        let line = |offer: String| format!("  {} x {}: {offer}", row.count, row.hardware);
        all.extend(offers.map(|offer| wrap(&line(offer), 4)));
    }
    (!all.is_empty()).then(|| lines(["matching profiles:".to_owned()].into_iter().chain(all)))
}

fn cells(
    row: &SloRow,
    (measured, with_profiles): (Option<&MeasuredRow>, bool),
    wanted: &SloObjectives,
) -> Vec<Cell> {
    let (word, style) =
        if row.misses.is_empty() { ("yes", Style::Good) } else { ("no", Style::Bad) };
    let here = if row.here.is_empty() { "no" } else { "yes" };
    let rate = measured.and_then(|of| of.requests_per_second);
    let latencies = wanted.latencies.iter().map(|(name, _)| {
        let had = measured.and_then(|of| of.figure(name));
        Cell::optional(had)
    });
    let profile = row.profiles.first();
    let named = profile.map(|one| match row.profiles.len().saturating_sub(1) {
        0 => one.key(),
        more => format!("{} +{more}", one.key()),
    });
    let free = profile.and_then(|one| one.available);
    let first = [
        Cell::plain(&row.hardware),
        Cell::plain(&row.count),
        Cell::optional(row.replicas),
        Cell::optional(row.cost()),
        Cell::plain(here),
    ];
    let of_profile = [Cell::optional(named), Cell::optional(free)];
    let figures = [Cell::new(word, style), Cell::optional(rate)];
    let of_profile = of_profile.into_iter().filter(|_| with_profiles);
    let all = first.into_iter().chain(of_profile).chain(figures);
    all.chain(latencies).collect()
}

#[cfg(test)]
mod tests {
    use octavo_fleet::slo::SloProfile;

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn evaluated_row(at: usize, hardware: &str, misses: &[&str]) -> SloRow {
        SloRow {
            row: at,
            hardware: hardware.to_owned(),
            types: vec![format!("acme-{hardware}").parse().unwrap()],
            here: vec![format!("acme-{hardware}").parse().unwrap()],
            count: 2,
            replicas: Some(3),
            per_hour: "1234.5".parse().ok(),
            currency: "USD".parse().ok(),
            misses: misses.iter().map(ToString::to_string).collect(),
            profiles: vec![SloProfile {
                namespace: "opendatahub".to_owned(),
                name: hardware.to_owned(),
                display_name: "Premium GPU".to_owned(),
                types: vec![format!("acme-{hardware}").parse().unwrap()],
                available: Some(4),
            }],
        }
    }

    #[test]
    fn table_has_requested_values_price_and_missed_objectives() {
        let mut unknown = evaluated_row(1, "b", &["unknown hardware"]);
        unknown.types.clear();
        unknown.here.clear();
        unknown.profiles.clear();
        unknown.per_hour = None;
        unknown.replicas = None;
        let answer = SloAnswer {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "SloAnswer".to_owned(),
            met: 1,
            items: vec![evaluated_row(0, "a", &[]), unknown],
            notices: Vec::new(),
        };
        let rows = r#"[{"hardware_type": "a", "hardware_count": 2, "requests_per_second": 4.5, "ttft_p90": 180.5},
            {"hardware_type": "b", "hardware_count": 2}]"#;
        let rows = parse(rows).unwrap().rows;
        let wanted = SloObjectives {
            requests_per_second: Some(10.0),
            latencies: vec![("ttft_p90".to_owned(), 300.0)],
            max_price: None,
            purchase: None,
        };
        let text = |format, headers| {
            let printed = OutputOptions { format, headers };
            table(&answer, (&rows, &wanted), printed, Colors::Off)
        };
        assert_eq!(
            text(FleetFormat::Table, Headers::Shown),
            "\
HARDWARE  DEVICES  REPLICAS  COST/H        IN FLEET  PROFILE        FREE  MET  REQ/S  TTFT_P90
a         2        3         1,234.50 USD  yes       opendatahub/a  4     yes  4.5    180.5
b         2        -         -             no        -              -     no   -      -

matching profiles:
  2 x a: Premium GPU (opendatahub/a) - 4 available - 1,234.50 USD/h - meets all

misses objectives:
  2 x b: unknown hardware
"
        );
        assert!(
            text(FleetFormat::Wide, Headers::Shown)
                .ends_with("possible types:\n  a: acme-a\n  b: unknown\n")
        );
        let bare = text(FleetFormat::Table, Headers::Hidden);
        assert!(bare.starts_with("a  2  3  1,234.50 USD"), "{bare}");
    }
}
