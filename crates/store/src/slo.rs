//! Measured configurations that meet service objectives, with the hardware profiles that provide them.
//!
//! Shared by the API and the page. Measurements are joined to types, types to profiles, and profiles to available
//! devices.

use octavo_fleet::access::Visibility;
use octavo_fleet::estimate::profile_devices::devices_of_profile;
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_fleet::hardware_profile::{FindingSeverity, Identifier};
use octavo_fleet::matching::RequestError;
use octavo_fleet::slo::{SloAnswer, SloProfile, SloRequest};
use octavo_model::id::TypeName;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::view::{FleetView, PRICES_OUTDATED};

/// Maximum number of profiles per row; those with the most available devices are kept.
const MAX_PROFILES: usize = 16;

/// Error of evaluating objectives.
#[derive(Debug, Error)]
pub enum SloError {
    /// Invalid request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The evaluation panicked.
    #[error("the rows could not be evaluated because of an internal error; retry")]
    Panicked,
}

/// Evaluates the request, with hardware profiles if the reader is allowed to list them.
pub async fn evaluate_objectives(
    view: &FleetView,
    visibility: &Visibility,
    request: SloRequest,
) -> Result<SloAnswer, SloError> {
    request.validate()?;
    let prices = view.prices();
    let price_list = prices.prices;
    let listed = view.listed();
    let types = view.types(&listed, view.clock().now());
    let here: Vec<TypeName> =
        { types.iter() }.filter_map(|one| one.counts.type_name.clone()).collect();
    // Resolves names against the whole catalog, so it runs on a blocking thread.
    let judging = spawn_blocking(move || request.evaluate(price_list.as_ref(), &here));
    let mut answer = judging.await.map_err(|_ended| SloError::Panicked)?;
    let notice = prices.notice.map(|why| visibility.disclose(why, PRICES_OUTDATED));
    answer.notices.extend(notice);
    if visibility.profiles {
        let profiles = view.profiles();
        let all = profiles.recent_report(view.fleet()).await;
        let seen: Vec<&ProfileRow> = all.visible_to(visibility).map(|(row, _)| row).collect();
        for row in &mut answer.items {
            row.profiles = suitable_profiles(&row.types, row.count, &seen);
        }
        answer.notices.extend(view.profiles_notice(visibility));
    } else {
        answer.notices.extend(view.startup_notice(visibility));
        answer.notices.push(
            "hardware profiles are omitted: they require the permission to list hardwareprofiles.octavo.dev".to_owned(),
        );
    }
    Ok(answer)
}

/// Profiles that allow `count` devices of one of `types`, ordered by availability.
fn suitable_profiles(types: &[TypeName], count: u32, profiles: &[&ProfileRow]) -> Vec<SloProfile> {
    let all = profiles.iter().filter(|row| is_usable(row));
    let fitting = all.filter_map(|row| {
        let devices = devices_of_profile(row, Some(count)).ok()?;
        let is_allowed = row
            .identifiers
            .iter()
            .filter(|one| is_device(one))
            .all(|one| allows_count(one, count.into()));
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
    row.enabled && row.findings.iter().all(|one| one.severity != FindingSeverity::Error)
}

fn is_device(one: &Identifier) -> bool {
    octavo_fleet::accelerator_resource::is_accelerator(&one.resource)
}

/// Returns whether a workload may request this count. A bound that is not a number is ignored.
pub fn allows_count(one: &Identifier, count: u64) -> bool {
    let least = one.min.text.parse().unwrap_or(0);
    let most = one.max.as_ref().and_then(|most| most.text.parse().ok());
    (least..=most.unwrap_or(u64::MAX)).contains(&count)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::hardware_profile::{Count, HardwareProfile, Specs};

    use super::*;

    fn profile(name: &str, types: &[&str], available: Option<u64>) -> ProfileRow {
        let bare = HardwareProfile::default();
        let mut row = ProfileRow::new(&bare, (None, &[]), |_| Specs::default());
        row.name = name.to_owned();
        row.enabled = true;
        row.types = types.iter().map(|name| name.parse().unwrap()).collect();
        row.available = available;
        row.findings = Vec::new();
        row.identifiers = vec![Identifier {
            display_name: "GPU".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            min: Count::whole(1),
            max: Some(Count::whole(4)),
            default: Count::whole(1),
            resource_type: None,
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
        let names = |types: &[&str], count: u32| -> Vec<String> {
            let types: Vec<TypeName> = types.iter().map(|name| name.parse().unwrap()).collect();
            let found = suitable_profiles(&types, count, &rows).into_iter();
            found.map(|one| one.name).collect()
        };
        assert_eq!(names(&["a"], 2), ["free", "full", "queue"]);
        assert_eq!(names(&["a", "b"], 4), ["both", "free", "full", "queue"]);
        assert_eq!(names(&["a"], 5), Vec::<String>::new());
        assert_eq!(names(&[], 1), Vec::<String>::new());
    }
}
