//! Usage and cost as a FOCUS dataset, from the ledger.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::{AccessReview, Resource, Verb};
use octavo_fleet::price::PriceBook;
use octavo_fleet::problem::Problem;
use octavo_ledger::focus::{BillingAccount, OriginCharge, header};
use octavo_store::ledger::{FocusQuery, LedgerReader};
use octavo_store::task_stream::TaskStream;
use octavo_toolkit::error::chain;
use tokio::sync::mpsc;
use tracing::warn;

use super::Api;
use super::attachment::{Part, attachment};
use super::cost::{ledger, ledger_error};
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

const CSV: &str = "text/csv; charset=utf-8; header=present";

/// An export and its source.
struct Export {
    query: FocusQuery,
    ledger: LedgerReader,
    prices: Arc<PriceBook>,
    account: BillingAccount,
}

/// Get a FOCUS dataset of usage and cost
///
/// CSV with the columns of FOCUS 1.2 and the columns of FOCUS 1.3 for split costs. A row is the part of a node's devices that a pod was
/// allocated on a day, or the part that was unallocated or unknown. Requires the permission to list usage in all namespaces, and to list
/// nodes.
#[utoipa::path(
    get,
    path = "/api/v1/cost/focus",
    tag = "fleet",
    params(
        ("from" = Option<String>, Query, description = "First day in UTC; by default the first day of this month", example = "2026-11-01"),
        ("until" = Option<String>, Query, description = "Day after the last one, at most 31 days after `from`; by default tomorrow", example = "2026-12-01")
    ),
    responses(
        (status = 200, description = "The dataset", body = String, content_type = "text/csv"),
        (status = 400, description = "Unknown or invalid parameter, or too many groups", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The aggregator has no ledger or no price book", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The ledger cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn focus(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Response, ApiError> {
    let clock = api.view.clock();
    let query = FocusQuery::parse(pairs, clock.wall(clock.now()))?;
    let ledger = ledger(&api)?.clone();
    if !visibility.nodes {
        let nodes = AccessReview::all(Verb::List, Resource::Nodes);
        let detail = format!("the export names nodes and requires the permission to {nodes}");
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let prices = api.view.prices().prices.map(|prices| Arc::clone(prices.book()));
    let prices = prices.ok_or_else(|| {
        let detail = "the aggregator has no price book, and rows need a currency; start it with --price-book";
        ApiError::new(ProblemKind::NoPriceBook, detail)
    })?;
    let cluster = api.view.cluster_name().map(ToString::to_string);
    let account = BillingAccount { cluster, currency: prices.currency().clone() };
    let export = Export { query, ledger, prices, account };
    let deleted = export.ledger.deleted_before().await;
    let deleted = deleted.map_err(|error| ledger_error(&error, "from", &visibility))?;
    if let Some(first) = deleted.filter(|first| export.query.from < *first) {
        let detail =
            format!("usage by pod before {} is deleted (--ledger-detail-days)", first.date());
        return Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("from"));
    }
    // Errors of the first day have a status; those of later days can only close the connection.
    let first = export.ledger.focus_charges(query.from, &export.prices).await;
    let first = first.map_err(|error| ledger_error(&error, "from", &visibility))?;
    let parts = TaskStream::start(1, |parts| export.send(first, parts));
    Ok(attachment(CSV, "attachment; filename=\"focus.csv\"", parts))
}

impl Export {
    /// Sends the file, with the charges of the first day, until the reader has all or disconnects. One day is in memory at a time.
    async fn send(self, first: Vec<OriginCharge>, parts: mpsc::Sender<Part<Vec<u8>>>) {
        let is_open = parts.send(Ok(header())).await.is_ok() && self.send_day(first, &parts).await;
        if !is_open {
            return;
        }
        for day in self.query.days().skip(1) {
            let charges = self.ledger.focus_charges(day, &self.prices).await;
            let is_open = match charges {
                Ok(charges) => self.send_day(charges, &parts).await,
                Err(error) => fail(&chain(&error), &parts).await,
            };
            if !is_open {
                return;
            }
        }
    }

    /// Returns whether the reader is still connected.
    async fn send_day(
        &self,
        charges: Vec<OriginCharge>,
        parts: &mpsc::Sender<Part<Vec<u8>>>,
    ) -> bool {
        for charge in charges {
            let is_open = match charge.csv(&self.account) {
                Ok(part) => parts.send(Ok(part)).await.is_ok(),
                Err(error) => fail(&chain(&error), parts).await,
            };
            if !is_open {
                return false;
            }
        }
        true
    }
}

/// Ends the file with an error; returns false.
async fn fail(error: &str, parts: &mpsc::Sender<Part<Vec<u8>>>) -> bool {
    warn!(error, "the FOCUS export is incomplete; its connection is closed");
    // A reader that is gone needs no error.
    let _is_read = parts.send(Err(io::Error::other("the ledger cannot be exported"))).await;
    false
}
