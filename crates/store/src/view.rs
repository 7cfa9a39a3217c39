//! Access to the fleet for readers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_files::config_files::budgets::BudgetFile;
use octavo_files::config_files::prices::{PriceFile, PriceFileSnapshot};
use octavo_files::config_files::{LayoutFile, LayoutFileSnapshot};
use octavo_fleet::access::Visibility;
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_fleet::startup::StartupProgress;
use octavo_history::History;
use octavo_kube::cluster::WatchedCluster;
use octavo_ledger::budget::BudgetReport;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

use super::clock::{Clock, Moment};
use super::cluster_nodes::{ClusterNodes, unreported_nodes};
use super::demand::{DemandError, DemandPlanner, Proposals};
use super::estimate_engine::EstimateEngine;
use super::fleet::{Fleet, TypeTotals};
use super::history::SharedHistory;
use super::ledger::{BudgetQuery, LedgerError, LedgerReader};
use super::policies::PolicyView;
use super::profiles::Profiles;

/// Message for callers who are not allowed to see why the price book cannot be read.
pub const PRICES_OUTDATED: &str = "prices may be outdated: the price book cannot be read";
/// Message for callers who are not allowed to see why the budgets cannot be read.
const BUDGETS_OUTDATED: &str = "budgets may be outdated: their file cannot be read";

/// The current fleet and its changes. Cheap to clone; holding one delays no other task.
#[derive(Debug, Clone)]
pub struct FleetView {
    fleet: watch::Receiver<Fleet>,
    clock: Clock,
    layouts: Arc<LayoutFile>,
    profiles: Arc<Profiles>,
    prices: Arc<PriceFile>,
    engine: Option<Arc<EstimateEngine>>,
    startup: Option<watch::Receiver<Option<StartupProgress>>>,
    history: SharedHistory,
    types: Arc<Mutex<Option<CachedTypes>>>,
    cluster: Option<ClusterNodes>,
    demand: Option<DemandPlanner>,
    policies: Option<PolicyView>,
    ledger: Option<LedgerReader>,
    budgets: Option<Arc<BudgetFile>>,
    cluster_name: Option<Arc<str>>,
    prometheus: Option<Arc<str>>,
    /// Permits of [`FleetView::plan`].
    planning: Arc<Semaphore>,
    /// Revision last returned by [`FleetView::listed_changed`].
    listed: Option<u64>,
}

/// Interval of checking the age of cluster nodes without an agent.
const STALE_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum number of simultaneous jobs of [`FleetView::plan`]; others wait.
const MAX_PLANNING_JOBS: usize = 2;

/// Types of one fleet within one second, because staleness depends on time.
#[derive(Debug)]
struct CachedTypes {
    of: (u64, u64),
    all: Arc<[TypeTotals]>,
}

impl FleetView {
    /// Creates a view of the published fleets.
    pub fn new(fleet: watch::Receiver<Fleet>, clock: Clock) -> Self {
        Self {
            fleet,
            clock,
            layouts: Arc::default(),
            profiles: Arc::default(),
            prices: Arc::default(),
            engine: None,
            startup: None,
            history: SharedHistory::default(),
            types: Arc::default(),
            cluster: None,
            demand: None,
            policies: None,
            ledger: None,
            budgets: None,
            cluster_name: None,
            prometheus: None,
            planning: Arc::new(Semaphore::new(MAX_PLANNING_JOBS)),
            listed: None,
        }
    }

    /// Adds layouts to plan with.
    #[must_use]
    pub fn with_layouts(self, layouts: LayoutFile) -> Self {
        Self { layouts: Arc::new(layouts), ..self }
    }

    /// Adds hardware profiles.
    #[must_use]
    pub fn with_profiles(self, profiles: Profiles) -> Self {
        Self { profiles: Arc::new(profiles), ..self }
    }

    /// Adds prices of devices.
    #[must_use]
    pub fn with_prices(self, prices: PriceFile) -> Self {
        Self { prices: Arc::new(prices), ..self }
    }

    /// Adds the history of the devices.
    #[must_use]
    pub fn with_history(self, history: SharedHistory) -> Self {
        Self { history, ..self }
    }

    /// The history of the devices up to now; empty if it is turned off.
    pub fn history(&self) -> History {
        self.history.current()
    }

    /// Adds the name of the cluster, and the base URL of a Prometheus that scrapes the agents.
    #[must_use]
    pub fn with_site(self, cluster_name: Option<String>, prometheus: Option<String>) -> Self {
        let (cluster_name, prometheus) = (cluster_name.map(Arc::from), prometheus.map(Arc::from));
        Self { cluster_name, prometheus, ..self }
    }

    /// Adds the policies of the cluster.
    #[must_use]
    pub fn with_policies(self, policies: Option<PolicyView>) -> Self {
        Self { policies, ..self }
    }

    /// Adds the usage ledger.
    #[must_use]
    pub fn with_ledger(self, ledger: Option<LedgerReader>) -> Self {
        Self { ledger, ..self }
    }

    /// Adds budgets.
    #[must_use]
    pub fn with_budgets(self, budgets: Option<BudgetFile>) -> Self {
        Self { budgets: budgets.map(Arc::new), ..self }
    }

    /// State of the requested budgets; `None` without a ledger or budgets. Notices about their file and that of the prices are limited by
    /// the reader's visibility.
    ///
    /// # Errors
    /// Fails if the ledger cannot be read.
    pub async fn budgets(
        &self,
        query: &BudgetQuery,
        visibility: &Visibility,
    ) -> Result<Option<BudgetReport>, LedgerError> {
        let (Some(ledger), Some(file)) = (&self.ledger, &self.budgets) else {
            return Ok(None);
        };
        let (budgets, notice) = file.current();
        let budgets = budgets.iter().filter(|budget| query.matches(budget));
        let prices = self.prices();
        let book = prices.prices.as_ref().map(|prices| &**prices.book());
        let mut report = ledger.budgets(budgets, book, self.clock.wall(self.clock.now())).await?;
        let notices = [(notice, BUDGETS_OUTDATED), (prices.notice, PRICES_OUTDATED)];
        for (notice, generic) in notices {
            report.notes.extend(notice.map(|why| visibility.disclose(why, generic)));
        }
        Ok(Some(report))
    }

    /// The usage ledger; `None` if there is none.
    pub fn ledger(&self) -> Option<&LedgerReader> {
        self.ledger.as_ref()
    }

    /// The policies of the cluster; `None` if they are not watched.
    pub fn policies(&self) -> Option<&PolicyView> {
        self.policies.as_ref()
    }

    /// Name of the cluster, if it is configured.
    pub fn cluster_name(&self) -> Option<&Arc<str>> {
        self.cluster_name.as_ref()
    }

    /// Base URL of Prometheus without a trailing slash, if it is configured.
    pub fn prometheus(&self) -> Option<&str> {
        self.prometheus.as_deref()
    }

    /// Adds the progress of the start.
    #[must_use]
    pub fn with_startup(self, startup: watch::Receiver<Option<StartupProgress>>) -> Self {
        Self { startup: Some(startup), ..self }
    }

    /// Adds the cluster's nodes without an agent to the listed nodes, and plans instances for its pending pods.
    #[must_use]
    pub fn with_cluster(self, watched: Option<watch::Receiver<Arc<WatchedCluster>>>) -> Self {
        let demand = watched.clone().map(DemandPlanner::new);
        Self { cluster: watched.map(ClusterNodes::new), demand, ..self }
    }

    /// Proposed instances for the pending pods of the cluster.
    ///
    /// # Errors
    ///
    /// Fails if no cluster is watched, or if it was not read yet.
    pub async fn demand(&self) -> Result<Arc<Proposals>, DemandError> {
        let planner = self.demand.as_ref().ok_or(DemandError::NoCluster)?;
        let policies = self.policies.as_ref().map(PolicyView::known);
        // Read before the fleet, which then has all agents that ended the start.
        let is_starting = self.startup().is_some();
        planner.proposals(self.fleet(), self.clock, policies, is_starting).await
    }

    /// Progress of the start; `None` once it is over.
    pub fn startup(&self) -> Option<StartupProgress> {
        *self.startup.as_ref()?.borrow()
    }

    /// Returns whether nodes of the cluster are known whose agents have not reported since the start of the aggregator.
    pub fn awaits_agents(&self, cluster: &ClusterSnapshot) -> bool {
        self.startup().is_some() && unreported_nodes(&self.fleet(), cluster).next().is_some()
    }

    /// Waits until [`Self::listed`] or [`Self::startup`] differs from the last call, and returns the revision; `None`
    /// once the store is dropped.
    pub async fn changed_or_started(&mut self) -> Option<u64> {
        let mut startup = self.startup.clone();
        tokio::select! {
            listed = self.listed_changed() => return listed.map(|listed| listed.revision),
            () = changed(startup.as_mut()) => {}
        }
        if let Some(startup) = &mut self.startup {
            startup.mark_unchanged();
        }
        Some(self.listed().revision)
    }

    /// Notice that the fleet is incomplete after a start, limited by the reader's visibility; `None` once it is
    /// complete.
    pub fn startup_notice(&self, visibility: &Visibility) -> Option<String> {
        let startup = self.startup();
        // An empty list cannot be mistaken for the whole fleet.
        let startup = startup.filter(|now| now.nodes != Some(0) || now.expected.is_some());
        startup.map(|now| now.visible_to(visibility).to_string())
    }

    /// Notice that profiles may be incomplete or outdated, limited by the reader's visibility; `None` otherwise.
    pub fn profiles_notice(&self, visibility: &Visibility) -> Option<String> {
        match (self.startup_notice(visibility), self.profiles.notice(visibility)) {
            (Some(startup), Some(notice)) => Some(format!("{startup}; {notice}")),
            (startup, notice) => startup.or(notice),
        }
    }

    /// The hardware profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Adds an estimate engine.
    #[must_use]
    pub fn with_engine(self, engine: EstimateEngine) -> Self {
        Self { engine: Some(Arc::new(engine)), ..self }
    }

    /// The estimate engine; `None` if the roofline model is used.
    pub fn engine(&self) -> Option<&EstimateEngine> {
        self.engine.as_deref()
    }

    /// The prices that are valid now.
    pub fn prices(&self) -> PriceFileSnapshot {
        self.prices.current(self.clock.wall(self.clock.now()))
    }

    /// The current layouts.
    pub fn layouts(&self) -> LayoutFileSnapshot {
        self.layouts.current()
    }

    /// Runs `job`, which plans layouts, on a blocking thread with the current layouts.
    ///
    /// # Errors
    ///
    /// Fails if the job panics.
    pub async fn plan<T: Send + 'static>(
        &self,
        job: impl FnOnce(&LayoutFileSnapshot) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let layouts = self.layouts();
        // The semaphore is never closed. A job that has started runs to its end, even if its reader has gone.
        let permit = Arc::clone(&self.planning).acquire_owned().await;
        let job = spawn_blocking(move || {
            let _permit = permit;
            job(&layouts)
        });
        job.await
    }

    /// Devices by type of `fleet`, a result of [`FleetView::listed`], as returned by [`Fleet::types`]. The result is cached
    /// for up to one second.
    pub fn types(&self, fleet: &Fleet, now: Moment) -> Arc<[TypeTotals]> {
        let of = (fleet.revision, now.as_millis() / 1000);
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.as_ref().filter(|known| known.of == of) {
            return Arc::clone(&known.all);
        }
        let all: Arc<[TypeTotals]> = fleet.types(now).into();
        let cached = Arc::clone(&all);
        *types = Some(CachedTypes { of, all: cached });
        all
    }

    /// The listed nodes: those that agents report, and nodes of the cluster without an agent.
    pub fn listed(&self) -> Fleet {
        match &self.cluster {
            Some(cluster) => cluster.merge(&self.fleet, self.clock.now()),
            None => self.fleet(),
        }
    }

    /// Waits until [`FleetView::listed`] differs from the last call, and returns it; `None` once the store is dropped.
    pub async fn listed_changed(&mut self) -> Option<Fleet> {
        loop {
            match &mut self.cluster {
                Some(cluster) => {
                    tokio::select! {
                        changed = self.fleet.changed() => changed.ok()?,
                        () = cluster.changed() => {}
                        // Nodes become stale without any update, so their age is checked at intervals.
                        () = sleep(STALE_CHECK_INTERVAL) => {}
                    }
                }
                None => self.fleet.changed().await.ok()?,
            }
            let listed = self.listed();
            if self.listed != Some(listed.revision) {
                self.listed = Some(listed.revision);
                return Some(listed);
            }
        }
    }

    /// The nodes that agents report.
    pub fn fleet(&self) -> Fleet {
        self.fleet.borrow().clone()
    }

    /// Waits until the fleet differs from the last call, and returns it; `None` once the store is dropped.
    pub async fn changed(&mut self) -> Option<Fleet> {
        self.fleet.changed().await.ok()?;
        Some(self.fleet.borrow_and_update().clone())
    }

    /// The aggregator's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// Waits for progress of the start; never resolves once the start is over.
async fn changed(startup: Option<&mut watch::Receiver<Option<StartupProgress>>>) {
    if let Some(startup) = startup
        && startup.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn end_of_start_is_reported_once_as_a_change() {
        let (_publishes, fleet) = watch::channel(Fleet::default());
        let (progress, startup) = watch::channel(Some(StartupProgress::new(0, None)));
        let mut view = FleetView::new(fleet, Clock::start()).with_startup(startup);
        progress.send_replace(None);
        assert_eq!(view.changed_or_started().await, Some(0));
        drop(progress);
        let again = timeout(Duration::from_mins(1), view.changed_or_started());
        assert!(again.await.is_err());
    }

    #[test]
    fn types_are_cached_per_revision_and_second() {
        let (_publishes, fleet) = watch::channel(Fleet::default());
        let view = FleetView::new(fleet, Clock::start());
        let of = |revision: u64, at: u64| {
            let fleet = Fleet { revision, ..Fleet::default() };
            view.types(&fleet, Moment::from_millis(at))
        };
        let first = of(1, 0);
        assert!(Arc::ptr_eq(&first, &of(1, 999)));
        let later = of(1, 1000);
        assert!(!Arc::ptr_eq(&first, &later));
        assert!(!Arc::ptr_eq(&later, &of(2, 1000)));
    }
}
