//! The aggregator's stream of changes, which reconnects after failures.

use octavo_fleet::api::Event;
use octavo_stream::protocol::Backoff;
use octavo_toolkit::error::chain;
use octavo_toolkit::random::random;
use tokio::time::sleep;

use crate::{Client, ClientError, EventStream, Events, RequestPath};

/// A stream that reconnects.
#[derive(Debug)]
pub struct EventFeed<E = Event> {
    client: Client,
    stream: Option<Events<E>>,
    backoff: Backoff,
    connections: u64,
}

/// Item of the stream.
#[derive(Debug)]
pub enum FeedItem<E = Event> {
    /// Connected; missed changes must be requested.
    Connected,
    /// A change.
    Changed(Box<E>),
}

impl<E: EventStream> EventFeed<E> {
    /// Creates a feed that is not connected yet.
    pub fn new(client: Client) -> Self {
        Self { client, stream: None, backoff: Backoff::default(), connections: 0 }
    }

    /// Returns the client, for other requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns whether the stream is not known to be closed.
    pub fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the next item. A failure of the first attempt is an error, because the address may be wrong; later
    /// failures are reported to `lost` and retried.
    pub async fn next(&mut self, lost: impl Fn(&str)) -> Result<FeedItem<E>, ClientError> {
        loop {
            let failure = match &mut self.stream {
                None => match self.connect().await {
                    Ok(()) => return Ok(FeedItem::Connected),
                    Err(error) => error,
                },
                Some(stream) => match stream.next().await {
                    Ok(event) => return Ok(FeedItem::Changed(Box::new(event))),
                    Err(source) => self.client.failed(&target::<E>(), source),
                },
            };
            self.failed(failure, &lost).await?;
        }
    }

    /// Handles the failure of a caller's request; waits before the next connection.
    pub async fn failed(
        &mut self,
        failure: ClientError,
        lost: &impl Fn(&str),
    ) -> Result<(), ClientError> {
        self.stream = None;
        if self.connections == 0 || !failure.is_transient() {
            return Err(failure);
        }
        let wait = self.backoff.next_delay(random());
        lost(&format!("{}; reconnecting in {:.1} s", chain(&failure), wait.as_secs_f64()));
        sleep(wait).await;
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let target = target::<E>();
        let mut stream: Events<E> = self.client.events(&target).await?;
        // From here on no change is missed; the caller must request the initial state.
        loop {
            match stream.next().await {
                Ok(event) if event.is_synced() => break,
                Ok(_) => {}
                Err(source) => return Err(self.client.failed(&target, source)),
            }
        }
        self.stream = Some(stream);
        self.connections = self.connections.saturating_add(1);
        self.backoff.reset();
        Ok(())
    }
}

fn target<E: EventStream>() -> RequestPath {
    RequestPath::new(E::PATH).with([("changes", "only")])
}
