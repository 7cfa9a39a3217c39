//! History of the devices.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use octavo_fleet::problem::Problem;
use octavo_history::document::SeriesList;
use octavo_history::{History, Window};
use octavo_model::API_VERSION;
use octavo_store::history::{Query, Search, timestamp};
use tokio::task::yield_now;

use super::nodes::QueryPairs;
use super::problem::ApiError;
use super::response_cache::TaggedDocument;
use super::{Api, openapi};

/// Get the utilization, memory, power, temperature or allocation of devices over time
///
/// For a group of devices: power is the sum of all devices, temperature the highest value, and other metrics the mean. The mean of
/// memory is weighted by the devices' memory.
#[utoipa::path(
    get,
    path = "/api/v1/series",
    tag = "fleet",
    params(
        ("metric" = Option<openapi::MetricWord>, Query, description = "Metric"),
        ("window" = Option<openapi::WindowWord>, Query, description = "Time range up to now"),
        ("step" = Option<openapi::StepWord>, Query, description = "Time between two values: up to `15m` with `window=1h` (default `15s`), from `1m` with `24h` (default `5m`)"),
        ("groupBy" = Option<openapi::GroupingWord>, Query, description = "Devices of a series: one device or partition, those of a node or type, or all"),
        ("node" = Option<String>, Query, description = "Node name", example = "gpu-07"),
        ("device" = Option<String>, Query, description = "PCI address of the device", example = "0000:1b:00.0"),
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types of the devices; `unknown`: devices of unknown type", example = json!(["nvidia-h200-141gb"])),
        ("selector" = Option<String>, Query, description = "Kubernetes label selector for nodes, such as those of a node pool, applied to the labels that the agent reports", example = "octavo.dev/type=nvidia-h200-141gb")
    ),
    responses(
        (status = 200, description = "The series, of at most 100,000 values in total", body = SeriesList),
        (status = 304, description = "Not modified since the version in `If-None-Match`"),
        (status = 400, description = "Unknown or invalid parameter, or too many values", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn series(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::parse(pairs)?;
    let (history, fleet) = (api.view.history(), api.view.fleet());
    let mut search = Search::new(&history, &fleet, &query);
    // Other tasks share this thread.
    while search.step()? {
        yield_now().await;
    }
    let window = search.window();
    let status = history.status();
    let document = SeriesList {
        api_version: API_VERSION.to_owned(),
        kind: "SeriesList".to_owned(),
        metric: query.metric,
        unit: query.metric.unit().to_owned(),
        precision: query.metric.precision(),
        begins: history.begins().map(|begins| timestamp(begins).to_string()),
        start: history.begins().map(|_| timestamp(window.start()).to_string()),
        step_seconds: window.step_seconds(),
        points: window.points(),
        omitted_series: status.omitted_series,
        notice: notice(&history, window),
        items: search.items()?,
    };
    Ok(TaggedDocument::serialize(&document)?.into_response_for(&headers))
}

/// Explanation of missing values; `None` if none are missing.
fn notice(history: &History, window: Window) -> Option<String> {
    if !history.is_enabled() {
        return Some("the history is turned off: --history-memory is 0".to_owned());
    }
    let status = history.status();
    if status.omitted_series > 0 {
        return Some(format!(
            "{} devices and partitions have no history of their own: --history-memory is exhausted",
            status.omitted_series
        ));
    }
    let is_short = history.begins().is_none_or(|begins| begins > window.start());
    is_short.then(|| "the history begins at the start of the aggregator".to_owned())
}
