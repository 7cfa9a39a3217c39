//! What is made of all nodes and profiles: seldom, by one at a time, and kept for all who ask.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::Instant;

use super::{AGAIN, Grounds, MEANWHILE};

/// What was made last, and whose turn it is to make it anew.
#[derive(Debug)]
pub(super) struct Kept<T> {
    pub(super) last: Arc<watch::Sender<Option<Last<T>>>>,
    pub(super) turn: Arc<Mutex<()>>,
}

#[derive(Debug)]
pub(super) struct Last<T> {
    made: Arc<T>,
    of: Grounds,
    pub(super) at: Instant,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            last: Arc::default(),
            turn: Arc::default(),
        }
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// What `judge` makes of `of` and of what was made before, or what it made a moment ago; an error where it fails.
    pub(super) async fn current(
        &self,
        of: Grounds,
        judge: impl FnOnce(&Grounds, Option<Arc<T>>) -> Arc<T> + Send + 'static,
    ) -> Result<Arc<T>, JoinError> {
        let will_do = |last: &Last<T>| last.of.are(&of) || last.at.elapsed() < AGAIN;
        if let Some(made) = self.last(will_do) {
            return Ok(made);
        }
        let turn = match Arc::clone(&self.turn).try_lock_owned() {
            Ok(turn) => turn,
            Err(_somebody_makes_it) => {
                if let Some(made) = self.last(|last| last.at.elapsed() < MEANWHILE) {
                    return Ok(made);
                }
                Arc::clone(&self.turn).lock_owned().await
            }
        };
        // Somebody else may have made it meanwhile.
        if let Some(made) = self.last(will_do) {
            return Ok(made);
        }
        let last = Arc::clone(&self.last);
        // What was made is kept also where nobody waits for it any more.
        let making = spawn_blocking(move || {
            let before = last.borrow().as_ref().map(|last| Arc::clone(&last.made));
            let made = judge(&of, before);
            let kept = Arc::clone(&made);
            // From its end: were it slower than what it is kept for, all who waited would make it one after the other.
            let at = Instant::now();
            last.send_replace(Some(Last { made: kept, of, at }));
            drop(turn);
            made
        });
        making.await
    }

    /// What was made last, where that will do.
    pub(super) fn last(&self, will_do: impl Fn(&Last<T>) -> bool) -> Option<Arc<T>> {
        let last = self.last.borrow();
        let last = last.as_ref().filter(|last| will_do(last))?;
        Some(Arc::clone(&last.made))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::aggregator::fleet::Fleet;

    fn grounds(revision: u64) -> Grounds {
        Grounds {
            fleet: Fleet {
                revision,
                ..Fleet::default()
            },
            known: None,
            sights: None,
            file: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_depends_on_the_same_is_made_once_and_what_changes_at_most_once_a_second() {
        let kept: Kept<u64> = Kept::default();
        let ask = |revision| kept.current(grounds(revision), |of, _| Arc::new(of.fleet.revision));
        let first = ask(1).await.unwrap();
        assert!(Arc::ptr_eq(&first, &ask(2).await.unwrap()));
        advance(AGAIN).await;
        assert!(Arc::ptr_eq(&first, &ask(1).await.unwrap()));
        assert_eq!(*ask(2).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_an_error_and_made_by_who_asks_next() {
        let kept: Kept<u64> = Kept::default();
        let failed = kept.current(grounds(1), |_, _| panic!("as a test wants it"));
        assert!(failed.await.is_err());
        let made = kept.current(grounds(1), |_, _| Arc::new(7)).await;
        assert_eq!(*made.unwrap(), 7);
    }
}
