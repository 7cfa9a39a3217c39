//! Comparison of hardware profiles by estimates: a form, and a row per profile with time, cost, availability and
//! warnings.
//!
//! The workload is part of the page's address. If the engine does not answer, the table has no times and the page gives
//! the reason.

mod figures;

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::accelerator_resource::is_accelerator;
use octavo_fleet::access::Visibility;
use octavo_fleet::estimate::profile_devices::devices_of_profile;
use octavo_fleet::estimate::{DeviceGroup, EstimateRequest, EstimateRow, MAX_ITEMS};
use octavo_fleet::hardware_profile::FindingSeverity;
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_fleet::price::Amount;
use octavo_model::id::TypeName;
use octavo_store::estimates;
use octavo_store::slo::{allows_count, is_usable};

use self::figures::{ServiceLimits, WorstCase, cost};
use super::estimate::EstimateForm;
use super::{href, key, types};
use crate::address::query_parameter;
use crate::badges::printable;
use crate::filter_form::Choice;
use crate::frame::Frame;
use crate::{PageState, html, origin};

/// Maximum length of an objective repeated in the form, in characters.
const MAX_VALUE_CHARS: usize = 32;
/// Maximum number of warnings per profile.
const MAX_WARNINGS: usize = 4;

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    kinds: Vec<Choice>,
    precisions: Vec<Choice>,
    form: EstimateForm,
    /// Maximum time in days, or minimum speed in tokens per second.
    limit: String,
    budget: String,
    refused: Option<String>,
    /// Why no profile can be compared.
    nothing: Option<String>,
    table: Option<Table>,
    notice: Option<String>,
    origin: String,
}

/// Comparison of the profiles.
#[derive(Debug)]
struct Table {
    /// Why there are no times.
    reason: Option<String>,
    notices: Vec<String>,
    lines: Vec<ComparisonRow>,
    source: String,
    assumptions: Vec<String>,
}

/// Row of a profile.
#[derive(Debug)]
struct ComparisonRow {
    href: String,
    shown: String,
    key: String,
    types: String,
    count: String,
    figure: Option<String>,
    is_fastest: bool,
    cost: Option<String>,
    is_cheapest: bool,
    available: String,
    warnings: Vec<String>,
    /// Sort key of the row.
    rank: SortRank,
}

/// Estimates by type and count.
type Estimates<'a> = BTreeMap<(&'a TypeName, u32), &'a EstimateRow>;

/// Sort key: the worst value of all types of a profile.
#[derive(Debug, Clone, PartialEq)]
struct SortRank {
    misses: bool,
    cost: Option<Amount>,
    /// Seconds of the training, or seconds per token.
    time: Option<f64>,
}

/// Serves the page that `uri` requests.
pub(crate) async fn page(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let form = EstimateForm::of(&uri);
    let (limit, budget) = (parameter(&uri, "limit"), parameter(&uri, "budget"));
    let profiles = site.view.profiles();
    let report = profiles.recent_report(site.view.fleet()).await;
    let seen = report.visible_to(&visibility).map(|(row, _)| row);
    let all: Vec<&ProfileRow> = seen.filter(|row| offers_accelerators(row)).collect();
    let nothing = if !visibility.profiles {
        Some("Viewing hardware profiles requires permission to list hardwareprofiles.infrastructure.opendatahub.io.".to_owned())
    } else if all.is_empty() {
        Some("No enabled hardware profile without errors requests an accelerator.".to_owned())
    } else {
        None
    };
    let outcome = if nothing.is_some() || form.parameters.is_empty() {
        None
    } else {
        let limits = ServiceLimits::of(&limit, &budget);
        match limits {
            Ok(limits) => Some(table(&site, &visibility, (&form, &limits), &all).await),
            Err(why) => Some(Err(why)),
        }
    };
    let (table, refused) = match outcome {
        None => (None, None),
        Some(Ok(table)) => (Some(table), None),
        Some(Err(why)) => (None, Some(printable(&why))),
    };
    let (kinds, precisions) = form.choices();
    let page = ComparePage {
        frame: Frame::new(&site.view),
        kinds,
        precisions,
        form,
        limit,
        budget,
        refused,
        nothing,
        table,
        notice: site.view.profiles_notice(&visibility).map(|text| printable(&text)),
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &page)
}

fn parameter(uri: &Uri, name: &str) -> String {
    let value = query_parameter(uri, name).unwrap_or_default();
    value.trim().chars().take(MAX_VALUE_CHARS).collect()
}

/// Returns whether users can select the profile for workloads with accelerators.
fn offers_accelerators(row: &ProfileRow) -> bool {
    let mut all = row.identifiers.iter();
    is_usable(row) && all.any(|one| is_accelerator(&one.resource))
}

/// Estimates all profiles in one request.
async fn table(
    site: &PageState,
    visibility: &Visibility,
    (form, limits): (&EstimateForm, &ServiceLimits),
    profiles: &[&ProfileRow],
) -> Result<Table, String> {
    let count = form.devices()?;
    let workload = form.workload()?;
    let of_profiles: Vec<Result<Vec<DeviceGroup>, String>> = profiles
        .iter()
        .map(|row| devices_of_profile(row, count).map_err(|why| why.to_string()))
        .collect();
    let mut devices: Vec<DeviceGroup> = Vec::new();
    for one in of_profiles.iter().flatten().flatten() {
        if !devices.contains(one) {
            devices.push(one.clone());
        }
    }
    let more = devices.len().saturating_sub(MAX_ITEMS);
    devices.truncate(MAX_ITEMS);
    let request = EstimateRequest { workload, devices: Some(devices), purchase_option: None };
    let answer = estimates::estimate(&site.view, visibility, request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let lines = profiles.iter().zip(&of_profiles);
    let estimates: Estimates<'_> =
        { answer.items.iter() }.map(|one| ((&one.type_name, one.count), one)).collect();
    let lines = lines.map(|(row, devices)| ComparisonRow::of(row, devices, &estimates, limits));
    let mut lines: Vec<ComparisonRow> = lines.collect();
    rank_rows(&mut lines);
    let all =
        |texts: &[String]| -> Vec<String> { texts.iter().map(|text| printable(text)).collect() };
    let mut notices = all(&answer.notices);
    if more > 0 {
        notices.push(format!(
            "{more} more combinations of type and count have no estimate here: a request is limited to {MAX_ITEMS}"
        ));
    }
    Ok(Table {
        reason: answer.reason.as_deref().map(printable),
        notices,
        lines,
        source: printable(&answer.source),
        assumptions: all(&answer.assumptions),
    })
}

/// Sorts the rows and marks the cheapest and the fastest by their worst estimate, among those that have one.
fn rank_rows(lines: &mut [ComparisonRow]) {
    lines.sort_by(|one, other| {
        let (a, b) = (&one.rank, &other.rank);
        let by_cost =
            (a.misses, a.cost.is_none(), a.cost).cmp(&(b.misses, b.cost.is_none(), b.cost));
        let time = |rank: &SortRank| rank.time.unwrap_or(f64::INFINITY);
        by_cost.then_with(|| time(a).total_cmp(&time(b))).then_with(|| one.key.cmp(&other.key))
    });
    let cheapest = lines.iter().filter_map(|line| line.rank.cost).min();
    let times = lines.iter().filter_map(|line| line.rank.time);
    let fastest = times.min_by(f64::total_cmp);
    for line in lines {
        line.is_cheapest = cheapest.is_some() && line.rank.cost == cheapest;
        let time = line.rank.time.zip(fastest);
        line.is_fastest = time.is_some_and(|(time, fastest)| time <= fastest);
    }
}

impl ComparisonRow {
    fn of(
        row: &ProfileRow,
        devices: &Result<Vec<DeviceGroup>, String>,
        estimates: &Estimates<'_>,
        limits: &ServiceLimits,
    ) -> Self {
        let mut warnings = Vec::new();
        let found: Vec<&EstimateRow> = match devices {
            Ok(devices) => {
                let all = devices.iter();
                all.filter_map(|one| estimates.get(&(&one.type_name, one.count)).copied()).collect()
            }
            Err(why) => {
                warnings.push(why.clone());
                Vec::new()
            }
        };
        let is_whole = devices.as_ref().is_ok_and(|all| all.len() == found.len());
        let worst = WorstCase::of(&found).filter(|_| is_whole && !found.is_empty());
        let cost = cost(&found).filter(|_| is_whole);
        let span = cost.as_ref().map(|range| (range.low, range.high));
        let why_not = found.iter().filter_map(|one| one.why_not.clone());
        warnings.extend(why_not.take(1));
        let misses = limits.misses(worst.as_ref(), span);
        let is_missed = !misses.is_empty() || worst.is_none();
        warnings.extend(misses);
        warnings.extend(profile_warnings(row, devices.as_ref().ok()));
        if found.iter().any(|one| one.interpolated) {
            warnings.push("interpolated".to_owned());
        }
        warnings.truncate(MAX_WARNINGS);
        let count = devices.as_ref().ok().and_then(|all| all.first());
        Self {
            href: href(row),
            shown: printable(&row.display_name),
            key: printable(&key(row)),
            types: types(row),
            count: count.map_or_else(|| "-".to_owned(), |one| one.count.to_string()),
            figure: worst.map(WorstCase::words),
            is_fastest: false,
            is_cheapest: false,
            available: row.available.map_or_else(|| "unknown".to_owned(), |free| free.to_string()),
            warnings: warnings.iter().map(|text| printable(text)).collect(),
            rank: SortRank {
                misses: is_missed,
                cost: span.map(|(_, high)| high),
                time: worst.map(WorstCase::time),
            },
            cost: cost.map(|range| printable(&range.to_string())),
        }
    }
}

/// Warnings about a profile that do not depend on the workload.
fn profile_warnings(row: &ProfileRow, devices: Option<&Vec<DeviceGroup>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let count = devices.and_then(|all| all.first()).map(|one| one.count);
    let bounds = row.identifiers.iter();
    let mut bounds = bounds.filter(|one| is_accelerator(&one.resource));
    if let Some(one) = count.and_then(|count| bounds.find(|one| !allows_count(one, count.into()))) {
        let most = one.max.as_ref().map_or("unlimited", |most| most.text.as_str());
        warnings.push(format!("the profile allows {} to {most} devices", one.min));
    }
    if row.available == Some(0) {
        warnings.push("no capacity available".to_owned());
    }
    let findings = row.findings.iter().filter(|one| one.severity == FindingSeverity::Warning);
    warnings.extend(findings.map(|one| one.message.clone()));
    warnings
}
