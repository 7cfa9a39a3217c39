//! What every reader of the fleet is given.

use std::sync::Arc;

use tokio::sync::watch;

use super::clock::Clock;
use super::fleet::Fleet;
use crate::book::{Book, Current};

/// The fleet as it is and as it becomes. Cheap to clone; whoever holds one delays nobody.
#[derive(Debug, Clone)]
pub struct View {
    fleet: watch::Receiver<Fleet>,
    clock: Clock,
    book: Arc<Book>,
}

impl View {
    /// A view of what a store publishes.
    pub fn new(fleet: watch::Receiver<Fleet>, clock: Clock) -> Self {
        Self {
            fleet,
            clock,
            book: Arc::default(),
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
