//! Changes of hardware profiles as server-sent events.
//!
//! Profiles are checked at most once a second for all clients, and a stream sends the difference between two results.
//! Changes that are reverted within a second are therefore not sent, and a slow reader skips intermediate states. A
//! change of nodes or pods is sent within about three seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event as Message;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::hardware_profile::ProfileKind;
use octavo_fleet::hardware_profile::document::{ProfileEvent, ProfileRow};
use octavo_fleet::problem::Problem;
use octavo_model::digest::Digest;
use octavo_model::reported::Reported;
use octavo_store::clock::Moment;
use octavo_store::profiles::{AGAIN, ProfileReport};
use octavo_store::view::FleetView;
use tokio::time::{MissedTickBehavior, interval};

use super::Api;
use super::nodes::QueryPairs;
use super::problem::ApiError;
use super::profile_filter::ProfileFilter;
use super::profiles::single_values;
use super::sse::{Disconnected, EventSender, only_changes, respond};

/// Filter and visibility of a stream.
#[derive(Debug)]
struct ProfileStream {
    view: FleetView,
    filter: ProfileFilter,
    visibility: Visibility,
}

/// Identity of a profile for clients: namespace, name and kind.
type Key<'a> = (&'a str, &'a str, &'a Reported<ProfileKind>);

/// Watch hardware profiles through server-sent events
///
/// `profile` contains a new or changed profile, including changes of its available capacity. `removed` identifies a removed
/// profile. `synced` follows each batch; only this event has an id. Changes are sent at most once per second.
///
/// To resume, send the last id in `Last-Event-ID`: unchanged profiles are then skipped. If the id is too old, all profiles are
/// sent again, even with `changes=only`; profiles that are not sent before `synced` no longer exist. If the data may be
/// outdated, `notice` of `synced` contains the reason. When the notice changes, the server sends a `synced` without a change.
#[utoipa::path(
    get,
    path = "/api/v1/profile-events",
    tag = "profiles",
    params(
        ("type" = Option<String>, Query, description = "Type of the profiles", example = "nvidia-h200-141gb"),
        ("namespace" = Option<String>, Query, description = "Namespace of the profiles", example = "opendatahub"),
        ("changes" = Option<String>, Query, description = "`only`: skip the initial list of profiles", example = "only"),
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last `synced` event of a stream with the same parameters")
    ),
    responses(
        (status = 200, description = "Stream of events", body = ProfileEvent, content_type = "text/event-stream"),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many open streams", body = Problem, content_type = "application/problem+json",
            headers(("Retry-After" = u32, description = "Seconds")))
    )
)]
pub(super) async fn follow_profiles(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let [type_name, namespace, changes] = single_values(pairs, ["type", "namespace", "changes"])?;
    let only_changes = only_changes(changes.as_deref().unwrap_or_default())?;
    let last = headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok().map(str::to_owned));
    let stream = ProfileStream {
        view: api.view.clone(),
        filter: ProfileFilter { type_name, namespace },
        visibility,
    };
    respond(&api, "/api/v1/profiles", |sender| stream.run((last, only_changes), sender))
}

impl ProfileStream {
    /// Sends events until the reader disconnects.
    async fn run(
        self,
        (last, only_changes): (Option<String>, bool),
        to: EventSender,
    ) -> Result<(), Disconnected> {
        let mut apart = interval(AGAIN);
        apart.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = self.current_report().await;
        // A client that reconnects with an older ID missed changes, even if it requested changes only.
        let is_known = match last {
            Some(last) => last == self.id(&sent),
            None => only_changes,
        };
        if !is_known {
            self.send_changes(&ProfileReport::default(), &sent, &to).await?;
        }
        let mut notice = self.notice();
        self.synced((&sent, notice.as_deref()), &to).await?;
        loop {
            tokio::select! {
                _ = apart.tick() => {}
                () = to.closed() => return Err(Disconnected),
            }
            let now = self.current_report().await;
            let before = std::mem::replace(&mut notice, self.notice());
            let is_other =
                now.revision != sent.revision && self.send_changes(&sent, &now, &to).await?;
            if is_other || notice != before {
                self.synced((&now, notice.as_deref()), &to).await?;
            }
            sent = now;
        }
    }

    async fn current_report(&self) -> Arc<ProfileReport> {
        self.view.profiles().recent_report(self.view.fleet()).await
    }

    fn notice(&self) -> Option<String> {
        self.view.profiles_notice(&self.visibility)
    }

    /// Sends the difference between two results; returns whether there is any.
    async fn send_changes(
        &self,
        old: &ProfileReport,
        new: &ProfileReport,
        to: &EventSender,
    ) -> Result<bool, Disconnected> {
        let mut before: BTreeMap<Key<'_>, &ProfileRow> = self.rows(old).collect();
        let mut any = false;
        for (key, row) in self.rows(new) {
            if before.remove(&key) != Some(row) {
                any = true;
                let profile = row.clone();
                self.send(to, ProfileEvent::Profile { profile }, None).await?;
            }
        }
        for (namespace, name, object_kind) in before.into_keys() {
            any = true;
            let event = ProfileEvent::Removed {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                object_kind: object_kind.clone(),
            };
            self.send(to, event, None).await?;
        }
        Ok(any)
    }

    fn rows<'a>(
        &'a self,
        report: &'a ProfileReport,
    ) -> impl Iterator<Item = (Key<'a>, &'a ProfileRow)> {
        let rows = report.visible_to(&self.visibility).map(|(row, _)| row);
        let rows = rows.filter(|row| self.filter.matches(row));
        rows.map(|row| {
            let key = (&*row.namespace, &*row.name, &row.object_kind);
            (key, row)
        })
    }

    async fn synced(
        &self,
        (report, notice): (&ProfileReport, Option<&str>),
        to: &EventSender,
    ) -> Result<(), Disconnected> {
        let event = ProfileEvent::Synced {
            revision: report.revision,
            notice: notice.map(ToOwned::to_owned),
        };
        self.send(to, event, Some(self.id(report))).await
    }

    /// Event ID: identifies the aggregator's run, the revision, and the filter with the visibility.
    fn id(&self, report: &ProfileReport) -> String {
        let of = format!("{:?} {:?}", self.filter, self.visibility);
        let start = self.view.clock().wall(Moment::default()).as_millisecond();
        format!("{start:x}-{}-{:016x}", report.revision, Digest::from_bytes(of.as_bytes()).get())
    }

    async fn send(
        &self,
        to: &EventSender,
        event: ProfileEvent,
        id: Option<String>,
    ) -> Result<(), Disconnected> {
        let message = Message::default().event(event.name()).json_data(&event);
        let message = match id {
            Some(id) => message.map(|message| message.id(id)),
            None => message,
        };
        to.send(message).await
    }
}
