//! What every reader of the fleet is given.

use std::sync::Arc;

use tokio::sync::watch;

use super::clock::Clock;
use super::engine::Engine;
use super::fleet::Fleet;
use super::profiles::Profiles;
use crate::book::prices::{CurrentPrices, Prices};
use crate::book::{Book, Current};

/// The fleet as it is and as it becomes. Cheap to clone; whoever holds one delays nobody.
#[derive(Debug, Clone)]
pub struct View {
    fleet: watch::Receiver<Fleet>,
    clock: Clock,
    book: Arc<Book>,
    profiles: Arc<Profiles>,
    prices: Arc<Prices>,
    engine: Option<Arc<Engine>>,
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

    /// The fleet now.
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
