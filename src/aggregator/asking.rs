//! Asking the API server what only it knows, seldom: about each thing once, however many want to know.
//!
//! A question is a request to the API server, so their number is bounded whatever peers send: an answer is remembered for a while
//! (one that lets in longer than one that does not), a thing is asked about once however many wait for it, few questions run at once
//! and few more wait. While the API server gives no answer it is asked once a second. [`auth`](super::auth) asks so about agents'
//! tokens, [`access`](super::access) about who reads over HTTP.

mod cache;

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use self::cache::Cache;
use crate::domain::error::chain;

/// How long an answer that lets in is used without asking again.
const GOOD_FOR: Duration = Duration::from_mins(1);
/// How long one that does not is.
const BAD_FOR: Duration = Duration::from_secs(5);
/// Bad answers that are remembered. They take no place of good ones.
pub(super) const MOST_BAD: usize = 1000;
/// Questions at once, and those that run or wait for their turn.
pub(super) const MOST_AT_ONCE: usize = 16;
pub(super) const MOST_PENDING: usize = 4096;
/// How long the API server is left alone after it gave no answer.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long somebody waits for their turn and their answer. Less than what a connection without a stream has.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// The hash of what is asked about: what is remembered has no secret in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint([u8; 32]);

/// What the log says when answers stay away, and when they are back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// What cannot be: `agents' tokens cannot be reviewed`.
    pub(super) away: &'static str,
    /// What comes of that.
    pub(super) meanwhile: &'static str,
    /// That it is over.
    pub(super) back: &'static str,
}

/// Whether the API server answers. Clones are about the same one.
#[derive(Debug, Clone)]
pub(super) struct Health(Arc<(Words, Mutex<Option<Instant>>)>);

/// One kind of question: a good answer is a `G`, a bad one a `B`. Clones remember together.
#[derive(Debug)]
pub(super) struct Asking<G, B>(Arc<Shared<G, B>>);

#[derive(Debug)]
struct Shared<G, B> {
    health: Health,
    slots: Semaphore,
    known: Mutex<Known<G, B>>,
    /// Questions that are asked now.
    tasks: Mutex<JoinSet<()>>,
}

/// Answers, and questions that are open.
#[derive(Debug)]
struct Known<G, B> {
    good: Cache<G>,
    bad: Cache<B>,
    pending: BTreeMap<Fingerprint, Open<G, B>>,
}

/// What a question came to; `None` where nobody knows.
type Said<G, B> = Option<Result<G, B>>;

/// Where that will be: nothing yet, and then that.
type Open<G, B> = watch::Receiver<Option<Said<G, B>>>;

impl Fingerprint {
    /// Of texts, whose borders count too.
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            context.update(&length.to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }
}

impl Health {
    pub(super) fn new(words: Words) -> Self {
        Self(Arc::new((words, Mutex::new(None))))
    }

    /// Whether the API server is left alone.
    fn rests(&self, now: Instant) -> bool {
        self.since()
            .is_some_and(|at| now.duration_since(at) < PAUSE)
    }

    fn answered(&self) {
        if self.since().take().is_some() {
            info!("{}", self.0.0.back);
        }
    }

    fn failed(&self, error: &dyn Error) {
        if self.since().replace(Instant::now()).is_none() {
            let Words {
                away, meanwhile, ..
            } = self.0.0;
            warn!("{away}: {}; {meanwhile}", chain(error));
        }
    }

    /// When it last gave no answer, unless it gave one since.
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G, B> Clone for Asking<G, B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<G, B> Asking<G, B>
where
    G: Clone + Send + Sync + 'static,
    B: Clone + Send + Sync + 'static,
{
    /// Nothing is known yet. Of more good answers than `most_good` the oldest is asked for again.
    pub(super) fn new(health: Health, most_good: usize) -> Self {
        let known = Known {
            good: Cache::new(GOOD_FOR, most_good),
            bad: Cache::new(BAD_FOR, MOST_BAD),
            pending: BTreeMap::new(),
        };
        Self(Arc::new(Shared {
            health,
            slots: Semaphore::new(MOST_AT_ONCE),
            known: Mutex::new(known),
            tasks: Mutex::default(),
        }))
    }

    /// The answer about what `key` stands for, by `question` where it is not known; `None` where nobody can say now.
    pub(super) async fn about<F, E>(&self, key: Fingerprint, question: F) -> Option<Result<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>> + Send + 'static,
        E: Error + Send + 'static,
    {
        let mut open = match self.look_up(key, question) {
            Ok(answer) => return answer,
            Err(open) => open,
        };
        let answer = timeout(PATIENCE, open.wait_for(Option::is_some)).await;
        match answer {
            Ok(Ok(answer)) => answer.clone().flatten(),
            Ok(Err(_gone)) => None,
            Err(_late) => None,
        }
    }

    /// How many bad answers are kept, and how many questions are open.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let known = self.0.known();
        (known.bad.len(), known.pending.len())
    }

    /// What is known, or where that will be said.
    fn look_up<F, E>(
        &self,
        key: Fingerprint,
        question: F,
    ) -> Result<Option<Result<G, B>>, Open<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>> + Send + 'static,
        E: Error + Send + 'static,
    {
        let now = Instant::now();
        let mut known = self.0.known();
        if let Some(good) = known.good.get(&key, now) {
            return Ok(Some(Ok(good)));
        }
        if let Some(bad) = known.bad.get(&key, now) {
            return Ok(Some(Err(bad)));
        }
        if let Some(open) = known.pending.get(&key) {
            return Err(open.clone());
        }
        if known.pending.len() >= MOST_PENDING || self.0.health.rests(now) {
            return Ok(None);
        }
        let (tell, told) = watch::channel(None);
        known.pending.insert(key, told.clone());
        drop(known);
        // A task of its own: who asked first may go away, and others wait for the same.
        let shared = Arc::clone(&self.0);
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let answer = shared.answer(question).await;
            shared.remember(key, answer.as_ref());
            tell.send_replace(Some(answer));
        });
        Err(told)
    }
}

impl<G: Clone, B: Clone> Shared<G, B> {
    async fn answer<F, E>(&self, question: F) -> Option<Result<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>>,
        E: Error + 'static,
    {
        let _slot = self.slots.acquire().await.ok()?;
        // Those that had to wait while it stopped answering need not find that out each for itself.
        if self.health.rests(Instant::now()) {
            return None;
        }
        match question.await {
            Ok(answer) => {
                self.health.answered();
                Some(answer)
            }
            Err(error) => {
                self.health.failed(&error);
                None
            }
        }
    }

    fn remember(&self, key: Fingerprint, answer: Option<&Result<G, B>>) {
        let now = Instant::now();
        let mut known = self.known();
        known.pending.remove(&key);
        match answer {
            Some(Ok(good)) => known.good.put(key, good.clone(), now),
            Some(Err(bad)) => known.bad.put(key, bad.clone(), now),
            None => {}
        }
    }

    fn known(&self) -> MutexGuard<'_, Known<G, B>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
