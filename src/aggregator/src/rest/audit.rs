//! Audit trail as JSON lines, from the ledger.

use std::io;

use axum::extract::State;
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::problem::Problem;
use octavo_ledger::audit::AuditQuery;
use octavo_store::ledger::{LedgerReader, parse_audit_query};
use octavo_store::task_stream::TaskStream;
use octavo_toolkit::error::chain;
use tokio::sync::mpsc;
use tracing::warn;

use super::Api;
use super::attachment::{Part, attachment};
use super::cost::{ledger, ledger_error};
use super::nodes::QueryPairs;
use super::problem::ApiError;

const JSON_LINES: &str = "application/x-ndjson";

/// Export the audit trail
///
/// One entry per line, oldest first, with its hash. Entries of a time range are consecutive, so that `octavo audit verify` can verify
/// them; those of a namespace or kind are not. Requires the permission to list audit entries, which name users, pods and nodes
/// of all namespaces.
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "fleet",
    params(
        ("from" = Option<String>, Query, description = "Start: a date in UTC, or a time (RFC 3339); by default the oldest entry", example = "2026-11-01"),
        ("until" = Option<String>, Query, description = "End, exclusive; by default the newest entry", example = "2026-12-01"),
        ("namespace" = Option<String>, Query, description = "Only entries about this namespace", example = "team-a"),
        ("kind" = Option<String>, Query, description = "Only entries of this kind: `change`, `refusal`, `usage`, `node` or `policy`", example = "usage")
    ),
    responses(
        (status = 200, description = "The entries", body = String, content_type = "application/x-ndjson"),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The aggregator has no ledger", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The ledger cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn audit(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Response, ApiError> {
    let query = parse_audit_query(pairs)?;
    let ledger = ledger(&api)?.clone();
    let range = ledger.audit_range(&query).await;
    let range = range.map_err(|error| ledger_error(&error, "from", &visibility))?;
    let parts = TaskStream::start(1, |parts| send(ledger, query, range, parts));
    Ok(attachment(JSON_LINES, "attachment; filename=\"audit.jsonl\"", parts))
}

/// Sends the entries in this range of numbers until the reader has all or disconnects. One page is in memory at a time.
async fn send(
    ledger: LedgerReader,
    query: AuditQuery,
    range: Option<(i64, i64)>,
    parts: mpsc::Sender<Part<String>>,
) {
    let Some((mut first, last)) = range else { return };
    loop {
        let page = match ledger.audit_page(&query, (first, last)).await {
            Ok(page) => page,
            Err(error) => {
                let error = chain(&error);
                warn!(
                    error,
                    "the export of the audit trail is incomplete; its connection is closed"
                );
                let error = io::Error::other("the audit trail cannot be exported");
                // A reader that is gone needs no error.
                let _is_read = parts.send(Err(error)).await;
                return;
            }
        };
        let is_open = parts.send(Ok(page.lines)).await.is_ok();
        match page.next {
            Some(next) if is_open => first = next,
            Some(_) | None => return,
        }
    }
}
