//! The aggregator's stream of changes, connected again whenever it breaks.

use std::hash::{BuildHasher, RandomState};

use tokio::time::sleep;

use crate::cli::CliError;
use crate::cli::client::{Client, Events, Stream, Target};
use crate::cli::error::brief;
use crate::cli::print;
use crate::domain::stream::Backoff;
use crate::wire::api::Event;

/// A stream that outlives its connections.
#[derive(Debug)]
pub(in crate::cli) struct Feed<E = Event> {
    client: Client,
    stream: Option<Events<E>>,
    backoff: Backoff,
    connections: u64,
}

/// What the stream has to say.
#[derive(Debug)]
pub(in crate::cli) enum News<E = Event> {
    /// It is connected; what was missed is to be asked for.
    Connected,
    /// Something changed.
    Changed(Box<E>),
}

impl<E: Stream> Feed<E> {
    pub(in crate::cli) fn new(client: Client) -> Self {
        Self {
            client,
            stream: None,
            backoff: Backoff::default(),
            connections: 0,
        }
    }

    /// For questions beside the stream.
    pub(in crate::cli) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the stream is open, as far as is known.
    pub(in crate::cli) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// The next news. What fails at the first attempt ends the command, because nobody knows then whether the address is
    /// right; later it is said and tried again. `lost` is told why, each time.
    pub(in crate::cli) async fn next(&mut self, lost: impl Fn(&str)) -> Result<News<E>, CliError> {
        loop {
            let failure = match &mut self.stream {
                None => match self.connect().await {
                    Ok(()) => return Ok(News::Connected),
                    Err(error) => error,
                },
                Some(stream) => match stream.next().await {
                    Ok(event) => return Ok(News::Changed(Box::new(event))),
                    Err(source) => self.client.failed(&target::<E>(), source),
                },
            };
            self.failed(failure, &lost).await?;
        }
    }

    /// A question of the caller's own failed; waits before the next connection.
    pub(in crate::cli) async fn failed(
        &mut self,
        failure: CliError,
        lost: &impl Fn(&str),
    ) -> Result<(), CliError> {
        self.stream = None;
        let may_pass = matches!(&failure, CliError::Ask { source, .. } if source.may_pass());
        if self.connections == 0 || !may_pass {
            return Err(failure);
        }
        let wait = self.backoff.failed(random());
        lost(&format!(
            "{}; connecting again in {:.1} s",
            brief(&failure),
            wait.as_secs_f64()
        ));
        sleep(wait).await;
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), CliError> {
        let target = target::<E>();
        let mut stream: Events<E> = self.client.events(&target).await?;
        // From here on nothing is missed; what was there before is the caller's to ask for.
        loop {
            match stream.next().await {
                Ok(event) if event.is_synced() => break,
                Ok(_) => {}
                Err(source) => return Err(self.client.failed(&target, source)),
            }
        }
        self.stream = Some(stream);
        self.connections = self.connections.saturating_add(1);
        self.backoff.succeeded();
        Ok(())
    }
}

/// Tells on standard error that a connection was lost.
pub(in crate::cli) fn say_lost(why: &str) {
    print::note(&format!("note: {why}"));
}

fn target<E: Stream>() -> Target {
    Target::new(E::PATH).with([("changes", "only")])
}

/// Chance enough to spread attempts; the standard library seeds its hashes with it.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
