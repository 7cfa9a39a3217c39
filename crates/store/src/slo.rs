//! Measured configurations that meet service objectives, with the hardware profiles that provide them.
//!
//! Shared by the API and the page. Measurements are joined to types, types to profiles, and profiles to available
//! devices.

use octavo_documents::estimates::devices_of_profile;
use octavo_documents::hardware_profiles::document::{IdentifierJson, ProfileRow};
use octavo_documents::slo::{SloAnswer, SloProfile, SloRequest, rows};
use octavo_fleet::access::Sight;
use octavo_fleet::matching::RequestError;
use octavo_fleet::slo::{Objectives, evaluate};
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::estimates::PRICES_OUTDATED;
use super::view::View;

/// Maximum number of profiles per row; those with the most available devices are kept.
const MAX_PROFILES: usize = 16;

/// Error of evaluating objectives.
#[derive(Debug, Error)]
pub enum SloError {
    /// Invalid request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The evaluation panicked.
    #[error("the rows could not be judged; try again")]
    Panicked,
}

/// Evaluates the request, with hardware profiles if the reader is allowed to list them.
pub async fn evaluate_objectives(
    view: &View,
    sight: &Sight,
    asked: SloRequest,
) -> Result<SloAnswer, SloError> {
    let wanted = Objectives::try_from(asked.objectives)?;
    let measured = rows(asked.rows)?;
    let prices = view.prices();
    // Resolves names against the whole catalog, so it runs on a blocking thread.
    let book = prices.book.clone();
    let judging = spawn_blocking(move || {
        let judged = evaluate(&measured, &wanted, book.as_deref());
        (measured, judged)
    });
    let (measured, judged) = judging.await.map_err(|_ended| SloError::Panicked)?;
    let listed = view.listed();
    let types = view.types(&listed, view.clock().now());
    let named = types.iter().filter_map(|one| one.counts.type_name.as_ref());
    let here: Vec<String> = named.map(ToString::to_string).collect();
    let currency = prices.book.as_deref().map(|book| book.currency().clone());
    let mut answer = SloAnswer::new(&measured, judged, (&here, currency.as_ref()));
    let notice = prices.notice.map(|why| sight.told(why, PRICES_OUTDATED));
    answer.notices.extend(notice);
    if sight.profiles {
        let profiles = view.profiles();
        let all = profiles.judged(view.fleet()).await;
        let seen: Vec<&ProfileRow> = all.visible_to(sight).map(|(row, _)| row).collect();
        for row in &mut answer.items {
            row.profiles = suitable_profiles(&row.types, row.count.into(), &seen);
        }
        answer.notices.extend(view.profiles_notice(sight));
    } else {
        answer.notices.extend(view.startup_notice(sight));
        answer.notices.push(
            "hardware profiles are named to users who may list hardwareprofiles.infrastructure.opendatahub.io".to_owned(),
        );
    }
    Ok(answer)
}

/// Profiles that allow `count` devices of one of `types`, ordered by availability.
fn suitable_profiles(types: &[String], count: u64, profiles: &[&ProfileRow]) -> Vec<SloProfile> {
    let all = profiles.iter().filter(|row| is_usable(row));
    let fitting = all.filter_map(|row| {
        let devices = devices_of_profile(row, Some(count)).ok()?;
        let is_allowed = row
            .identifiers
            .iter()
            .filter(|one| is_device(one))
            .all(|one| allows_count(one, count));
        // A workload may be placed on any of the profile's types.
        let is_of_types = devices.iter().all(|one| types.contains(&one.type_name));
        (is_allowed && is_of_types).then(|| SloProfile {
            namespace: row.namespace.clone(),
            name: row.name.clone(),
            display_name: row.display_name.clone(),
            types: row.types.clone(),
            available: row.available,
        })
    });
    let mut all: Vec<SloProfile> = fitting.collect();
    all.sort_by(|one, other| {
        let order = other.available.cmp(&one.available);
        order.then_with(|| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
    });
    all.truncate(MAX_PROFILES);
    all
}

/// Returns whether the profile can be selected and has no errors.
pub fn is_usable(row: &ProfileRow) -> bool {
    row.enabled && row.findings.iter().all(|one| one.gravity != "error")
}

fn is_device(one: &IdentifierJson) -> bool {
    octavo_fleet::accelerator_resource::is_accelerator(&one.identifier)
}

/// Returns whether a workload may request this count. A bound that is not a number is ignored.
pub fn allows_count(one: &IdentifierJson, count: u64) -> bool {
    let least = one.min.parse().unwrap_or(0);
    let most = one.max.as_deref().and_then(|most| most.parse().ok());
    (least..=most.unwrap_or(u64::MAX)).contains(&count)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::hardware_profile::{HardwareProfile, Specs};

    use super::*;

    fn profile(name: &str, types: &[&str], available: Option<u64>) -> ProfileRow {
        let bare = HardwareProfile::default();
        let mut row = ProfileRow::new(&bare, (None, &[]), |_| Specs::default());
        row.name = name.to_owned();
        row.enabled = true;
        row.types = types.iter().map(ToString::to_string).collect();
        row.available = available;
        row.findings = Vec::new();
        row.identifiers = vec![IdentifierJson {
            display_name: "GPU".to_owned(),
            identifier: "nvidia.com/gpu".to_owned(),
            min: "1".to_owned(),
            max: Some("4".to_owned()),
            default: "1".to_owned(),
        }];
        row
    }

    #[test]
    fn req_003_row_lists_profiles_that_provide_its_devices_by_availability() {
        let mut disabled = profile("disabled", &["a"], Some(9));
        disabled.enabled = false;
        let rows = [
            profile("full", &["a"], Some(0)),
            profile("queue", &["a"], None),
            profile("free", &["a"], Some(4)),
            profile("both", &["a", "b"], Some(9)),
            profile("other", &["c"], Some(9)),
            disabled,
        ];
        let rows: Vec<&ProfileRow> = rows.iter().collect();
        let names = |types: &[&str], count: u64| -> Vec<String> {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            let found = suitable_profiles(&types, count, &rows).into_iter();
            found.map(|one| one.name).collect()
        };
        assert_eq!(names(&["a"], 2), ["free", "full", "queue"]);
        assert_eq!(names(&["a", "b"], 4), ["both", "free", "full", "queue"]);
        assert_eq!(names(&["a"], 5), Vec::<String>::new());
        assert_eq!(names(&[], 1), Vec::<String>::new());
    }
}
