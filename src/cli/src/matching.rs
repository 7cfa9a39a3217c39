//! `octavo match`: the aggregator's matches for a workload, as tables or as the original document.

use octavo_documents::matching::{FreeJson, MatchAnswer, MatchRequest, MatchRow, RefusalRow};
use octavo_documents::slo::{MeasuredRows, parse};
use octavo_fleet::matching::{OfferAvailability, Verdict};
use octavo_fleet::price::shown;

use super::client::{Client, RequestPath};
use super::style::Style;
use super::text::{Cell, columns, lines, printable, wrap};
use super::{CliError, Exit, Report, input, json, yaml};
use crate::settings::fleet::FleetFormat;
use crate::settings::matching::{MatchRequirements, MatchSettings};
use crate::settings::{Colors, Input};

/// Columns; those of [`PROFILE_COLUMNS`] are shown only if there is a profile.
const COLUMNS: [&str; 9] = [
    "RANK",
    "NAME",
    "TYPE",
    "RESOURCE",
    "COUNT",
    "STANDING",
    "FREE",
    "ON ONE NODE",
    "COST/H",
];
const PROFILE_COLUMNS: [&str; 2] = ["TYPE", "RESOURCE"];

/// Runs `octavo match`.
pub(super) async fn matching(settings: &MatchSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::new(&settings.server)?;
    let target = RequestPath::new("/api/v1/match");
    let (request, unread) = request(&settings.requirements)?;
    let answer: MatchAnswer = client.post(&target, &request).await?;
    let printed = settings.output;
    let mut notes: Vec<String> = answer.notices.iter().map(|text| note(text)).collect();
    notes.extend(unread.map(note));
    let output = match printed.format {
        FleetFormat::Json => json(&answer)?,
        FleetFormat::Yaml => yaml(&answer)?,
        FleetFormat::Name => lines(answer.matches.iter().map(|row| printable(&row.name))),
        FleetFormat::Table | FleetFormat::Wide => {
            notes.push(note(&answer.summary));
            table(&answer, printed.format, printed.with_headers(), colors)
        }
    };
    Ok(Report {
        output,
        notes: lines(notes),
        exit: exit(&answer),
    })
}

fn note(text: &str) -> String {
    format!("note: {}", printable(text))
}

/// An unknown verdict is from a newer aggregator; success cannot be assumed.
fn exit(answer: &MatchAnswer) -> Exit {
    match answer.verdict.as_str() {
        word if word == Verdict::FitsNow.as_str() => Exit::Done,
        word if word == Verdict::NothingFits.as_str() => Exit::Infeasible,
        _ => Exit::Blocked,
    }
}

/// Builds the request, and the note on measured rows that were not read.
fn request(wish: &MatchRequirements) -> Result<(MatchRequest, Option<&'static str>), CliError> {
    let measured = wish.performance.as_ref().map(performance).transpose()?;
    let unread = measured
        .as_ref()
        .and_then(MeasuredRows::unread_pages_notice);
    let request = MatchRequest {
        performance: measured.map(|found| found.rows).unwrap_or_default(),
        count: wish.count,
        memory_per_device_at_least: wish.memory.clone(),
        memory_total_at_least: wish.total_memory.clone(),
        architecture_at_least: wish.architecture.clone(),
        compute_capability_at_least: wish.compute_capability.clone(),
        preferred: wish.preferred.clone(),
        interconnect: wish.interconnect.clone(),
        isolation: wish.isolation.clone(),
        price_at_most_per_hour: wish.max_price.clone(),
        purchase_option: wish.purchase.clone(),
    };
    Ok((request, unread))
}

fn performance(from: &Input) -> Result<MeasuredRows, CliError> {
    let text = input::rows(from)?;
    parse(&text).map_err(|source| CliError::Rows {
        place: input::place(from),
        source,
    })
}

/// Formats the matches, their reasons and warnings, then what does not fit.
fn table(answer: &MatchAnswer, format: FleetFormat, headers: bool, colors: Colors) -> String {
    let has_profiles = answer.matches.iter().any(|row| row.profile.is_some());
    let is_shown = |name: &str| has_profiles || !PROFILE_COLUMNS.contains(&name);
    let picked = |cells: Vec<Cell>| -> Vec<Cell> {
        let named = COLUMNS.iter().zip(cells);
        let shown = named.filter(|(name, _)| is_shown(name));
        shown.map(|(_, cell)| cell).collect()
    };
    let rows = answer.matches.iter().map(|row| picked(of_match(row)));
    if !headers {
        return columns(&rows.collect::<Vec<_>>(), colors);
    }
    let mut parts = Vec::new();
    if !answer.matches.is_empty() {
        let header = COLUMNS.map(|name| Cell::new(name, Style::Strong)).to_vec();
        let rows: Vec<Vec<Cell>> = [picked(header)].into_iter().chain(rows).collect();
        parts.push(columns(&rows, colors));
    }
    let told = answer.matches.iter().map(|row| told(row, format));
    let told: String = told.collect();
    if !told.is_empty() {
        parts.push(told);
    }
    if !answer.refused.is_empty() {
        parts.push(refused(&answer.refused));
    }
    parts.join("\n")
}

fn of_match(row: &MatchRow) -> Vec<Cell> {
    let ink = match row.standing.as_str() {
        word if word == OfferAvailability::Free.as_str() => Style::Good,
        word if word == OfferAvailability::Taken.as_str() => Style::Bad,
        _ => Style::Warning,
    };
    let (free, on_one) = match row.free {
        Some(FreeJson { total, on_one_node }) => {
            (format!("{total}/{}", row.total), on_one_node.to_string())
        }
        None => (format!("?/{}", row.total), "?".to_owned()),
    };
    let cost = row.cost.as_ref().map_or_else(
        || "-".to_owned(),
        |cost| format!("{} {}", shown(&cost.per_hour), cost.currency),
    );
    let types: Vec<&str> = [&row.type_name]
        .into_iter()
        .chain(&row.other_types)
        .map(String::as_str)
        .collect();
    vec![
        Cell::plain(&row.rank.to_string()),
        Cell::plain(&row.name),
        Cell::plain(&types.join(",")),
        Cell::plain(row.resource.as_deref().unwrap_or("-")),
        Cell::plain(&row.count.to_string()),
        Cell::new(&row.standing, ink),
        Cell::plain(&free),
        Cell::plain(&on_one),
        Cell::plain(&cost),
    ]
}

/// Formats the reasons of the best match, or of all in the wide table, and the warnings of each.
fn told(row: &MatchRow, format: FleetFormat) -> String {
    let with_reasons = row.rank == 1 || format == FleetFormat::Wide;
    let reasons = row.reasons.iter().filter(|_| with_reasons);
    let reasons = reasons.map(|text| format!("  {text}"));
    let warnings = row.warnings.iter().map(|text| format!("  warning: {text}"));
    let said: Vec<String> = reasons.chain(warnings).map(|text| wrap(&text, 4)).collect();
    if said.is_empty() {
        String::new()
    } else {
        let shown = row.profile.as_ref().map(|profile| &profile.display_name);
        let shown = shown.map(|name| format!(" ({})", printable(name)));
        let name = printable(&row.name);
        lines(
            [format!("{name}{}:", shown.unwrap_or_default())]
                .into_iter()
                .chain(said),
        )
    }
}

fn refused(rows: &[RefusalRow]) -> String {
    let said = rows.iter().map(|row| {
        let text = format!("  {}: {}", row.name, row.why.join("; "));
        wrap(&text, 4)
    });
    lines(["does not fit:".to_owned()].into_iter().chain(said))
}

#[cfg(test)]
mod tests {
    use octavo_documents::matching::{CostJson, PickedJson};

    use super::*;

    fn answer() -> MatchAnswer {
        let row = |rank, name: &str, standing: &str| MatchRow {
            rank,
            name: name.to_owned(),
            profile: None,
            type_name: name.to_owned(),
            other_types: Vec::new(),
            resource: None,
            tokens_per_second: None,
            shape: "whole".to_owned(),
            count: 2,
            standing: standing.to_owned(),
            memory_bytes: None,
            architecture: None,
            total: 8,
            free: None,
            could_become: None,
            cost: None,
            reasons: vec!["it is large".to_owned()],
            warnings: Vec::new(),
        };
        let mut best = row(1, "acme-x", "free");
        best.free = Some(FreeJson {
            total: 5,
            on_one_node: 3,
        });
        best.cost = Some(CostJson {
            per_hour: "12.50".to_owned(),
            currency: "USD".to_owned(),
            purchase_option: "spot".to_owned(),
        });
        let mut second = row(2, "acme-y", "unknown");
        second.warnings = vec!["acme-y instead of the preferred acme-x".to_owned()];
        MatchAnswer {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "MatchAnswer".to_owned(),
            revision: 1,
            verdict: "fits-now".to_owned(),
            summary: "2 x acme-x fits and is free".to_owned(),
            free_by: "agents".to_owned(),
            matches: vec![best, second],
            refused: vec![RefusalRow {
                name: "acme\u{1b}-z".to_owned(),
                why: vec!["too small".to_owned(), "too dear".to_owned()],
            }],
            notices: Vec::new(),
        }
    }

    #[test]
    fn table_has_matches_reasons_and_rejections() {
        let text = |format, headers| table(&answer(), format, headers, Colors::Off);
        assert_eq!(
            text(FleetFormat::Table, true),
            "\
RANK  NAME    COUNT  STANDING  FREE  ON ONE NODE  COST/H
1     acme-x  2      free      5/8   3            12.50 USD
2     acme-y  2      unknown   ?/8   ?            -

acme-x:
  it is large
acme-y:
  warning: acme-y instead of the preferred acme-x

does not fit:
  acme�-z: too small; too dear
"
        );
        assert_eq!(
            text(FleetFormat::Table, false),
            "1  acme-x  2  free     5/8  3  12.50 USD\n2  acme-y  2  unknown  ?/8  ?  -\n"
        );
        assert!(text(FleetFormat::Wide, true).contains("acme-y:\n  it is large\n  warning"));
    }

    #[test]
    fn profile_match_shows_type_and_resource() {
        let mut answer = answer();
        answer.refused.clear();
        let best = &mut answer.matches[0];
        best.name = "team/large".to_owned();
        best.profile = Some(PickedJson {
            namespace: "team".to_owned(),
            name: "large".to_owned(),
            display_name: "Large GPU".to_owned(),
            min: 1,
            max: Some(4),
        });
        best.other_types = vec!["acme-z".to_owned()];
        best.resource = Some("acme.com/gpu".to_owned());
        assert_eq!(
            table(&answer, FleetFormat::Table, true, Colors::Off),
            "\
RANK  NAME        TYPE           RESOURCE      COUNT  STANDING  FREE  ON ONE NODE  COST/H
1     team/large  acme-x,acme-z  acme.com/gpu  2      free      5/8   3            12.50 USD
2     acme-y      acme-y         -             2      unknown   ?/8   ?            -

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
            let answer = MatchAnswer {
                verdict: verdict.to_owned(),
                ..answer()
            };
            exit(&answer).code()
        };
        let codes = [
            "fits-now",
            "nothing-free",
            "nothing-fits",
            "of-a-newer-kind",
        ]
        .map(code);
        assert_eq!(codes, [0, 4, 5, 4]);
    }
}
