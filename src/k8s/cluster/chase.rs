//! Continuous list and watch of all objects of one kind.
//!
//! Implemented on the client's requests instead of its `watcher`, which does not report that an idle watch was renewed.
//! Without that, the absence of events cannot be distinguished from a lost connection. Objects are reduced to the
//! relevant fields as they arrive, page by page.

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

/// Server-side watch timeout in seconds. Renewing an idle watch confirms that nothing has changed.
const WATCH: u32 = 30;
/// A watch without any event or end for this long counts as broken.
const SILENCE: Duration = Duration::from_secs(45);
/// Minimum interval between the starts of two watches, however fast they end.
const BREATH: Duration = Duration::from_secs(1);
/// Page size in objects.
const PAGE: u32 = 500;
/// Size limit of a page in bytes. If a page exceeds it, the next request asks for fewer objects, each of which has 1.5
/// MiB at most.
const PAGE_BYTES: usize = 32 << 20;
/// Maximum length of an error message in characters.
const MOST_SAID: usize = 500;
/// After this many consecutive failures to start a watch, list again: the server's state may have changed.
const TRIES: u32 = 2;

/// An object type.
pub(super) trait Kind: DeserializeOwned + Clone + Send + 'static {
    /// API path.
    const PATH: &str;
    /// Plural name.
    const NAME: &str;
    /// Field selector.
    const FIELDS: Option<&str>;
    /// The stored form of an object.
    type Kept: Send;

    /// Returns the resource version.
    fn version(&self) -> Option<String>;
    /// Extracts the stored fields.
    fn read(self) -> Read<Self::Kept>;
}

/// An update of the objects of a kind.
#[derive(Debug)]
pub(super) enum Word<T> {
    /// The complete list.
    All(Vec<Read<T>>),
    /// An object was added or modified.
    Is(Read<T>),
    /// An object was deleted.
    Gone(T),
    /// Nothing has changed.
    Same,
    /// The objects are currently not watched, with the reason.
    Trouble(String),
}

/// Reason for the end of a list or watch.
enum Stop {
    /// The resource version has expired.
    Expired,
    /// An error message.
    Trouble(String),
    /// All receivers are gone.
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

/// Lists and watches objects of one kind.
pub(super) struct Chase<K: Kind> {
    client: Client,
    words: mpsc::Sender<Word<K::Kept>>,
    /// The resource version up to which all changes are known; `None` before the first list.
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

    /// Runs until all receivers are gone.
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

    /// Runs one list, or one watch to its end.
    async fn turn(&mut self) -> Result<(), Stop> {
        let Some(version) = self.version.clone() else {
            return self.list().await;
        };
        let began = Instant::now();
        self.watch(&version).await?;
        // An intermediate proxy may have cut the connection, and may do so with every response.
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

    /// Requests the next page of a list; `None` if it exceeds the size limit.
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
                // A watch that ended in an error must not be resumed from its version.
                self.version = None;
                return Err(refused(&kube::Error::Api(status)));
            }
        };
        // The version advances only after the update was delivered.
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

/// Converts an API error; 410 means that the version has expired. Source: Kubernetes, "API Concepts", "410 Gone
/// responses".
fn refused(error: &kube::Error) -> Stop {
    if matches!(error, kube::Error::Api(status) if status.code == 410) {
        return Stop::Expired;
    }
    Stop::Trouble(told(error).chars().take(MOST_SAID).collect())
}

/// Parses the body of an error response as the client does.
fn failure(status: StatusCode, body: &[u8]) -> Box<Status> {
    let said = serde_json::from_slice::<Status>(body);
    let said = said.unwrap_or_else(|_| {
        // A proxy may respond with an HTML page.
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
