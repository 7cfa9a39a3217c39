//! The list of nodes as CSV (RFC 4180), for spreadsheets.

use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::VisibleTypes;
use octavo_fleet::summary::DeviceUse;
use octavo_model::reported::Reported;
use octavo_model::text::{join, spreadsheet_text};
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Node};
use octavo_store::query::{self, Query};
use octavo_store::task_stream::TaskStream;
use octavo_toolkit::error::chain;
use tokio::sync::mpsc;

use super::PageState;
use super::address::ListAddress;
use super::badges::{format_time, type_name};
use super::groups::GROUP;

/// Number of rows per part of the response. A reader gets the next part when it has read the last one.
const ROWS_PER_PART: usize = 500;

const COLUMNS: [&str; 20] = [
    "node",
    "state",
    "reason",
    "types",
    "devices",
    "free",
    "in_use",
    "partitioned",
    "unavailable",
    "passthrough",
    "unknown",
    "partitions",
    "partitions_free",
    "memory_mib",
    "sharing",
    "layout",
    "layout_state",
    "last_report",
    "agent_connected",
    "agent_version",
];

/// Serves all nodes that match the filter of the list, in its order, as of the time of the request. Counts that are not
/// known are empty.
pub(super) async fn download(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
) -> Response {
    let address = ListAddress::parse(&uri).ok_or_else(|| "invalid encoding".to_owned());
    let query = address.and_then(|address| {
        let address = address.without(GROUP).without("continue").without("limit");
        Query::parse(address.pairs()).map_err(|error| chain(&error))
    });
    let query = match query {
        Ok(query) => Query { limit: usize::MAX, ..query },
        Err(error) => {
            let text = format!("Invalid filter: {error}.\n");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    let (clock, now) = (*site.view.clock(), site.view.clock().now());
    // Without a guard in front of it, the file has no rows.
    let is_guarded = visibility.types == VisibleTypes::All;
    let fleet = if is_guarded { site.view.listed() } else { Fleet::default() };
    let found = query::find(&fleet, &query, now);
    let parts = TaskStream::start(1, |parts| send(found.items, parts, (clock, now)));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment; filename=\"nodes.csv\""),
        ),
    ];
    (headers, Body::from_stream(parts)).into_response()
}

/// Sends the heading and the rows of these nodes, until the reader has all or disconnects.
async fn send(
    nodes: Vec<Arc<Node>>,
    parts: mpsc::Sender<Result<String, Infallible>>,
    (clock, now): (Clock, Moment),
) {
    let mut part = line(COLUMNS.map(str::to_owned));
    for rows in nodes.chunks(ROWS_PER_PART) {
        part.extend(rows.iter().map(|node| line(row(node, &clock, now))));
        if parts.send(Ok(mem::take(&mut part))).await.is_err() {
            return;
        }
    }
    if !part.is_empty() {
        // Without a node, only the heading is left. A reader that is gone needs none.
        let _is_read = parts.send(Ok(part)).await;
    }
}

fn row(node: &Node, clock: &Clock, now: Moment) -> [String; 20] {
    let counts = node.counts(now);
    let of = |of| counts.known_count(of).map_or_else(String::new, |count| count.to_string());
    let types = node.summary.types.iter();
    let types =
        types.map(|one| format!("{} x {}", one.counts.total, type_name(one.type_name.as_ref())));
    let layout = node.summary.layout.as_ref();
    let layout_state = layout.and_then(|layout| layout.state.as_ref()).map(Reported::as_str);
    let known = |count: u32| if counts.unknown > 0 { String::new() } else { count.to_string() };
    [
        node.name.to_string(),
        node.state(now).as_str().to_owned(),
        node.reason(now).unwrap_or_default().to_owned(),
        join(types, "; "),
        counts.total.to_string(),
        of(DeviceUse::Free),
        of(DeviceUse::InUse),
        of(DeviceUse::Partitioned),
        of(DeviceUse::Unavailable),
        of(DeviceUse::Passthrough),
        of(DeviceUse::Unknown),
        known(counts.partitions.total),
        known(counts.partitions.free),
        match node.summary.memory.get() {
            // Every device has memory: zero means that no driver reported it.
            0 => String::new(),
            memory => memory.to_string(),
        },
        node.summary.sharing.as_str().to_owned(),
        layout.and_then(|layout| layout.name.clone()).unwrap_or_default(),
        layout_state.unwrap_or_default().to_owned(),
        if node.has_agent() {
            format_time(clock.wall(node.freshness.confirmed()))
        } else {
            String::new()
        },
        node.connected.to_string(),
        node.agent_version.clone(),
    ]
}

/// Line of a file.
fn line<const N: usize>(cells: [String; N]) -> String {
    let cells = cells.map(|cell| quoted(&cell));
    format!("{}\r\n", cells.join(","))
}

/// Cell of a file.
fn quoted(text: &str) -> String {
    let text = spreadsheet_text(text);
    if text.starts_with('\'') || text.contains([',', '"', '\r', '\n', ';', '\t']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_become_texts() {
        for (text, cell) in [
            ("gpu-01", "gpu-01"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"\n", "\"say \"\"x\"\"\n\""),
            ("=HYPERLINK(\"http://x\")", "\"'=HYPERLINK(\"\"http://x\"\")\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t=1\""),
            ("\u{ff1d}1", "\"'\u{ff1d}1\""),
            ("\u{ff20}SUM(A1)", "\"'\u{ff20}SUM(A1)\""),
            ("a=b", "a=b"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }
}
