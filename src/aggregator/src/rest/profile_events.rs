//! Changes of hardware profiles as server-sent events.
//!
//! Profiles are checked at most once a second for all clients, and a stream sends the difference between two results.
//! Changes that are reverted within a second are therefore not sent, and a slow reader skips intermediate states. A
//! change of nodes or pods is sent within about three seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::Problem;
use octavo_documents::hardware_profiles::document::ProfileRow;
use octavo_documents::hardware_profiles::events::ProfileEvent;
use octavo_fleet::access::Sight;
use octavo_model::digest::Digest;
use octavo_store::clock::Moment;
use octavo_store::profiles::{AGAIN, ProfileReport};
use octavo_store::task_stream::TaskStream;
use octavo_store::view::View;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Api;
use super::events::{BUFFERED_EVENTS, KEEP_ALIVE, SEND_TIMEOUT};
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::profile_filter::ProfileFilter;
use super::profiles::single_values;

type Sender = mpsc::Sender<Result<Message, axum::Error>>;

/// The reader disconnected.
struct Disconnected;

/// Filter and visibility of a stream.
#[derive(Debug)]
struct ProfileStream {
    view: View,
    filter: ProfileFilter,
    visibility: Sight,
}

/// Identity of a profile for clients: namespace, name and kind.
type Key<'a> = (&'a str, &'a str, &'a str);

/// Hardware profiles as they change, as server-sent events
///
/// `profile` has a profile that is new or changed, be it only in how much is free for it; `removed` one that is no more; `synced`
/// says that all that is known has been sent, and only it has an id. Whoever comes back with that id in `Last-Event-ID` is not told
/// again what did not change; with an older one all is told again, with `changes=only` too, and what is not named before `synced`
/// is no more. Changes come once a second at most. Where what is told may be old, `notice` of `synced` says why; when that changes,
/// a `synced` comes by itself.
#[utoipa::path(
    get,
    path = "/api/v1/profile-events",
    tag = "profiles",
    params(
        ("type" = Option<String>, Query, description = "Profiles for this type", example = "nvidia-h200-141gb"),
        ("namespace" = Option<String>, Query, description = "Profiles of this namespace", example = "opendatahub"),
        ("changes" = Option<String>, Query, description = "`only` leaves out the profiles there are at the start", example = "only"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last `synced`, from a stream with the same parameters")
    ),
    responses(
        (status = 200, description = "Events, without end", body = ProfileEvent, content_type = "text/event-stream"),
        (status = 400, description = "A parameter is not known or cannot be as given", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open", body = Problem, content_type = "application/problem+json",
            headers(("Retry-After" = u32, description = "Seconds")))
    )
)]
pub(super) async fn follow_profiles(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let [type_name, namespace, changes] = single_values(pairs, ["type", "namespace", "changes"])?;
    let only_changes = match changes.as_deref() {
        None => false,
        Some("only") => true,
        Some(other) => {
            let other: String = other.chars().take(64).collect();
            let detail = format!("the parameter changes cannot be {other:?}; it can be only");
            return Err(
                ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("changes")
            );
        }
    };
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let detail = "as many event streams are open as there may be; try again later, or ask for /api/v1/profiles";
        ApiError::new(ProblemKind::TooManyStreams, detail)
    })?;
    let last = headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok().map(str::to_owned));
    let following = ProfileStream {
        view: api.view,
        filter: ProfileFilter {
            type_name,
            namespace,
        },
        visibility: sight,
    };
    let events = TaskStream::start(BUFFERED_EVENTS, |sender| async move {
        let _gone = following.run((last, only_changes), &sender, permit).await;
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive))
}

impl ProfileStream {
    /// Sends events until the reader disconnects. Holds the permit for that time.
    async fn run(
        self,
        (last, only_changes): (Option<String>, bool),
        to: &Sender,
        _permit: OwnedSemaphorePermit,
    ) -> Result<(), Disconnected> {
        let mut apart = interval(AGAIN);
        apart.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = self.current_report().await;
        // A client that reconnects with an older ID missed changes, even if it requested changes only.
        let is_known = match last {
            Some(last) => last == self.id(&told),
            None => only_changes,
        };
        if !is_known {
            self.send_changes(&ProfileReport::default(), &told, to)
                .await?;
        }
        let mut notice = self.notice();
        self.synced((&told, notice.as_deref()), to).await?;
        loop {
            tokio::select! {
                _ = apart.tick() => {}
                () = to.closed() => return Err(Disconnected),
            }
            let now = self.current_report().await;
            let before = std::mem::replace(&mut notice, self.notice());
            let is_other =
                now.revision != told.revision && self.send_changes(&told, &now, to).await?;
            if is_other || notice != before {
                self.synced((&now, notice.as_deref()), to).await?;
            }
            told = now;
        }
    }

    async fn current_report(&self) -> Arc<ProfileReport> {
        self.view.profiles().judged(self.view.fleet()).await
    }

    fn notice(&self) -> Option<String> {
        self.view.profiles_notice(&self.visibility)
    }

    /// Sends the difference between two results; returns whether there is any.
    async fn send_changes(
        &self,
        old: &ProfileReport,
        new: &ProfileReport,
        to: &Sender,
    ) -> Result<bool, Disconnected> {
        let mut before: BTreeMap<Key<'_>, &ProfileRow> = self.rows(old).collect();
        let mut any = false;
        for (key, row) in self.rows(new) {
            if before.remove(&key) != Some(row) {
                any = true;
                let profile = row.clone();
                self.send(to, ProfileEvent::Profile { profile }, None)
                    .await?;
            }
        }
        for (namespace, name, object_kind) in before.into_keys() {
            any = true;
            let event = ProfileEvent::Removed {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                object_kind: object_kind.to_owned(),
            };
            self.send(to, event, None).await?;
        }
        Ok(any)
    }

    fn rows<'a>(
        &'a self,
        judged: &'a ProfileReport,
    ) -> impl Iterator<Item = (Key<'a>, &'a ProfileRow)> {
        let rows = judged.visible_to(&self.visibility).map(|(row, _)| row);
        let rows = rows.filter(|row| self.filter.matches(row));
        rows.map(|row| {
            let key = (&*row.namespace, &*row.name, &*row.object_kind);
            (key, row)
        })
    }

    async fn synced(
        &self,
        (judged, notice): (&ProfileReport, Option<&str>),
        to: &Sender,
    ) -> Result<(), Disconnected> {
        let event = ProfileEvent::Synced {
            revision: judged.revision,
            notice: notice.map(ToOwned::to_owned),
        };
        self.send(to, event, Some(self.id(judged))).await
    }

    /// Event ID: identifies the aggregator's run, the revision, and the filter with the visibility.
    fn id(&self, judged: &ProfileReport) -> String {
        let of = format!("{:?} {:?}", self.filter, self.visibility);
        let start = self.view.clock().wall(Moment::default()).as_millisecond();
        format!(
            "{start:x}-{}-{:016x}",
            judged.revision,
            Digest::from_bytes(of.as_bytes()).get()
        )
    }

    async fn send(
        &self,
        to: &Sender,
        event: ProfileEvent,
        id: Option<String>,
    ) -> Result<(), Disconnected> {
        let message = Message::default().event(event.name()).json_data(&event);
        let message = match id {
            Some(id) => message.map(|message| message.id(id)),
            None => message,
        };
        let sent = timeout(SEND_TIMEOUT, to.send(message)).await;
        sent.map_err(|_| Disconnected)?.map_err(|_| Disconnected)
    }
}
