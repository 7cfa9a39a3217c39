//! Hardware profiles, checked against the fleet and its cluster.
//!
//! ```text
//!  cluster's objects, or a file --+
//!  watched nodes and pods --------+--> checked, at most once a second --> rest, command line
//!  agents: types of nodes --------+
//! ```
//!
//! Checking some hundred profiles against some thousand nodes takes a while, so it runs on a blocking thread.
//! Concurrent requests receive the previous result or, if that one is too old, wait for the new one. Agents are never
//! delayed.

mod targets;
mod types;

use std::sync::Arc;
use std::time::Duration;

use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_fleet::hardware_profile::document::{ProfileRow, ProfileSource};
use octavo_fleet::hardware_profile::{
    CandidateNode, ClusterContext, Draft, DraftError, DraftRequest, HardwareProfile, LocalQueues,
    ProfileAnnotations, ProfileKey, ProfileKind, Specs, check_profile, draft,
};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::{Presence, Profiles as Known};
use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};

pub use self::targets::ProfileTargets;
use self::types::{min_memory_by_type, types};
use super::fleet::Fleet;
use super::stale_while_revalidate::{Cached, Freshness, StaleWhileRevalidate};

/// Minimum interval between checks, because a cluster changes all the time.
pub const AGAIN: Duration = Duration::from_secs(1);
/// Maximum age of a result that is returned while a new one is computed, unless profiles themselves have changed.
const MEANWHILE: Duration = Duration::from_secs(3);
/// Age from which the state of the cluster is reported as old.
const OUTDATED_AFTER: Duration = Duration::from_mins(1);

/// Sources of profiles and the state they are checked against. Without any source, there are no profiles.
#[derive(Debug, Default)]
pub struct Profiles {
    sources: Arc<Sources>,
    reports: StaleWhileRevalidate<WithInputs<ProfileReport>>,
    targets: StaleWhileRevalidate<WithInputs<Vec<ProfileTargets>>>,
}

#[derive(Debug, Default)]
struct Sources {
    known: Option<watch::Receiver<Arc<Known>>>,
    watched: Option<watch::Receiver<Arc<WatchedCluster>>>,
    file: Option<HardwareProfileFile>,
}

/// Result with its inputs.
type WithInputs<T> = (ProfileInputs, Arc<T>);

/// Inputs of a check.
#[derive(Debug, Clone)]
struct ProfileInputs {
    fleet: Fleet,
    known: Option<Arc<Known>>,
    snapshot: Option<Arc<ClusterSnapshot>>,
    file: Option<Arc<Vec<HardwareProfile>>>,
}

/// Profiles with their reachable nodes and findings.
#[derive(Debug, Default, PartialEq)]
pub struct ProfileReport {
    /// Increases when the result changes.
    pub revision: u64,
    /// Source of the profiles.
    pub source: ProfileSource,
    /// Profiles by namespace and name.
    pub profiles: Vec<(ProfileRow, ProfileAnnotations)>,
}

/// The destinations of profiles are not available because computing them failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetsUnavailable;

/// Reason why no draft was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileDraftError {
    /// No cluster is watched, or it was not read yet; contains the reason.
    NoCluster(String),
    /// The wish cannot be satisfied.
    Refused(DraftError),
}

impl Profiles {
    /// Creates a view of profiles from a cluster, a file, or both, checked against the watched cluster.
    pub fn new(
        known: Option<watch::Receiver<Arc<Known>>>,
        watched: Option<watch::Receiver<Arc<WatchedCluster>>>,
        file: Option<HardwareProfileFile>,
    ) -> Self {
        Self {
            sources: Arc::new(Sources { known, watched, file }),
            reports: StaleWhileRevalidate::default(),
            targets: StaleWhileRevalidate::default(),
        }
    }

    /// Returns all profiles as checked now or a moment ago.
    pub async fn recent_report(&self, fleet: Fleet) -> Arc<ProfileReport> {
        self.report_if(fleet, |fit| fit).await
    }

    /// Like [`recent_report`](Self::recent_report), but waits for a fresh result instead of returning a recent one; for
    /// reactions to a change.
    pub async fn latest_report(&self, fleet: Fleet) -> Arc<ProfileReport> {
        self.report_if(fleet, Freshness::require_fresh).await
    }

    async fn report_if(
        &self,
        fleet: Fleet,
        tolerance: fn(Freshness) -> Freshness,
    ) -> Arc<ProfileReport> {
        let of = (&self.sources, fleet, tolerance);
        let report = get_or_compute(&self.reports, of, ProfileInputs::report_after).await;
        // An older result is better than none.
        let before = || Some(self.reports.last(|_| true)?.1);
        report.ok().or_else(before).unwrap_or_default()
    }

    /// Destinations of profiles for accelerators; `None` without a source of profiles.
    pub async fn targets(
        &self,
        fleet: Fleet,
    ) -> Result<Option<Arc<Vec<ProfileTargets>>>, TargetsUnavailable> {
        let grounds = self.sources.inputs(fleet.clone());
        if grounds.source() == ProfileSource::Nowhere {
            return Ok(None);
        }
        let of = (&self.sources, fleet, (|fit| fit) as fn(Freshness) -> Freshness);
        let led = get_or_compute(&self.targets, of, |of, _| Arc::new(of.led()));
        led.await.map(Some).map_err(|_ended| TargetsUnavailable)
    }

    /// Why the profiles may be out of date, limited by the reader's visibility; `None` if they are current.
    pub fn notice(&self, visibility: &Visibility) -> Option<String> {
        let mut notices: Vec<String> = Vec::new();
        if let Some(known) = &self.sources.known {
            let known = known.borrow();
            let troubles = known.errors.iter();
            notices.extend(troubles.map(|(what, why)| {
                let ours = format!("data about {what} may be outdated");
                visibility.disclose(format!("{what}: {why}"), &ours)
            }));
            if !known.is_read() && known.errors.is_empty() {
                notices
                    .push("the hardware profiles of the cluster have not been read yet".to_owned());
            }
        }
        notices.extend(self.cluster_notice(visibility));
        let file = self.sources.file.as_ref();
        let of_file = file.and_then(|file| file.current().1);
        let of_file = of_file
            .map(|why| visibility.disclose(why, "the hardware profiles file cannot be read"));
        notices.extend(of_file);
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Reason why the nodes and pods of the cluster may be out of date, limited by the reader's visibility; `None` if
    /// they are current, or not watched.
    pub fn cluster_notice(&self, visibility: &Visibility) -> Option<String> {
        let watched = self.sources.watched.as_ref()?.borrow();
        let is_old = watched.current_at.is_some_and(|at| at.elapsed() > OUTDATED_AFTER);
        match (&watched.error, is_old) {
            (Some(why), _) => Some(
                visibility
                    .disclose(why.clone(), "the nodes and pods of the cluster cannot be read"),
            ),
            (None, true) => Some(
                "the API server has not sent an update for more than a minute: availability may be outdated".to_owned(),
            ),
            (None, false) => None,
        }
    }

    /// Snapshot of the watched cluster, for requesters who may list nodes.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub fn cluster(&self) -> Result<Arc<ClusterSnapshot>, String> {
        let watched = self.sources.watched.as_ref().ok_or_else(|| {
            "the cluster is not watched; start the aggregator with --follow-cluster".to_owned()
        })?;
        let watched = watched.borrow();
        let is_read = watched.current_at.is_some();
        is_read.then(|| Arc::clone(&watched.snapshot)).ok_or_else(|| {
            watched
                .error
                .clone()
                .unwrap_or_else(|| "the cluster was not read yet; retry".to_owned())
        })
    }

    /// Profile in the cluster with the name of a new one.
    pub fn known(&self, key: &ProfileKey) -> Option<Arc<HardwareProfile>> {
        let known = self.sources.known.as_ref()?.borrow();
        let found = known.all.get(&(ProfileKind::Hardware, key.clone()));
        found.map(Arc::clone)
    }

    /// Drafts a new profile that satisfies `request`.
    pub async fn draft(
        &self,
        fleet: Fleet,
        mut request: DraftRequest,
    ) -> Result<Draft, ProfileDraftError> {
        let grounds = self.sources.inputs(fleet);
        let snapshot = self.cluster().map_err(ProfileDraftError::NoCluster)?;
        if request.key.namespace.is_empty() {
            request.key.namespace = grounds.namespace().unwrap_or_default();
        }
        let drafted = spawn_blocking(move || {
            let catalog = Catalog::built_in();
            let types = types(&grounds.fleet, &snapshot, &catalog);
            draft(&request, &snapshot, &types, &catalog)
        });
        let drafted = drafted
            .await
            .map_err(|_| ProfileDraftError::NoCluster("internal error; retry".to_owned()))?;
        drafted.map_err(ProfileDraftError::Refused)
    }
}

impl Sources {
    fn inputs(&self, fleet: Fleet) -> ProfileInputs {
        let watched = self.watched.as_ref().map(|watched| watched.borrow().clone());
        ProfileInputs {
            fleet,
            known: self.known.as_ref().map(|known| Arc::clone(&known.borrow())),
            snapshot: watched
                .filter(|watched| watched.current_at.is_some())
                .map(|watched| Arc::clone(&watched.snapshot)),
            file: self.file.as_ref().map(|file| file.current().0),
        }
    }
}

/// Returns the cached result if its inputs are current or it is recent; otherwise computes a new one with `compute`,
/// which receives the inputs and the previous result.
async fn get_or_compute<T: Send + Sync + 'static>(
    cache: &StaleWhileRevalidate<WithInputs<T>>,
    (sources, fleet, tolerance): (&Arc<Sources>, Fleet, fn(Freshness) -> Freshness),
    compute: impl FnOnce(&ProfileInputs, Option<Arc<T>>) -> Arc<T> + Send + 'static,
) -> Result<Arc<T>, JoinError> {
    let fit = |last: &Cached<WithInputs<T>>| {
        let (then, age) = (&last.value.0, last.done.elapsed());
        let now = sources.inputs(fleet.clone());
        tolerance(if then.is_same_as(&now) || age < AGAIN {
            Freshness::Fresh
        } else if then.have_same_profiles(&now) && age < MEANWHILE {
            Freshness::Stale
        } else {
            Freshness::Expired
        })
    };
    let (sources, fleet) = (Arc::clone(sources), fleet.clone());
    let making = move |(): &mut (), before: Option<WithInputs<T>>| {
        let of = sources.inputs(fleet);
        let made = compute(&of, before.map(|(_, made)| made));
        (of, made)
    };
    let (_, made) = cache.current(fit, making).await?;
    Ok(made)
}

impl ProfileReport {
    /// Profiles that the reader is allowed to see. A reader of single types sees the profiles that are for those types
    /// and reach no others.
    pub fn visible_to<'a>(
        &'a self,
        visibility: &'a Visibility,
    ) -> impl Iterator<Item = &'a (ProfileRow, ProfileAnnotations)> + Clone {
        let all = self.profiles.iter();
        all.filter(|(row, _)| {
            // The declared types may differ from the reached ones. Devices of unknown type are visible to readers of
            // all types only.
            let mut reached = row.reach.iter().flat_map(|reach| &reach.types);
            let shows_reached = visibility.types == VisibleTypes::All
                || reached.all(|one| {
                    one.type_name.as_ref().is_some_and(|name| visibility.types.contains(Some(name)))
                });
            visibility.shows_all_types(&row.types) && shows_reached
        })
    }
}

impl ProfileInputs {
    /// Returns whether the inputs are unchanged.
    fn is_same_as(&self, other: &Self) -> bool {
        self.fleet.revision == other.fleet.revision
            && same(self.snapshot.as_ref(), other.snapshot.as_ref())
            && self.have_same_profiles(other)
    }

    /// Returns whether the profiles are unchanged. A user who has just created a profile expects to see it, and waits.
    fn have_same_profiles(&self, other: &Self) -> bool {
        same(self.known.as_ref(), other.known.as_ref())
            && same(self.file.as_ref(), other.file.as_ref())
    }

    /// Profiles of the cluster, and those of the file whose name the cluster does not have.
    fn profiles(&self) -> Vec<&HardwareProfile> {
        let known = self.known.iter().flat_map(|known| known.all.values());
        let mut all: Vec<&HardwareProfile> = known.map(AsRef::as_ref).collect();
        let of_file = self.file.iter().flat_map(|file| file.iter());
        let hidden = |one: &HardwareProfile| {
            let known = self.known.as_ref();
            known.is_some_and(|known| known.all.contains_key(&(one.kind, one.key.clone())))
        };
        all.extend(of_file.filter(|one| !hidden(one)));
        all.sort_by_key(|one| (&one.key, one.kind));
        all
    }

    /// Checks the profiles. Returns `before` if the result is the same, so that its revision does not change.
    fn report_after(&self, before: Option<Arc<ProfileReport>>) -> Arc<ProfileReport> {
        let mut report = self.report();
        match before {
            Some(before) => {
                report.revision = before.revision;
                if report == *before {
                    return before;
                }
                report.revision = before.revision.saturating_add(1);
            }
            None => report.revision = 1,
        }
        Arc::new(report)
    }

    fn report(&self) -> ProfileReport {
        let catalog = Catalog::built_in();
        let memories = min_memory_by_type(&self.fleet);
        let nothing = LocalQueues::Unknown;
        let queues = self.known.as_ref().map_or(&nothing, |known| &known.queues);
        let snapshot = self.snapshot.as_deref();
        let of_nodes = snapshot.map(|snapshot| types(&self.fleet, snapshot, &catalog));
        let cluster = snapshot.zip(of_nodes.as_ref());
        let cluster =
            cluster.map(|(snapshot, types)| (snapshot, CandidateNode::all(snapshot, types)));
        let row = |profile: &HardwareProfile, around: Option<ClusterContext<'_>>| {
            let (reach, findings) = check_profile(profile, around, queues);
            // Memory reported by drivers takes precedence over the catalog's.
            let specs = |name: &TypeName| {
                let specs = Specs::for_type(name, &catalog);
                let shown = memories.get(name).copied();
                Specs { memory_mib: shown.or(specs.memory_mib), ..specs }
            };
            let row = ProfileRow::new(profile, (reach.as_ref(), &findings), specs);
            (row, profile.annotations.clone())
        };
        let mut profiles: Vec<_> = self.profiles().into_iter().enumerate().collect();
        // Profiles with the same selector follow one another, so that its nodes are determined once.
        profiles.sort_by_key(|(_, profile)| profile.selector());
        let mut rows = Vec::new();
        for group in profiles.chunk_by(|(_, one), (_, next)| one.selector() == next.selector()) {
            let selector = group.first().and_then(|(_, profile)| profile.selector());
            let selected = cluster
                .as_ref()
                .map(|(snapshot, nodes)| (*snapshot, CandidateNode::select(nodes, selector)));
            let around =
                selected.as_ref().map(|(snapshot, selected)| ClusterContext { snapshot, selected });
            rows.extend(group.iter().map(|(place, profile)| (*place, row(profile, around))));
        }
        rows.sort_by_key(|(place, _)| *place);
        let profiles = rows.into_iter().map(|(_, row)| row).collect();
        ProfileReport { revision: 0, source: self.source(), profiles }
    }

    fn source(&self) -> ProfileSource {
        let kind = ProfileKind::Hardware;
        let known = self.known.as_ref();
        let presence = known.and_then(|known| known.kinds.get(&kind));
        match (presence, &self.file) {
            (Some(Presence::Present), Some(_)) => ProfileSource::Both,
            (Some(Presence::Present), None) => ProfileSource::Cluster,
            (Some(Presence::Absent) | None, Some(_)) => ProfileSource::File,
            (Some(Presence::Absent) | None, None) => ProfileSource::Nowhere,
        }
    }

    /// Common namespace of all profiles of the current kind.
    fn namespace(&self) -> Option<String> {
        let mut all = self.profiles().into_iter().filter(|one| one.kind.is_current());
        let first = all.next()?.key.namespace.clone();
        all.all(|one| one.key.namespace == first).then_some(first)
    }
}

/// Returns whether both are the same object or both are absent.
fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::ClusterNode;
    use tokio::time::{Instant, advance, timeout};

    use super::*;

    fn watched(name: &str) -> Arc<WatchedCluster> {
        let node = ClusterNode { name: name.to_owned(), ..ClusterNode::default() };
        Arc::new(WatchedCluster {
            snapshot: Arc::new(ClusterSnapshot::new([node], [])),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 0,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn profiles_are_checked_at_most_once_a_second_and_only_after_a_change() {
        let (sender, receiver) = watch::channel(watched("node-a"));
        let profiles = Profiles::new(None, Some(receiver), None);
        let checked_snapshot = async |now: &Arc<WatchedCluster>| {
            sender.send_replace(Arc::clone(now));
            profiles.recent_report(Fleet::default()).await;
            let (of, _) = profiles.reports.last(|_| true).unwrap();
            of.snapshot.unwrap()
        };
        let (first, second) = (watched("node-a"), watched("node-b"));
        assert!(Arc::ptr_eq(&checked_snapshot(&first).await, &first.snapshot));
        assert!(Arc::ptr_eq(&checked_snapshot(&second).await, &first.snapshot));
        advance(MEANWHILE).await;
        assert!(Arc::ptr_eq(&checked_snapshot(&second).await, &second.snapshot));
        let is_new = || profiles.reports.last(|last| last.done.elapsed() < AGAIN);
        advance(MEANWHILE).await;
        checked_snapshot(&second).await;
        assert!(is_new().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn stale_report_is_returned_unless_a_profile_changed() {
        let (known, of_profiles) = watch::channel(Arc::new(Known::default()));
        let (sender, of_nodes) = watch::channel(watched("node-a"));
        let profiles = Profiles::new(Some(of_profiles), Some(of_nodes), None);
        profiles.recent_report(Fleet::default()).await;
        let work = Arc::clone(&profiles.reports.state).lock_owned().await;
        sender.send_replace(watched("node-b"));
        advance(AGAIN).await;
        profiles.recent_report(Fleet::default()).await;
        known.send_replace(Arc::default());
        let mut waits = Box::pin(profiles.recent_report(Fleet::default()));
        assert!(timeout(AGAIN, &mut waits).await.is_err());
        drop(work);
        waits.await;
    }

    #[tokio::test(start_paused = true)]
    async fn targets_are_computed_once_and_only_with_profiles() {
        let nowhere = Profiles::new(None, None, None);
        assert_eq!(nowhere.targets(Fleet::default()).await, Ok(None));
        let known = Known {
            kinds: [(ProfileKind::Hardware, Presence::Present)].into(),
            ..Known::default()
        };
        let (_sender, receiver) = watch::channel(Arc::new(known));
        let profiles = Profiles::new(Some(receiver), None, None);
        let one = profiles.targets(Fleet::default()).await.unwrap().unwrap();
        advance(MEANWHILE).await;
        let other = profiles.targets(Fleet::default()).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&one, &other));
    }
}
