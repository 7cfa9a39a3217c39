//! What every reader of the fleet is given.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::clock::{Clock, Moment};
use super::engine::Engine;
use super::fleet::{Fleet, TypeOfFleet};
use super::profiles::Profiles;
use super::without_agent::ClusterNodes;
use crate::book::prices::{CurrentPrices, Prices};
use crate::book::{Book, Current};
use crate::k8s::cluster::Followed;

/// The fleet as it is and as it becomes. Cheap to clone; whoever holds one delays nobody.
#[derive(Debug, Clone)]
pub struct View {
    fleet: watch::Receiver<Fleet>,
    clock: Clock,
    book: Arc<Book>,
    profiles: Arc<Profiles>,
    prices: Arc<Prices>,
    engine: Option<Arc<Engine>>,
    types: Arc<Mutex<Option<TypesThen>>>,
    cluster: Option<ClusterNodes>,
    /// The revision that [`View::listed_changed`] returned last.
    listed: Option<u64>,
}

/// The types of one fleet in one second: which nodes are stale is a matter of time.
#[derive(Debug)]
struct TypesThen {
    of: (u64, u64),
    all: Arc<[TypeOfFleet]>,
}

impl View {
    /// A view of what a store publishes.
    pub fn new(fleet: watch::Receiver<Fleet>, clock: Clock) -> Self {
        Self {
            fleet,
            clock,
            book: Arc::default(),
            profiles: Arc::default(),
            prices: Arc::default(),
            engine: None,
            types: Arc::default(),
            cluster: None,
            listed: None,
        }
    }

    /// The same, with layouts to plan for.
    #[must_use]
    pub fn with_layouts(self, book: Book) -> Self {
        Self {
            book: Arc::new(book),
            ..self
        }
    }

    /// The same, with hardware profiles.
    #[must_use]
    pub fn with_profiles(self, profiles: Profiles) -> Self {
        Self {
            profiles: Arc::new(profiles),
            ..self
        }
    }

    /// The same, with what devices cost.
    #[must_use]
    pub fn with_prices(self, prices: Prices) -> Self {
        Self {
            prices: Arc::new(prices),
            ..self
        }
    }

    /// The same, which lists the nodes of this cluster that no agent reports too.
    #[must_use]
    pub fn with_cluster(self, followed: Option<watch::Receiver<Arc<Followed>>>) -> Self {
        Self {
            cluster: followed.map(ClusterNodes::new),
            ..self
        }
    }

    /// The hardware profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The same, with somebody who estimates.
    #[must_use]
    pub fn with_engine(self, engine: Engine) -> Self {
        Self {
            engine: Some(Arc::new(engine)),
            ..self
        }
    }

    /// Who estimates, where that is not the rule of thumb.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_deref()
    }

    /// The prices as they are now.
    pub fn prices(&self) -> CurrentPrices {
        self.prices.current()
    }

    /// The layouts as they are now.
    pub fn layouts(&self) -> Current {
        self.book.current()
    }

    /// Devices of all nodes of `fleet`, a result of [`View::listed`], by type, as [`Fleet::types`] has them. All who ask within one second are told the same.
    pub fn types(&self, fleet: &Fleet, now: Moment) -> Arc<[TypeOfFleet]> {
        let of = (fleet.revision, now.as_millis() / 1000);
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.as_ref().filter(|known| known.of == of) {
            return Arc::clone(&known.all);
        }
        let all: Arc<[TypeOfFleet]> = fleet.types(now).into();
        let kept = Arc::clone(&all);
        *types = Some(TypesThen { of, all: kept });
        all
    }

    /// The fleet now, as people and programs list it: the nodes that agents report, and those of the cluster that none does.
    pub fn listed(&self) -> Fleet {
        match &self.cluster {
            Some(cluster) => cluster.merge(&self.fleet, self.clock.now()),
            None => self.fleet(),
        }
    }

    /// Waits until [`View::listed`] is another one than at the last call, and returns it; `None` once the store is gone.
    pub async fn listed_changed(&mut self) -> Option<Fleet> {
        loop {
            match &mut self.cluster {
                Some(cluster) => {
                    tokio::select! {
                        changed = self.fleet.changed() => changed.ok()?,
                        () = cluster.changed() => {}
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

    /// Waits until it is another one than at the last call, and returns it; `None` once the store is gone.
    pub async fn changed(&mut self) -> Option<Fleet> {
        self.fleet.changed().await.ok()?;
        Some(self.fleet.borrow_and_update().clone())
    }

    /// The aggregator's time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_counted_once_for_each_version_of_the_fleet_and_each_second() {
        let (_publishes, fleet) = watch::channel(Fleet::default());
        let view = View::new(fleet, Clock::start());
        let of = |revision: u64, at: u64| {
            let fleet = Fleet {
                revision,
                ..Fleet::default()
            };
            view.types(&fleet, Moment::from_millis(at))
        };
        let first = of(1, 0);
        assert!(Arc::ptr_eq(&first, &of(1, 999)));
        let later = of(1, 1000);
        assert!(!Arc::ptr_eq(&first, &later));
        assert!(!Arc::ptr_eq(&later, &of(2, 1000)));
    }
}
