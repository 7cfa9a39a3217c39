//! `octavo match`: the aggregator's matches for a workload, as tables or as the original document.

use octavo_client::{Client, RequestPath};
use octavo_files::measured_rows::{MeasuredRows, parse};
use octavo_fleet::matching::{
    FreeUnits, Match, MatchAnswer, MatchOutcome, MatchRequest, OfferAvailability, Refusal,
};
use octavo_model::id::TypeName;

use super::output::render;
use super::style::Style;
use super::text::{self, Cell, lines, printable, wrap};
use super::{CliError, Exit, Report, input};
use crate::settings::fleet::OutputOptions;
use crate::settings::matching::{MatchRequirements, MatchSettings};
use crate::settings::{Colors, Input};

/// Columns; those of [`PROFILE_COLUMNS`] are shown only if there is a profile.
const COLUMNS: [&str; 9] =
    ["RANK", "NAME", "TYPE", "RESOURCE", "COUNT", "STATUS", "FREE", "ON ONE NODE", "COST/H"];
const PROFILE_COLUMNS: [&str; 2] = ["TYPE", "RESOURCE"];

/// Runs `octavo match`.
pub(super) async fn matching(settings: &MatchSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let target = RequestPath::new("/api/v1/match");
    let (request, unread) = request(&settings.requirements)?;
    let answer: MatchAnswer = client.post(&target, &request).await?;
    let printed = settings.output;
    let mut notes: Vec<&str> = answer.notices.iter().map(String::as_str).collect();
    notes.extend(unread);
    if printed.is_table() {
        notes.push(&answer.summary);
    }
    let names = answer.matches.iter().map(|row| row.name.as_str());
    let output = render(printed.format, &answer, names, || table(&answer, printed, colors))?;
    Ok(Report::with_notes(output, &notes, exit(&answer)))
}

/// An unknown outcome is from a newer aggregator; success cannot be assumed.
fn exit(answer: &MatchAnswer) -> Exit {
    match answer.verdict.known() {
        Some(MatchOutcome::FitsNow) => Exit::Done,
        Some(MatchOutcome::NothingFits) => Exit::Infeasible,
        Some(MatchOutcome::NothingFree) | None => Exit::Blocked,
    }
}

/// Builds the request, and the note on measured rows that were not read.
fn request(request: &MatchRequirements) -> Result<(MatchRequest, Option<&'static str>), CliError> {
    let measured = request.performance.as_ref().map(performance).transpose()?;
    let unread = measured.as_ref().and_then(MeasuredRows::unread_pages_notice);
    let request = MatchRequest {
        performance: measured.map(|found| found.rows).unwrap_or_default(),
        count: request.count,
        memory_per_device_at_least: request.memory.clone(),
        memory_total_at_least: request.total_memory.clone(),
        architecture_at_least: request.architecture.clone(),
        compute_capability_at_least: request.compute_capability.clone(),
        preferred: request.preferred.clone(),
        interconnect: request.interconnect,
        isolation: request.isolation,
        price_at_most_per_hour: request.max_price,
        purchase_option: request.purchase,
    };
    Ok((request, unread))
}

fn performance(from: &Input) -> Result<MeasuredRows, CliError> {
    let text = input::text(from, "rows")?;
    parse(&text).map_err(|source| CliError::document("rows", input::place(from), source))
}

/// Formats the matches, their reasons and warnings, then what does not fit.
fn table(answer: &MatchAnswer, printed: OutputOptions, colors: Colors) -> String {
    let has_profiles = answer.matches.iter().any(|row| row.profile.is_some());
    let is_shown = |name: &str| has_profiles || !PROFILE_COLUMNS.contains(&name);
    let names: Vec<&str> = COLUMNS.into_iter().filter(|name| is_shown(name)).collect();
    let rows = answer.matches.iter().map(|row| {
        let cells = COLUMNS.iter().zip(of_match(row)).filter(|(name, _)| is_shown(name));
        cells.map(|(_, cell)| cell).collect()
    });
    let rows = text::table(&[&names], rows, printed.headers, colors);
    if !printed.with_headers() {
        return rows;
    }
    let mut parts = Vec::new();
    if !answer.matches.is_empty() {
        parts.push(rows);
    }
    let details = answer.matches.iter().map(|row| details(row, printed.is_wide()));
    let details: String = details.collect();
    if !details.is_empty() {
        parts.push(details);
    }
    if !answer.refused.is_empty() {
        parts.push(refused(&answer.refused));
    }
    parts.join("\n")
}

fn of_match(row: &Match) -> Vec<Cell> {
    let style = match row.availability.known() {
        Some(OfferAvailability::Free) => Style::Good,
        Some(OfferAvailability::AfterChange | OfferAvailability::Unknown) | None => Style::Warning,
        Some(OfferAvailability::Taken) => Style::Bad,
    };
    let (free, on_one) = match row.free {
        Some(FreeUnits { total, on_one_node }) => {
            (format!("{total}/{}", row.total), on_one_node.to_string())
        }
        None => (format!("?/{}", row.total), "?".to_owned()),
    };
    let cost = row.cost.as_ref();
    let cost = cost.map(|cost| format!("{} {}", cost.per_hour.shown(), cost.currency));
    let types: Vec<&str> =
        [&row.type_name].into_iter().chain(&row.other_types).map(TypeName::as_str).collect();
    vec![
        Cell::plain(&row.rank),
        Cell::plain(&row.name),
        Cell::plain(&types.join(",")),
        Cell::optional(row.resource.as_deref()),
        Cell::plain(&row.count),
        Cell::new(row.availability.as_str(), style),
        Cell::plain(&free),
        Cell::plain(&on_one),
        Cell::optional(cost),
    ]
}

/// Formats the reasons of the best match, or of all in the wide table, and the warnings of each.
fn details(row: &Match, is_wide: bool) -> String {
    let with_reasons = row.rank == 1 || is_wide;
    let reasons = row.reasons.iter().filter(|_| with_reasons);
    let reasons = reasons.map(|text| format!("  {text}"));
    let warnings = row.warnings.iter().map(|text| format!("  warning: {text}"));
    let details: Vec<String> = reasons.chain(warnings).map(|text| wrap(&text, 4)).collect();
    if details.is_empty() {
        String::new()
    } else {
        let shown = row.profile.as_ref().map(|profile| &profile.display_name);
        let shown = shown.map(|name| format!(" ({})", printable(name)));
        let name = printable(&row.name);
        lines([format!("{name}{}:", shown.unwrap_or_default())].into_iter().chain(details))
    }
}

fn refused(rows: &[Refusal]) -> String {
    let rows = rows.iter().map(|row| {
        let text = format!("  {}: {}", row.name, row.why.join("; "));
        wrap(&text, 4)
    });
    lines(["does not fit:".to_owned()].into_iter().chain(rows))
}

#[cfg(test)]
mod tests {
    use octavo_fleet::matching::ProfileInfo;
    use octavo_model::reported::Reported;
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn document() -> Value {
        json!({
            "apiVersion": "octavo.dev/v1",
            "kind": "MatchAnswer",
            "revision": 1,
            "verdict": "fits-now",
            "summary": "2 x acme-x fits and is free",
            "freeBy": "agents",
            "matches": [
                {
                    "rank": 1, "name": "acme-x", "type": "acme-x", "shape": "whole", "count": 2, "availability": "free",
                    "total": 8, "free": {"total": 5, "onOneNode": 3},
                    "cost": {"perHour": "12.50", "currency": "USD", "purchaseOption": "spot"},
                    "reasons": ["it is large"]
                },
                {
                    "rank": 2, "name": "acme-y", "type": "acme-y", "shape": "whole", "count": 2, "availability": "unknown",
                    "total": 8, "reasons": ["it is large"],
                    "warnings": ["acme-y instead of the preferred acme-x"]
                }
            ],
            "refused": [{"name": "acme\u{1b}-z", "why": ["too small", "too dear"]}]
        })
    }

    fn answer() -> MatchAnswer {
        serde_json::from_value(document()).unwrap()
    }

    #[test]
    fn table_has_matches_reasons_and_rejections() {
        let text =
            |format, headers| table(&answer(), OutputOptions { format, headers }, Colors::Off);
        assert_eq!(
            text(FleetFormat::Table, Headers::Shown),
            "\
RANK  NAME    COUNT  STATUS   FREE  ON ONE NODE  COST/H
1     acme-x  2      free     5/8   3            12.50 USD
2     acme-y  2      unknown  ?/8   ?            -

acme-x:
  it is large
acme-y:
  warning: acme-y instead of the preferred acme-x

does not fit:
  acme�-z: too small; too dear
"
        );
        assert_eq!(
            text(FleetFormat::Table, Headers::Hidden),
            "1  acme-x  2  free     5/8  3  12.50 USD\n2  acme-y  2  unknown  ?/8  ?  -\n"
        );
        assert!(
            text(FleetFormat::Wide, Headers::Shown).contains("acme-y:\n  it is large\n  warning")
        );
    }

    #[test]
    fn profile_match_shows_type_and_resource() {
        let mut answer = answer();
        answer.refused.clear();
        let best = &mut answer.matches[0];
        best.name = "team/large".to_owned();
        best.profile = Some(ProfileInfo {
            namespace: "team".to_owned(),
            name: "large".to_owned(),
            display_name: "Large GPU".to_owned(),
            min: 1,
            max: Some(4),
        });
        best.other_types = vec!["acme-z".parse().unwrap()];
        best.resource = Some("acme.com/gpu".to_owned());
        let printed = OutputOptions { format: FleetFormat::Table, headers: Headers::Shown };
        assert_eq!(
            table(&answer, printed, Colors::Off),
            "\
RANK  NAME        TYPE           RESOURCE      COUNT  STATUS   FREE  ON ONE NODE  COST/H
1     team/large  acme-x,acme-z  acme.com/gpu  2      free     5/8   3            12.50 USD
2     acme-y      acme-y         -             2      unknown  ?/8   ?            -

team/large (Large GPU):
  it is large
acme-y:
  warning: acme-y instead of the preferred acme-x
"
        );
    }

    #[test]
    fn exit_code_follows_verdict() {
        let code = |verdict: &str| {
            let answer = MatchAnswer { verdict: Reported::parse(verdict), ..answer() };
            exit(&answer).code()
        };
        let codes = ["fits-now", "nothing-free", "nothing-fits", "of-a-newer-kind"].map(code);
        assert_eq!(codes, [0, 4, 5, 4]);
    }
}
