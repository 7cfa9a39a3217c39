//! Pages of hardware profiles: the list, a profile, and a new profile created from nodes selected in the list.
//!
//! A page shows the object and the commands that create it, which run with the user's own permissions. If the
//! aggregator was started with profile creation, a page can also create one for an authorized user.

pub(super) mod compare;
mod detail;
mod draft;
mod estimate;
pub(super) mod objectives;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::{Extension, Form};
use octavo_access::creation::{ProfileCreator, Requester};
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::hardware_profile::document::{self, ProfileRow, ProfileSource};
use octavo_fleet::hardware_profile::{FindingSeverity, Identifier};
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use tokio::sync::Semaphore;

use self::draft::PageReader;
use self::estimate::Estimate;
use super::address::{parameter_error, profile_path};
use super::badges::{Badge, count_noun, format_memory, printable};
use super::frame::Frame;
use super::{NotFoundPage, PageState, html, origin, status_of};

/// Maximum number of rows, ordered by namespace and name.
const MAX_ROWS: usize = 500;
/// Maximum length of a form other than that of a new profile.
pub(super) const MAX_FORM_BYTES: usize = 256 << 10;
/// Maximum length of the form of a new profile: the maximum number of nodes with names of maximum length, and the other
/// fields.
pub(super) const MAX_DRAFT_FORM_BYTES: usize = 2 << 20;
/// Maximum number of concurrent requests with forms longer than [`MAX_FORM_BYTES`].
pub(super) const MAX_LONG_FORMS: usize = 8;

/// List of profiles.
#[derive(Template)]
#[template(path = "profiles.html")]
struct ListPage {
    frame: Frame,
    notice: Option<String>,
    /// Message about an invalid parameter.
    wrong: Option<String>,
    /// Whether neither the cluster nor a file provides profiles.
    is_nowhere: bool,
    caption: String,
    rows: Vec<ProfileListRow>,
    /// Number of profiles that are not shown.
    more: usize,
    origin: String,
}

/// Row of a profile.
#[derive(Debug)]
struct ProfileListRow {
    href: String,
    shown: String,
    key: String,
    types: String,
    memory: String,
    architecture: String,
    asks: Vec<String>,
    available: String,
    reach: String,
    badge: Badge,
    findings: Vec<String>,
}

pub(super) async fn list(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let profiles = site.view.profiles();
    let report = profiles.latest_report(site.view.fleet()).await;
    let seen = report.visible_to(&visibility);
    let all = seen.clone().count();
    let shown = seen.take(MAX_ROWS);
    let rows: Vec<ProfileListRow> = shown.map(|(row, _)| ProfileListRow::of(row)).collect();
    let page = ListPage {
        frame: Frame::new(&site.view),
        notice: site.view.profiles_notice(&visibility).map(|text| printable(&text)),
        wrong: parameter_error(&uri, ""),
        is_nowhere: report.source == ProfileSource::Nowhere && rows.is_empty(),
        caption: count_noun(all, "hardware profile", "hardware profiles"),
        more: all.saturating_sub(rows.len()),
        rows,
        origin: origin(&uri, &headers),
    };
    html(status_of(page.wrong.as_ref()), &page)
}

/// Serves a profile without a namespace, which a file may contain.
pub(super) async fn profile_without_namespace(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    answer((&site, &visibility), ("", &name), (&uri, &origin(&uri, &headers))).await
}

pub(super) async fn profile(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = origin(&uri, &headers);
    answer((&site, &visibility), (&namespace, &name), (&uri, &origin)).await
}

async fn answer(
    (site, visibility): (&PageState, &Visibility),
    (namespace, name): (&str, &str),
    (uri, origin): (&Uri, &str),
) -> Response {
    let profiles = site.view.profiles();
    let report = profiles.latest_report(site.view.fleet()).await;
    let mut all = report.visible_to(visibility);
    // If a namespace has profiles of both kinds, the current kind sorts first and is shown.
    let found = all.find(|(row, _)| row.name == name && row.namespace == namespace);
    let Some((row, annotations)) = found else {
        let page = NotFoundPage {
            frame: Frame::new(&site.view),
            title: "Hardware profile not found",
            text: "No hardware profile with this name is known in this namespace. It may have been removed.",
        };
        return html(StatusCode::NOT_FOUND, &page);
    };
    let estimate = Estimate::of((&site.view, visibility), row, (uri, origin)).await;
    let notice = site.view.profiles_notice(visibility);
    let page = detail::page(Frame::new(&site.view), row, annotations, notice, (origin, estimate));
    html(StatusCode::OK, &page)
}

/// Serves the form of a new profile.
pub(super) async fn new(
    State(site): State<PageState>,
    creator: Option<Extension<ProfileCreator>>,
    (ReaderVisibility(visibility), who): (ReaderVisibility, Requester),
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let reader = PageReader {
        who,
        visibility,
        creator: creator.map(|Extension(creator)| creator),
        origin: origin(&uri, &headers),
    };
    let (status, page) = draft::page(&site, &uri, reader).await;
    html(status, &page)
}

/// Handles the form of a new profile: validates or creates it.
pub(super) async fn submit_draft(
    State(site): State<PageState>,
    creator: Option<Extension<ProfileCreator>>,
    (ReaderVisibility(visibility), who): (ReaderVisibility, Requester),
    (uri, headers): (Uri, HeaderMap),
    Form(pairs): Form<Vec<(String, String)>>,
) -> Response {
    let reader = PageReader {
        who,
        visibility,
        creator: creator.map(|Extension(creator)| creator),
        origin: origin(&uri, &headers),
    };
    let (status, page) = draft::submit(&site, pairs, reader).await;
    html(status, &page)
}

/// Bounds the memory that long forms take: refuses further ones while [`MAX_LONG_FORMS`] are being handled.
pub(super) async fn limit_long_forms(
    State(forms): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let is_short = length.is_some_and(|length| length <= MAX_FORM_BYTES);
    if request.method() != Method::POST || is_short {
        return next.run(request).await;
    }
    let Ok(_permit) = forms.try_acquire() else {
        let page = NotFoundPage {
            frame: Frame::without_cluster(),
            title: "The server is busy",
            text: "The server is already processing the maximum number of large forms. Submit this one again in a few seconds.",
        };
        let mut response = html(StatusCode::SERVICE_UNAVAILABLE, &page);
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    };
    next.run(request).await
}

impl ProfileListRow {
    fn of(row: &ProfileRow) -> Self {
        Self {
            href: href(row),
            shown: printable(&row.display_name),
            key: printable(&key(row)),
            types: types(row),
            memory: row.memory_mib.map_or_else(|| "-".to_owned(), memory_of),
            architecture: row.architecture.as_deref().map_or_else(|| "-".to_owned(), printable),
            asks: row.identifiers.iter().map(format_count).collect(),
            available: row.available.map_or_else(|| "-".to_owned(), |free| free.to_string()),
            reach: reach_summary(row),
            badge: verdict(row),
            findings: { row.findings.iter() }.map(|one| printable(&one.message)).collect(),
        }
    }
}

/// Formats `namespace/name`.
fn key(row: &ProfileRow) -> String {
    match row.namespace.as_str() {
        "" => row.name.clone(),
        namespace => format!("{namespace}/{}", row.name),
    }
}

fn href(row: &ProfileRow) -> String {
    profile_path(&row.namespace, &row.name)
}

fn types(row: &ProfileRow) -> String {
    match row.types.as_slice() {
        [] => "any".to_owned(),
        all => {
            let names: Vec<&str> = all.iter().map(TypeName::as_str).collect();
            printable(&names.join(", "))
        }
    }
}

fn memory_of(mib: u64) -> String {
    format_memory(Mebibytes::new(mib))
}

/// Formats a default count: `1 nvidia.com/gpu`, `16Gi memory`.
fn format_count(one: &Identifier) -> String {
    printable(&format!("{} {}", one.default, one.resource))
}

fn reach_summary(row: &ProfileRow) -> String {
    let Some(reach) = &row.reach else {
        return "-".to_owned();
    };
    let nodes = count_noun(usize::try_from(reach.nodes).unwrap_or(usize::MAX), "node", "nodes");
    match reach.unavailable_nodes {
        0 => nodes,
        closed => format!("{nodes}, {closed} unavailable"),
    }
}

/// Badge of the most severe finding.
fn verdict(row: &ProfileRow) -> Badge {
    let worst = row.findings.iter().filter_map(|one| one.severity.known()).max();
    worst.map_or(Badge { tone: "good", icon: "ok", word: "ok" }, severity)
}

fn severity(severity: FindingSeverity) -> Badge {
    let (tone, icon) = match severity {
        FindingSeverity::Error => ("bad", "bad"),
        FindingSeverity::Warning => ("warn", "warn"),
        FindingSeverity::Note => ("soft", "note"),
    };
    let word = severity.as_str();
    Badge { tone, icon, word }
}

/// Finding as shown on a page.
#[derive(Debug)]
struct FindingRow {
    badge: Badge,
    message: String,
    remedy: String,
}

impl FindingRow {
    fn of(one: &document::FindingRow) -> Self {
        Self {
            badge: severity(one.severity.known().unwrap_or(FindingSeverity::Note)),
            message: printable(&one.message),
            remedy: printable(&one.remedy),
        }
    }
}
