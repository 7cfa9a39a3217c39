//! Lists all objects of one kind and hears of each change, for ever.
//!
//! Written upon the client's requests and not upon its `watcher`, which keeps to itself what matters most here: that a watch on
//! which nothing happens was renewed, so that nothing having been heard means that nothing was to be heard. Whatever comes is read
//! at once into what is kept of it, page by page.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::StreamExt;

use super::read::Read;
use crate::k8s::client::{REQUEST, told};
use crate::k8s::node::Patience;

/// How long the server lets a watch last, in seconds: one that is renewed says that all is as it was.
const WATCH: u32 = 30;
/// A watch on which nothing came for so long, not even its end, is no watch any more.
const SILENCE: Duration = Duration::from_secs(45);
/// Between the beginnings of two watches, whoever ends them how fast.
const BREATH: Duration = Duration::from_secs(1);
/// Objects in a page.
const PAGE: u32 = 500;
/// Most bytes of a page. Where a page has more, the next one shall have fewer objects, each of which has 1.5 MiB at most.
const PAGE_BYTES: usize = 32 << 20;
/// Most characters of what somebody says about a refusal.
const MOST_SAID: usize = 500;
/// A watch that cannot be begun twice in a row is given up for a list: the server may not be what it was.
const TRIES: u32 = 2;

/// Objects of one kind.
pub(super) trait Kind: DeserializeOwned + Clone + Send + 'static {
    /// Where they are.
    const PATH: &str;
    /// What they are called.
    const NAME: &str;
    /// Which of them.
    const FIELDS: Option<&str>;
    /// What is kept of one.
    type Kept: Send;

    /// Its version.
    fn version(&self) -> Option<String>;
    /// What is kept of it.
    fn read(self) -> Read<Self::Kept>;
}

/// What there is to say about objects of a kind.
#[derive(Debug)]
pub(super) enum Word<T> {
    /// These are all.
    All(Vec<Read<T>>),
    /// This one is there, or is now like this.
    Is(Read<T>),
    /// This one is there no more.
    Gone(T),
    /// All is as it was said.
    Same,
    /// They are not followed now: why.
    Trouble(String),
}

/// Why it did not go on.
enum Stop {
    /// The server knows nothing any more of what was since.
    Expired,
    /// In words.
    Trouble(String),
    /// Nobody listens.
    Unheard,
}

#[derive(Deserialize)]
struct Page<K> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<K>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    rest: Option<String>,
}

/// Follows objects of one kind.
pub(super) struct Chase<K: Kind> {
    client: Client,
    words: mpsc::Sender<Word<K::Kept>>,
    /// Up to which version all is known; `None` before there was a list.
    version: Option<String>,
    failures: u32,
}

impl<K: Kind> Chase<K> {
    pub(super) fn new(client: Client, words: mpsc::Sender<Word<K::Kept>>) -> Self {
        Self {
            client,
            words,
            version: None,
            failures: 0,
        }
    }

    /// Follows them until nobody listens.
    pub(super) async fn run(mut self) {
        let mut patience = Patience::default();
        loop {
            let stop = match self.turn().await {
                Ok(()) => {
                    self.failures = 0;
                    continue;
                }
                Err(stop) => stop,
            };
            self.failures = self.failures.saturating_add(1);
            match stop {
                Stop::Unheard => return,
                Stop::Expired => self.version = None,
                Stop::Trouble(why) => {
                    if self.failures >= TRIES {
                        self.version = None;
                    }
                    if self.say(Word::Trouble(why)).await.is_err() {
                        return;
                    }
                }
            }
            sleep(patience.next().unwrap_or(SILENCE)).await;
        }
    }

    /// One list, or one watch to its end.
    async fn turn(&mut self) -> Result<(), Stop> {
        let Some(version) = self.version.clone() else {
            return self.list().await;
        };
        let began = Instant::now();
        self.watch(&version).await?;
        // The connection may have been cut by something between that does so with every answer.
        sleep_until(began + BREATH).await;
        Ok(())
    }

    async fn list(&mut self) -> Result<(), Stop> {
        let mut all = Vec::new();
        let mut limit = PAGE;
        let mut rest = None;
        loop {
            let page = match self.page(limit, rest.clone()).await? {
                Some(page) => page,
                None if limit > 1 => {
                    limit /= 4;
                    limit = limit.max(1);
                    continue;
                }
                None => return Err(trouble("one of them has more than 32 MiB")),
            };
            all.extend(page.items.unwrap_or_default().into_iter().map(K::read));
            rest = page.metadata.rest.filter(|rest| !rest.is_empty());
            if rest.is_none() {
                let version = page.metadata.resource_version;
                let version = version.filter(|version| !version.is_empty());
                self.version = Some(version.ok_or_else(|| trouble("the list has no version"))?);
                return self.say(Word::All(all)).await;
            }
        }
    }

    /// The next page of a list; `None` where so many objects are too much.
    async fn page(&self, limit: u32, rest: Option<String>) -> Result<Option<Page<K>>, Stop> {
        let params = ListParams {
            limit: Some(limit),
            continue_token: rest,
            field_selector: K::FIELDS.map(str::to_owned),
            ..ListParams::default()
        };
        let request = Request::new(K::PATH).list(&params).map_err(unbuilt)?;
        let asked = async {
            let answer = self.client.send(request.map(Body::from)).await;
            let (head, body) = answer.map_err(|error| refused(&error))?.into_parts();
            match Limited::new(body, PAGE_BYTES).collect().await {
                Ok(body) => Ok(Some((head.status, body.to_bytes()))),
                Err(error) if error.is::<LengthLimitError>() => Ok(None),
                Err(error) => Err(trouble(&format!("the list was cut off: {error}"))),
            }
        };
        let Some((status, body)) = timeout(REQUEST, asked).await.map_err(|_| late())?? else {
            return Ok(None);
        };
        if !status.is_success() {
            return Err(refused(&kube::Error::Api(failure(status, &body))));
        }
        let page = serde_json::from_slice(&body);
        page.map(Some)
            .map_err(|error| trouble(&format!("the list cannot be read: {error}")))
    }

    async fn watch(&mut self, version: &str) -> Result<(), Stop> {
        let params = WatchParams {
            timeout: Some(WATCH),
            field_selector: K::FIELDS.map(str::to_owned),
            ..WatchParams::default()
        };
        let request = Request::new(K::PATH)
            .watch(&params, version)
            .map_err(unbuilt)?;
        let begin = timeout(REQUEST, self.client.request_events::<K>(request));
        let events = begin.await.map_err(|_| late())?;
        let mut events = Box::pin(events.map_err(|error| refused(&error))?);
        self.failures = 0;
        self.say(Word::Same).await?;
        loop {
            let silence = || trouble(&format!("nothing was heard for {}s", SILENCE.as_secs()));
            let Some(event) = timeout(SILENCE, events.next())
                .await
                .map_err(|_| silence())?
            else {
                return Ok(());
            };
            self.take(event.map_err(|error| refused(&error))?).await?;
        }
    }

    async fn take(&mut self, event: WatchEvent<K>) -> Result<(), Stop> {
        let (version, word) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                (object.version(), Word::Is(object.read()))
            }
            WatchEvent::Deleted(object) => (object.version(), Word::Gone(object.read().object)),
            WatchEvent::Bookmark(mark) => (Some(mark.metadata.resource_version), Word::Same),
            WatchEvent::Error(status) => {
                // A watch that ends in an error may not be gone on with from where it was.
                self.version = None;
                return Err(refused(&kube::Error::Api(status)));
            }
        };
        // Only what was taken is known.
        self.say(word).await?;
        if version.is_some() {
            self.version = version;
        }
        Ok(())
    }

    async fn say(&self, word: Word<K::Kept>) -> Result<(), Stop> {
        let said = self.words.send(word).await;
        said.map_err(|_nobody| Stop::Unheard)
    }
}

fn trouble(why: &str) -> Stop {
    Stop::Trouble(why.to_owned())
}

fn late() -> Stop {
    trouble(&format!(
        "the API server does not answer within {REQUEST:?}"
    ))
}

fn unbuilt(error: kube::core::request::Error) -> Stop {
    refused(&kube::Error::BuildRequest(error))
}

/// Source: Kubernetes, "API Concepts", "410 Gone responses".
fn refused(error: &kube::Error) -> Stop {
    if matches!(error, kube::Error::Api(status) if status.code == 410) {
        return Stop::Expired;
    }
    Stop::Trouble(told(error).chars().take(MOST_SAID).collect())
}

/// What the server says of a request that it refused, as its client reads it.
fn failure(status: StatusCode, body: &[u8]) -> Box<Status> {
    let said = serde_json::from_slice::<Status>(body);
    let said = said.unwrap_or_else(|_| {
        // Something between us and the server, which may answer with a page for people.
        let text = String::from_utf8_lossy(body);
        let begin: String = text.trim().chars().take(MOST_SAID).collect();
        Status::failure(&begin, "").with_code(status.as_u16())
    });
    said.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, body: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        match refused(&kube::Error::Api(failure(status, body.as_bytes()))) {
            Stop::Expired => "expired".to_owned(),
            Stop::Unheard => "unheard".to_owned(),
            Stop::Trouble(why) => why,
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_whoever_refused() {
        let forbidden = r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"nodes is forbidden"}"#;
        assert_eq!(
            said(403, forbidden),
            "the API server says 403 Forbidden: nodes is forbidden"
        );
        assert_eq!(
            said(502, " <html>no\n"),
            "the API server says 502: <html>no"
        );
        assert!(said(502, &"x".repeat(100_000)).len() < 2 * MOST_SAID);
        let expired = r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#;
        assert_eq!(said(410, expired), "expired");
    }
}
