//! What takes a while to make: made by one at a time for all who ask, and told for a moment.
//!
//! It is made on a thread of its own, so nobody else is delayed. Who asks meanwhile is given what was made before or, where that is
//! old, waits for the same.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::Instant;

/// What was made last; whoever makes it anew has the work in his hands, and what it needs from one time to the next. Clones are one.
#[derive(Debug)]
pub(super) struct Kept<T, W = ()> {
    last: Arc<watch::Sender<Option<Last<T>>>>,
    pub(super) work: Arc<Mutex<W>>,
}

/// What was made once.
#[derive(Debug, Clone)]
pub(super) struct Last<T> {
    pub(super) made: T,
    /// When it was done. From then on it is kept: were making it slower than that, all who waited would make it one after the other.
    pub(super) done: Instant,
}

impl<T, W> Kept<T, W> {
    /// Nothing was made yet.
    pub(super) fn new(work: W) -> Self {
        Self {
            last: Arc::default(),
            work: Arc::new(Mutex::new(work)),
        }
    }
}

impl<T, W: Default> Default for Kept<T, W> {
    fn default() -> Self {
        Self::new(W::default())
    }
}

impl<T, W> Clone for Kept<T, W> {
    fn clone(&self) -> Self {
        Self {
            last: Arc::clone(&self.last),
            work: Arc::clone(&self.work),
        }
    }
}

impl<T: Clone + Send + Sync + 'static, W: Send + 'static> Kept<T, W> {
    /// What was made last where that will do, and what `make` makes of what was made before otherwise; while somebody else makes it,
    /// also what was done within `meanwhile`. An error where `make` panics.
    pub(super) async fn current(
        &self,
        will_do: impl Fn(&Last<T>) -> bool,
        meanwhile: Duration,
        make: impl FnOnce(&mut W, Option<T>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        if let Some(made) = self.last(&will_do) {
            return Ok(made);
        }
        let mut work = match Arc::clone(&self.work).try_lock_owned() {
            Ok(work) => work,
            Err(_somebody_makes_it) => {
                if let Some(made) = self.last(|last| last.done.elapsed() < meanwhile) {
                    return Ok(made);
                }
                Arc::clone(&self.work).lock_owned().await
            }
        };
        // Somebody else may have made it meanwhile.
        if let Some(made) = self.last(&will_do) {
            return Ok(made);
        }
        let last = Arc::clone(&self.last);
        // What was made is kept also where nobody waits for it any more.
        let making = spawn_blocking(move || {
            let before = last.borrow().as_ref().map(|last| last.made.clone());
            let made = make(&mut work, before);
            last.send_replace(Some(Last {
                made: made.clone(),
                done: Instant::now(),
            }));
            made
        });
        making.await
    }

    /// What was made last, where that will do.
    pub(super) fn last(&self, will_do: impl Fn(&Last<T>) -> bool) -> Option<T> {
        let last = self.last.borrow();
        let last = last.as_ref().filter(|last| will_do(last))?;
        Some(last.made.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const MEANWHILE: Duration = Duration::from_secs(1);

    /// Asks for what is at least that.
    async fn ask(kept: &Kept<u64>, least: u64) -> Result<u64, JoinError> {
        let will_do = |last: &Last<u64>| last.made >= least;
        kept.current(will_do, MEANWHILE, move |(), _| least).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_will_do_is_told_again_and_what_will_not_is_made_anew() {
        let kept: Kept<u64> = Kept::default();
        assert_eq!(ask(&kept, 2).await.unwrap(), 2);
        assert_eq!(ask(&kept, 1).await.unwrap(), 2);
        assert_eq!(ask(&kept, 3).await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_made_others_are_given_that_of_a_moment_ago_and_wait_for_more() {
        let kept: Kept<u64> = Kept::default();
        assert_eq!(ask(&kept, 1).await.unwrap(), 1);
        let work = Arc::clone(&kept.work).lock_owned().await;
        assert_eq!(ask(&kept, 2).await.unwrap(), 1);
        advance(MEANWHILE).await;
        let mut waits = Box::pin(ask(&kept, 2));
        assert!(timeout(MEANWHILE, &mut waits).await.is_err());
        drop(work);
        assert_eq!(waits.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_are_given_what_one_of_them_makes() {
        let kept: Kept<u64> = Kept::default();
        let work = Arc::clone(&kept.work).lock_owned().await;
        let mut first = Box::pin(ask(&kept, 7));
        assert!(timeout(MEANWHILE, &mut first).await.is_err());
        let will_do = |last: &Last<u64>| last.made >= 7;
        let second = kept.current(will_do, MEANWHILE, |(), _| panic!("it is there already"));
        let mut second = Box::pin(second);
        assert!(timeout(MEANWHILE, &mut second).await.is_err());
        drop(work);
        assert_eq!(first.await.unwrap(), 7);
        assert_eq!(second.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_an_error_and_made_by_who_asks_next() {
        let kept: Kept<u64> = Kept::default();
        let failed = kept.current(|_| true, MEANWHILE, |(), _| panic!("as a test wants it"));
        assert!(failed.await.is_err());
        assert_eq!(ask(&kept, 7).await.unwrap(), 7);
    }
}
