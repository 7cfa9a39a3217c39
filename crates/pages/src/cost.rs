//! The page of cost: usage and cost of devices over a time, from the ledger.

mod budgets;
mod request;
mod rows;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use octavo_access::visibility::ReaderVisibility;
use octavo_cost_report::daily::DailyUsage;
use octavo_cost_report::text::hours;
use octavo_fleet::access::Visibility;
use octavo_ledger::csv::to_csv;
use octavo_ledger::report::{CostReport, GroupLimit};
use octavo_ledger::{CostOrder, Dimension};
use octavo_store::ledger::{CostQuery, LedgerError, LedgerReader, MAX_LIMIT};
use octavo_store::view::PRICES_OUTDATED;
use octavo_toolkit::error::chain;

use self::budgets::BudgetView;
use self::request::{CostForm, CostRequest, EquivalentRequests};
use self::rows::{CostRow, IdleWorkload, Totals};
use super::badges::printable;
use super::frame::Frame;
use super::rows::ColumnHeading;
use super::{PageState, html, origin};

/// Maximum number of rows.
const MAX_ROWS: usize = 500;
/// Maximum number of days in the chart: the last ones.
const MAX_DAYS: usize = 366;
/// Maximum number of idle workloads that are shown.
const MAX_IDLE_ROWS: usize = 10;
/// Reason without the cause, which can name a server.
const LEDGER_UNREADABLE: &str = "the ledger cannot be read";

#[derive(Template)]
#[template(path = "cost.html")]
struct CostPage {
    frame: Frame,
    /// Form; absent without a ledger.
    form: Option<CostForm>,
    content: Content,
    budgets: Option<BudgetView>,
    equal: Option<EquivalentRequests>,
    origin: String,
}

/// Content below the form.
#[derive(Debug)]
enum Content {
    /// The aggregator has no ledger.
    NoLedger,
    /// Message about an invalid address, or a request with too many groups.
    Invalid(String),
    /// Reason why the reader is not authorized.
    Forbidden(String),
    /// Reason why the ledger cannot be read.
    Unavailable(String),
    /// There is no usage.
    Empty {
        /// First day in the ledger; `None` if it is empty.
        begins: Option<String>,
    },
    /// Usage.
    Usage(Box<UsageView>),
}

/// Usage and cost over a time.
#[derive(Debug)]
struct UsageView {
    from: String,
    until: String,
    totals: Totals,
    /// True if the aggregator has no price book.
    has_no_prices: bool,
    notes: Vec<String>,
    daily: Option<DailyUsage>,
    /// Name of the property by which the rows are grouped.
    property: String,
    caption: String,
    by_hours: ColumnHeading,
    by_cost: ColumnHeading,
    by_idle: ColumnHeading,
    /// Headings of the compared types.
    compared: Vec<String>,
    rows: Vec<CostRow>,
    /// Number of rows that are not shown.
    more: usize,
    idle: Vec<IdleWorkload>,
    download: String,
}

/// Reports of a page.
struct Reports {
    groups: CostReport,
    /// By day.
    days: CostReport,
    /// By workload; `None` if there are too many, or only one is requested.
    workloads: Option<CostReport>,
    has_prices: bool,
    /// Notice about the price book.
    notice: Option<String>,
}

/// Serves the page.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = origin(&uri, &headers);
    let frame = Frame::new(&site.view);
    let Some(ledger) = site.view.ledger() else {
        let content = Content::NoLedger;
        let page = CostPage { frame, form: None, content, budgets: None, equal: None, origin };
        return html(StatusCode::NOT_FOUND, &page);
    };
    let clock = site.view.clock();
    let now = clock.wall(clock.now());
    let (form, equal, (content, budgets)) = match CostRequest::parse(&uri, now) {
        // The report of another request could show more than the reader may see.
        Err(error) => {
            let form = CostForm::without_request(now, visibility.nodes);
            (form, None, (Content::Invalid(format!("Invalid address: {error}.")), None))
        }
        Ok(request) => {
            let form = CostForm::new(&request, now, visibility.nodes);
            let content = content(&site, ledger, &request, &visibility).await;
            let budgets = BudgetView::read(&site.view, &request.query, &visibility).await;
            (form, Some(request.equal()), (content, budgets))
        }
    };
    let status = match &content {
        Content::NoLedger => StatusCode::NOT_FOUND,
        Content::Invalid(_) => StatusCode::BAD_REQUEST,
        Content::Forbidden(_) => StatusCode::FORBIDDEN,
        Content::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Content::Empty { .. } | Content::Usage(_) => StatusCode::OK,
    };
    html(status, &CostPage { frame, form: Some(form), content, budgets, equal, origin })
}

async fn content(
    site: &PageState,
    ledger: &LedgerReader,
    request: &CostRequest,
    visibility: &Visibility,
) -> Content {
    if let Some(refusal) = request.query.refusal(visibility) {
        return Content::Forbidden(refusal);
    }
    match reports(site, ledger, &request.query, visibility).await {
        Err(error @ LedgerError::TooManyGroups(_)) => {
            Content::Invalid(format!("The report is too large: {error}."))
        }
        Err(error @ LedgerError::UnknownType(_)) => {
            Content::Invalid(format!("Invalid comparison: {}.", printable(&error.to_string())))
        }
        Err(error @ LedgerError::Database(_)) => {
            Content::Unavailable(visibility.disclose(chain(&error), LEDGER_UNREADABLE))
        }
        Ok(reports) if reports.groups.items.is_empty() => {
            Content::Empty { begins: reports.groups.begins }
        }
        Ok(reports) => Content::Usage(Box::new(UsageView::new(reports, request))),
    }
}

async fn reports(
    site: &PageState,
    ledger: &LedgerReader,
    query: &CostQuery,
    visibility: &Visibility,
) -> Result<Reports, LedgerError> {
    let prices = site.view.prices();
    let book = prices.prices.as_ref().map(|prices| &**prices.book());
    let by = |dimension| {
        let mut query = query.clone();
        query.usage.by = vec![dimension];
        query.compare.clear();
        // The limit of the address applies to the rows: with it, the chart would omit cheap days.
        query.limit = GroupLimit::most_expensive(MAX_LIMIT);
        query
    };
    let groups = ledger.report(query, book).await?;
    let days = ledger.report(&by(Dimension::Day), book).await?;
    let is_single_workload = |one: &Dimension| matches!(one, Dimension::Workload | Dimension::Pod);
    let workloads = if query.usage.filters.iter().any(|(one, _)| is_single_workload(one)) {
        None
    } else {
        let mut query = by(Dimension::Workload);
        query.limit.order = CostOrder::Idle;
        match ledger.report(&query, book).await {
            Ok(report) => Some(report),
            Err(LedgerError::TooManyGroups(_)) => None,
            Err(error) => return Err(error),
        }
    };
    let notice = prices.notice.map(|why| visibility.disclose(why, PRICES_OUTDATED));
    Ok(Reports { groups, days, workloads, has_prices: book.is_some(), notice })
}

impl UsageView {
    fn new(reports: Reports, request: &CostRequest) -> Self {
        let Reports { groups, days, workloads, has_prices, notice } = reports;
        let total = &groups.total;
        let items = request.sorted(&groups);
        let rows = items.iter().take(MAX_ROWS).enumerate();
        let rows: Vec<CostRow> =
            rows.map(|(number, item)| CostRow::new(number, item, request)).collect();
        let more = groups.items.len().saturating_sub(rows.len());
        let omitted = usize::try_from(groups.omitted_items).unwrap_or(usize::MAX);
        let by: Vec<String> = groups.by.iter().map(ToString::to_string).collect();
        let idle = workloads.as_ref().map(|report| idle_workloads(report, request));
        Self {
            from: format_bound(groups.from),
            until: format_bound(groups.until),
            totals: Totals::new(total),
            has_no_prices: !has_prices,
            notes: notes(&groups, notice, has_prices),
            daily: DailyUsage::new(&days.items, &days_with_usage(&days)),
            property: super::badges::capitalize(&by.join(", ")),
            caption: match more.saturating_add(omitted) {
                0 => super::badges::count_noun(rows.len(), "row", "rows"),
                more => format!("{} of {} rows", rows.len(), rows.len().saturating_add(more)),
            },
            by_hours: request.heading("Device hours", CostOrder::Hours),
            by_cost: request.heading("Cost", CostOrder::Cost),
            by_idle: request.heading("Cost of idle", CostOrder::Idle),
            compared: total.alternatives.iter().map(rows::compared_heading).collect(),
            rows,
            more: more.saturating_add(omitted),
            idle: idle.unwrap_or_default(),
            download: request.download(),
        }
    }
}

/// The days from the first with usage to the end of the report.
fn days_with_usage(report: &CostReport) -> Vec<Date> {
    let known = report.items.iter().filter_map(|item| item.group.get(&Dimension::Day));
    let known = known.filter_map(|day| day.parse::<Date>().ok());
    let Some(first) = known.min() else {
        return Vec::new();
    };
    let end = report.until.checked_sub(1.nanosecond()).unwrap_or(Timestamp::MAX);
    let last = end.to_zoned(TimeZone::UTC).date();
    let earliest = i32::try_from(MAX_DAYS).unwrap_or(i32::MAX).saturating_sub(1);
    let first = first.max(last.saturating_sub(earliest.days()));
    first.series(1.day()).take_while(|day| *day <= last).take(MAX_DAYS).collect()
}

/// Notes on missing data, and on the origin of the figures.
fn notes(report: &CostReport, notice: Option<String>, has_prices: bool) -> Vec<String> {
    // The page describes a missing price book separately.
    let skipped = usize::from(!has_prices);
    let known = report.notes.iter().skip(skipped);
    let mut notes: Vec<String> = known.map(|note| format!("Note: {note}.")).collect();
    notes.extend(notice.map(|notice| format!("Note: {}.", printable(&notice))));
    if let Some(begins) = report.begins.as_ref().filter(|begins| **begins > report.from.to_string())
    {
        notes.push(format!("The ledger begins on {begins}; earlier usage is not known."));
    }
    if report.total.inferred_hours > 0.0 {
        notes.push(format!(
            "{} device hours are inferred: no report covers them, but the same pods had the devices before and after.",
            hours(report.total.inferred_hours)
        ));
    }
    notes
}

/// The workloads whose idle hours cost most, or that have most idle hours if no prices are known.
fn idle_workloads(report: &CostReport, request: &CostRequest) -> Vec<IdleWorkload> {
    let items = CostOrder::Idle.sorted(report).into_iter();
    let idle = items.filter(|item| {
        item.usage.device_hours.idle > 0.0 && item.group.contains_key(&Dimension::Workload)
    });
    idle.take(MAX_IDLE_ROWS).filter_map(|item| IdleWorkload::new(item, request)).collect()
}

/// Serves the report as CSV.
pub(super) async fn download(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
) -> Response {
    let text = |status: StatusCode, error: &str| (status, format!("{error}\n")).into_response();
    let Some(ledger) = site.view.ledger() else {
        let error = "the aggregator has no usage ledger; start it with --ledger";
        return text(StatusCode::NOT_FOUND, error);
    };
    let clock = site.view.clock();
    let request = match CostRequest::parse(&uri, clock.wall(clock.now())) {
        Ok(request) => request,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("invalid address: {error}")),
    };
    if let Some(refusal) = request.query.refusal(&visibility) {
        return text(StatusCode::FORBIDDEN, &refusal);
    }
    let prices = site.view.prices();
    let book = prices.prices.as_ref().map(|prices| &**prices.book());
    match ledger.report(&request.query, book).await {
        Ok(mut report) => {
            report.items = request.sorted(&report).into_iter().cloned().collect();
            let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
            let name = HeaderValue::from_static("attachment; filename=\"cost.csv\"");
            let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
            (headers, to_csv(&report)).into_response()
        }
        Err(error @ LedgerError::Database(_)) => {
            let error = visibility.disclose(chain(&error), LEDGER_UNREADABLE);
            text(StatusCode::SERVICE_UNAVAILABLE, &error)
        }
        Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Formats a bound of the time range in UTC; the time of day is omitted at midnight.
fn format_bound(time: Timestamp) -> String {
    let text = time.strftime("%Y-%m-%d %H:%M").to_string();
    match text.strip_suffix(" 00:00") {
        Some(date) => date.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests;
