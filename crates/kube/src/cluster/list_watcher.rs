//! Continuous list and watch of all objects of one kind.
//!
//! Implemented on the client's requests instead of `kube::runtime::watcher`, which reports neither bookmarks nor that an
//! idle watch was renewed, and does not bound the bytes of a page (kube 5.0). Without the former, the absence of events
//! cannot be distinguished from a lost connection. Objects are reduced to the
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

use super::extract::Extracted;
use crate::backoff::ReconnectBackoff;
use crate::client::{REQUEST_TIMEOUT, RequestError, describe_error, request};

/// Server-side watch timeout in seconds. Renewing an idle watch confirms that nothing has changed.
const WATCH_TIMEOUT_SECONDS: u32 = 30;
/// A watch without any event or end for this long counts as broken.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// Minimum interval between the starts of two watches, however fast they end.
const MIN_WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Page size in objects.
const PAGE_SIZE: u32 = 500;
/// Size limit of a page in bytes. If a page exceeds it, the next request asks for fewer objects, each of which has 1.5
/// MiB at most.
const MAX_PAGE_BYTES: usize = 32 << 20;
/// Maximum length of an error message in characters.
const MAX_ERROR_CHARS: usize = 500;
/// After this many consecutive failures to start a watch, list again: the server's state may have changed.
const MAX_WATCH_FAILURES: u32 = 2;

/// An object type.
pub(super) trait WatchedKind: DeserializeOwned + Clone + Send + 'static {
    /// API path.
    const PATH: &str;
    /// Plural name.
    const NAME: &str;
    /// Field selector.
    const FIELD_SELECTOR: Option<&str>;
    /// The stored form of an object.
    type Extract: Send;

    /// Returns the resource version.
    fn version(&self) -> Option<String>;
    /// Extracts the stored fields.
    fn read(self) -> Extracted<Self::Extract>;
}

/// An update of the objects of a kind.
#[derive(Debug)]
pub(super) enum WatchUpdate<T> {
    /// The complete list.
    Reset(Vec<Extracted<T>>),
    /// An object was added or modified.
    Upserted(Extracted<T>),
    /// An object was deleted.
    Deleted(T),
    /// Nothing has changed.
    Bookmark,
    /// The objects are currently not watched, with the reason.
    Failed(String),
}

/// Reason for the end of a list or watch.
enum StopReason {
    /// The resource version has expired.
    Expired,
    /// An error message.
    Trouble(String),
    /// All receivers are gone.
    ReceiverDropped,
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
    continue_token: Option<String>,
}

/// Lists the objects that `params` select, page by page.
pub(super) async fn list<K: WatchedKind>(
    client: &Client,
    mut params: ListParams,
) -> Result<Vec<K::Extract>, RequestError> {
    params.limit = Some(PAGE_SIZE);
    let mut all = Vec::new();
    loop {
        let page = async {
            let request = Request::new(K::PATH).list(&params).map_err(kube::Error::BuildRequest)?;
            client.request::<Page<K>>(request).await
        };
        let page = request(page).await?;
        all.extend(page.items.unwrap_or_default().into_iter().map(|item| item.read().object));
        params.continue_token = page.metadata.continue_token.filter(|rest| !rest.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

/// Lists and watches objects of one kind.
pub(super) struct ListWatcher<K: WatchedKind> {
    client: Client,
    updates: mpsc::Sender<WatchUpdate<K::Extract>>,
    /// The resource version up to which all changes are known; `None` before the first list.
    version: Option<String>,
    failures: u32,
}

impl<K: WatchedKind> ListWatcher<K> {
    pub(super) fn new(client: Client, updates: mpsc::Sender<WatchUpdate<K::Extract>>) -> Self {
        Self { client, updates, version: None, failures: 0 }
    }

    /// Runs until all receivers are gone.
    pub(super) async fn run(mut self) {
        let mut backoff = ReconnectBackoff::default();
        loop {
            let stop = match self.list_or_watch().await {
                Ok(()) => {
                    self.failures = 0;
                    continue;
                }
                Err(stop) => stop,
            };
            self.failures = self.failures.saturating_add(1);
            match stop {
                StopReason::ReceiverDropped => return,
                StopReason::Expired => self.version = None,
                StopReason::Trouble(why) => {
                    if self.failures >= MAX_WATCH_FAILURES {
                        self.version = None;
                    }
                    if self.send_update(WatchUpdate::Failed(why)).await.is_err() {
                        return;
                    }
                }
            }
            sleep(backoff.next().unwrap_or(MAX_SILENCE)).await;
        }
    }

    /// Runs one list, or one watch to its end.
    async fn list_or_watch(&mut self) -> Result<(), StopReason> {
        let Some(version) = self.version.clone() else {
            return self.list().await;
        };
        let began = Instant::now();
        self.watch(&version).await?;
        // An intermediate proxy may have cut the connection, and may do so with every response.
        sleep_until(began + MIN_WATCH_INTERVAL).await;
        Ok(())
    }

    async fn list(&mut self) -> Result<(), StopReason> {
        let mut all = Vec::new();
        let mut limit = PAGE_SIZE;
        let mut rest = None;
        loop {
            let page = match self.page(limit, rest.clone()).await? {
                Some(page) => page,
                None if limit > 1 => {
                    limit /= 4;
                    limit = limit.max(1);
                    continue;
                }
                None => return Err(failed("an object is larger than 32 MiB")),
            };
            all.extend(page.items.unwrap_or_default().into_iter().map(K::read));
            rest = page.metadata.continue_token.filter(|rest| !rest.is_empty());
            if rest.is_none() {
                let version = page.metadata.resource_version;
                let version = version.filter(|version| !version.is_empty());
                self.version =
                    Some(version.ok_or_else(|| failed("the list has no resource version"))?);
                return self.send_update(WatchUpdate::Reset(all)).await;
            }
        }
    }

    /// Requests the next page of a list; `None` if it exceeds the size limit.
    async fn page(&self, limit: u32, rest: Option<String>) -> Result<Option<Page<K>>, StopReason> {
        let params = ListParams {
            limit: Some(limit),
            continue_token: rest,
            field_selector: K::FIELD_SELECTOR.map(str::to_owned),
            ..ListParams::default()
        };
        let request = Request::new(K::PATH).list(&params).map_err(invalid_request)?;
        let page = async {
            let result = self.client.send(request.map(Body::from)).await;
            let (head, body) = result.map_err(|error| api_error(&error))?.into_parts();
            match Limited::new(body, MAX_PAGE_BYTES).collect().await {
                Ok(body) => Ok(Some((head.status, body.to_bytes()))),
                Err(error) if error.is::<LengthLimitError>() => Ok(None),
                Err(error) => Err(failed(&format!("the list is incomplete: {error}"))),
            }
        };
        let Some((status, body)) =
            timeout(REQUEST_TIMEOUT, page).await.map_err(|_| timed_out())??
        else {
            return Ok(None);
        };
        if !status.is_success() {
            return Err(api_error(&kube::Error::Api(failure(status, &body))));
        }
        let page = serde_json::from_slice(&body);
        page.map(Some).map_err(|error| failed(&format!("cannot parse the list: {error}")))
    }

    async fn watch(&mut self, version: &str) -> Result<(), StopReason> {
        let params = WatchParams {
            timeout: Some(WATCH_TIMEOUT_SECONDS),
            field_selector: K::FIELD_SELECTOR.map(str::to_owned),
            ..WatchParams::default()
        };
        let request = Request::new(K::PATH).watch(&params, version).map_err(invalid_request)?;
        let begin = timeout(REQUEST_TIMEOUT, self.client.request_events::<K>(request));
        let events = begin.await.map_err(|_| timed_out())?;
        let mut events = Box::pin(events.map_err(|error| api_error(&error))?);
        self.failures = 0;
        self.send_update(WatchUpdate::Bookmark).await?;
        loop {
            let silence = || failed(&format!("no watch event for {} s", MAX_SILENCE.as_secs()));
            let Some(event) = timeout(MAX_SILENCE, events.next()).await.map_err(|_| silence())?
            else {
                return Ok(());
            };
            self.apply_event(event.map_err(|error| api_error(&error))?).await?;
        }
    }

    async fn apply_event(&mut self, event: WatchEvent<K>) -> Result<(), StopReason> {
        let (version, update) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                (object.version(), WatchUpdate::Upserted(object.read()))
            }
            WatchEvent::Deleted(object) => {
                (object.version(), WatchUpdate::Deleted(object.read().object))
            }
            WatchEvent::Bookmark(mark) => {
                (Some(mark.metadata.resource_version), WatchUpdate::Bookmark)
            }
            WatchEvent::Error(status) => {
                // A watch that ended in an error must not be resumed from its version.
                self.version = None;
                return Err(api_error(&kube::Error::Api(status)));
            }
        };
        // The version advances only after the update was delivered.
        self.send_update(update).await?;
        if version.is_some() {
            self.version = version;
        }
        Ok(())
    }

    async fn send_update(&self, update: WatchUpdate<K::Extract>) -> Result<(), StopReason> {
        let result = self.updates.send(update).await;
        result.map_err(|_closed| StopReason::ReceiverDropped)
    }
}

fn failed(why: &str) -> StopReason {
    StopReason::Trouble(why.to_owned())
}

fn timed_out() -> StopReason {
    failed(&format!("no response from the API server within {REQUEST_TIMEOUT:?}"))
}

fn invalid_request(error: kube::core::request::Error) -> StopReason {
    api_error(&kube::Error::BuildRequest(error))
}

/// Converts an API error; 410 means that the version has expired. Source: Kubernetes, "API Concepts", "410 Gone
/// responses".
fn api_error(error: &kube::Error) -> StopReason {
    if matches!(error, kube::Error::Api(status) if status.code == 410) {
        return StopReason::Expired;
    }
    StopReason::Trouble(describe_error(error).chars().take(MAX_ERROR_CHARS).collect())
}

/// Parses the body of an error response as the client does.
fn failure(status: StatusCode, body: &[u8]) -> Box<Status> {
    let parsed = serde_json::from_slice::<Status>(body);
    let parsed = parsed.unwrap_or_else(|_| {
        // A proxy may respond with an HTML page.
        let text = String::from_utf8_lossy(body);
        let begin: String = text.trim().chars().take(MAX_ERROR_CHARS).collect();
        Status::failure(&begin, "").with_code(status.as_u16())
    });
    parsed.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, body: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        match api_error(&kube::Error::Api(failure(status, body.as_bytes()))) {
            StopReason::Expired => "expired".to_owned(),
            StopReason::ReceiverDropped => "unheard".to_owned(),
            StopReason::Trouble(why) => why,
        }
    }

    #[test]
    fn error_response_is_reported_verbatim() {
        let forbidden = r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"nodes is forbidden"}"#;
        assert_eq!(
            error(403, forbidden),
            "the API server returned 403 Forbidden: nodes is forbidden"
        );
        assert_eq!(error(502, " <html>no\n"), "the API server returned 502: <html>no");
        assert!(error(502, &"x".repeat(100_000)).len() < 2 * MAX_ERROR_CHARS);
        let expired = r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#;
        assert_eq!(error(410, expired), "expired");
    }
}
