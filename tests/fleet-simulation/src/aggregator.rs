//! Starts, ends and periodic maintenance of the aggregator.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_store::stats::Stats;
use octavo_store::store::{Store, StoreLimits};

use crate::state::World;
use crate::state::connection::Aggregator;
use crate::state::queue::{End, Event};

/// Age at which a node is stale, the default of the aggregator.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(30);
/// Interval of maintenance, as `octavo_store::store::shared_store` derives it from that age.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a stale node is shown.
const FORGET_AFTER: Duration = Duration::from_hours(1);

impl World {
    /// Starts the aggregator with an empty store.
    pub(crate) fn start_aggregator(&mut self) {
        if self.aggregator.is_some() {
            return;
        }
        let limits = StoreLimits {
            stale_after: STALE_AFTER,
            forget_after: FORGET_AFTER,
            max_nodes: self.machines.len() + 2,
            history_bytes: 0,
        };
        self.aggregator_run += 1;
        let run = self.aggregator_run;
        let (store, readers) = Store::new(limits, Stats::default());
        let (began, confirmed) = (self.now, BTreeMap::new());
        self.aggregator = Some(Box::new(Aggregator {
            run,
            began,
            store,
            readers,
            confirmed,
            is_publication_due: false,
        }));
        for sent in &mut self.sent {
            sent.stored = 0;
        }
        self.after(SWEEP_INTERVAL, Event::Sweep { run });
    }

    /// Ends the aggregator without notice, and starts another one after this time.
    pub(crate) fn kill_aggregator(&mut self, restart_after: Duration) {
        if self.aggregator.take().is_none() {
            return;
        }
        let open: Vec<u64> = self.connections.keys().copied().collect();
        for id in open {
            // The kernel of the aggregator's machine closes the connections.
            self.close_aggregator_end(id);
        }
        self.after(restart_after, Event::StartAggregator);
    }

    /// Performs the periodic maintenance, and checks everything that depends on time.
    pub(crate) fn sweep(&mut self, run: u32) {
        let now = self.now;
        let Some(aggregator) = self.aggregator.as_deref_mut().filter(|one| one.run == run) else {
            return;
        };
        let moment = aggregator.moment(now);
        aggregator.store.sweep(moment);
        self.end_closed();
        self.plan_publication();
        self.check_fleet();
        self.after(SWEEP_INTERVAL, Event::Sweep { run });
    }

    /// Publishes the fleet when that is due.
    pub(crate) fn plan_publication(&mut self) {
        let now = self.now;
        let Some(aggregator) = self.aggregator.as_deref_mut() else { return };
        if aggregator.is_publication_due {
            return;
        }
        if let Some(wait) = aggregator.store.due(aggregator.moment(now)) {
            aggregator.is_publication_due = true;
            let run = aggregator.run;
            self.after(wait, Event::Publish { run });
        }
    }

    /// Publishes the fleet.
    pub(crate) fn publish(&mut self, run: u32) {
        let now = self.now;
        let Some(aggregator) = self.aggregator.as_deref_mut().filter(|one| one.run == run) else {
            return;
        };
        aggregator.is_publication_due = false;
        let moment = aggregator.moment(now);
        aggregator.store.publish(moment);
    }

    /// Resets the connection of a node: both ends notice it.
    pub(crate) fn reset_connection(&mut self, node: usize) {
        let agent = self.machines[node].agent.as_ref();
        if let Some(id) = agent.and_then(|agent| agent.uplink.connection) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.to_agent.messages.clear();
                connection.to_aggregator.messages.clear();
            }
            let delay = self.delay();
            self.after(delay, Event::Disconnected { connection: id, end: End::Agent });
            let delay = self.delay();
            self.after(delay, Event::Disconnected { connection: id, end: End::Aggregator });
        }
    }
}
