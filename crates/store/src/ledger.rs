//! Reports of usage and cost from the ledger, for readers.

mod audit;
mod budgets;
mod focus;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use octavo_database::{Database, DatabaseError, DatabaseUrl, in_time};
use octavo_fleet::access::{AccessReview, Resource, Verb, Visibility};
use octavo_fleet::price::{PriceBook, parse_time};
use octavo_ledger::compare::{MAX_COMPARED_TYPES, compared_type};
use octavo_ledger::report::{CostReport, GroupLimit, ReportBuilder, price_changes};
use octavo_ledger::{CostOrder, Day, Dimension, UsageQuery, UsageState, UsageSum};
use strum::VariantArray;
use thiserror::Error;
use tokio::sync::OnceCell;

pub use self::audit::parse_audit_query;
pub use self::budgets::BudgetQuery;
pub use self::focus::FocusQuery;
use crate::query::QueryError;
use crate::query::parse::set_each;

/// Connections of readers. Further requests wait for one.
const MAX_CONNECTIONS: u32 = 4;
/// Time limit of each access to the database.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Default maximum number of groups in a report.
const DEFAULT_LIMIT: usize = 1000;
/// Maximum number of groups in a report.
pub const MAX_LIMIT: usize = 10_000;
/// Maximum number of properties by which usage is grouped.
const MAX_DIMENSIONS: usize = 4;
const PARAMETERS: &str = "from, until, by, namespace, team, type, profile, method, workload, node, pod, limit, limitBy, sort, compare";

/// Reader of the ledger. Clones share its connections.
#[derive(Debug, Clone)]
pub struct LedgerReader {
    url: Arc<DatabaseUrl>,
    database: Arc<OnceCell<Database>>,
}

/// Requested report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostQuery {
    /// The usage.
    pub usage: UsageQuery,
    /// Names of the types whose costs are compared.
    pub compare: Vec<String>,
    /// The listed groups.
    pub limit: GroupLimit,
}

/// A report that cannot be created.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The request has too many groups.
    #[error(
        "the usage has more than {0} groups: use a shorter time range, fewer properties or a filter"
    )]
    TooManyGroups(usize),
    /// A compared type is not known.
    #[error("{0}")]
    UnknownType(String),
}

impl LedgerError {
    /// The invalid parameter of a request, where `by` decides the number of groups; `None` if the database cannot be read.
    pub fn parameter(&self, by: &'static str) -> Option<&'static str> {
        match self {
            Self::Database(_) => None,
            Self::TooManyGroups(_) => Some(by),
            Self::UnknownType(_) => Some("compare"),
        }
    }
}

impl LedgerReader {
    /// Creates a reader, which connects when it is first used.
    pub fn new(url: DatabaseUrl) -> Self {
        Self { url: Arc::new(url), database: Arc::default() }
    }

    /// Creates the report for a query.
    ///
    /// # Errors
    /// Fails if a compared type is not known, the database cannot be read, or the usage has too many groups.
    pub async fn report(
        &self,
        query: &CostQuery,
        prices: Option<&PriceBook>,
    ) -> Result<CostReport, LedgerError> {
        let compare = query.compare.iter().map(|name| compared_type(name, prices));
        let compare = compare.collect::<Result<Vec<_>, _>>().map_err(LedgerError::UnknownType)?;
        let database = self.database().await?;
        let usage = &query.usage;
        let changes = prices.map(|prices| price_changes(prices, usage.from, usage.until));
        let usage = UsageQuery { price_changes: changes.unwrap_or_default(), ..usage.clone() };
        let mut builder = ReportBuilder::new(&usage, prices, &compare, query.limit);
        let visit = |sum: UsageSum| {
            builder.add(&sum);
            ControlFlow::Continue(())
        };
        let _complete = in_time(READ_TIMEOUT, database.visit_usage(&usage, visit)).await?;
        let begins = if usage.needs_details() {
            in_time(READ_TIMEOUT, database.first_detailed_day()).await?
        } else {
            in_time(READ_TIMEOUT, database.first_day()).await?
        };
        let begins = begins.map(|day| day.date().to_string());
        let mut report = builder.finish();
        report.notes = notes(&report, prices.is_some());
        Ok(CostReport { begins, ..report })
    }

    /// The first day with usage by pod, if the usage before it is deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn deleted_before(&self) -> Result<Option<Day>, LedgerError> {
        let database = self.database().await?;
        let all = in_time(READ_TIMEOUT, database.first_day()).await?;
        let details = in_time(READ_TIMEOUT, database.first_detailed_day()).await?;
        Ok(details.filter(|details| all.is_some_and(|all| all < *details)))
    }

    async fn database(&self) -> Result<&Database, DatabaseError> {
        self.database.get_or_try_init(|| Database::open(&self.url, MAX_CONNECTIONS)).await
    }

    async fn sums(&self, usage: &UsageQuery) -> Result<Vec<UsageSum>, LedgerError> {
        let sums = in_time(READ_TIMEOUT, self.database().await?.usage(usage)).await?;
        sums.ok_or(LedgerError::TooManyGroups(octavo_database::MAX_SUMS))
    }
}

impl CostQuery {
    /// Parses the parameters in `pairs`. Without them, the report covers the current month up to `now`, by namespace.
    ///
    /// # Errors
    /// Fails with the name of an unknown or invalid parameter.
    pub fn parse(
        pairs: impl IntoIterator<Item = (String, String)>,
        now: Timestamp,
    ) -> Result<Self, QueryError> {
        let mut query = Self {
            usage: UsageQuery {
                from: start_of_month(now),
                until: now,
                by: vec![Dimension::Namespace],
                filters: Vec::new(),
                price_changes: Vec::new(),
            },
            compare: Vec::new(),
            limit: GroupLimit::most_expensive(DEFAULT_LIMIT),
        };
        let mut limit_by = None;
        set_each(pairs, &[], |name, value| match name {
            "limitBy" => {
                limit_by = Some(value.to_owned()).filter(|value| !value.is_empty());
                Ok(())
            }
            _ => query.set(name, value),
        })?;
        // The property can come before the properties by which the usage is grouped.
        if let Some(name) = limit_by {
            let first = query.usage.by.first().map(ToString::to_string);
            if first.as_ref() != Some(&name) {
                return Err(QueryError::value("limitBy", &name, "the first property in by"));
            }
            query.limit.is_per_value = true;
        }
        if query.usage.from >= query.usage.until {
            let until = query.usage.until.to_string();
            return Err(QueryError::value("until", &until, "a time after from"));
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        if value.is_empty() {
            return Ok(());
        }
        match name {
            "from" => self.usage.from = time("from", value)?,
            "until" => self.usage.until = time("until", value)?,
            "by" => self.usage.by = dimensions(value)?,
            "sort" => self.limit.order = order(value)?,
            "compare" => self.compare = compared(value)?,
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                self.limit.groups =
                    limit.ok_or_else(|| QueryError::value("limit", value, "1 to 10000"))?;
            }
            _ => {
                let filters = Dimension::VARIANTS.iter().filter(|one| **one != Dimension::Day);
                let filter = filters.copied().find(|one| one.to_string() == name);
                let filter = filter.ok_or_else(|| QueryError::unknown(name, PARAMETERS))?;
                self.usage.filters.push((filter, value.to_owned()));
            }
        }
        Ok(())
    }

    /// Reason why the reader is not authorized for the report, which can name nodes.
    pub fn refusal(&self, visibility: &Visibility) -> Option<String> {
        let filters = self.usage.filters.iter().map(|(dimension, _)| dimension);
        let names_nodes = self.usage.by.iter().chain(filters).any(|one| *one == Dimension::Node);
        let nodes = AccessReview::all(Verb::List, Resource::Nodes);
        (names_nodes && !visibility.nodes)
            .then(|| format!("usage by node requires the permission to {nodes}"))
    }
}

fn time(name: &'static str, value: &str) -> Result<Timestamp, QueryError> {
    let wanted = "a date such as 2026-11-01, or a time such as 2026-11-01T12:00:00Z";
    parse_time(value).map_err(|_| QueryError::value(name, value, wanted))
}

fn dimensions(value: &str) -> Result<Vec<Dimension>, QueryError> {
    let wanted = || {
        let words: Vec<String> = Dimension::VARIANTS.iter().map(ToString::to_string).collect();
        QueryError::value("by", value, format!("up to four of {}", words.join(", ")))
    };
    let mut all: Vec<Dimension> = Vec::new();
    for word in value.split(',') {
        let dimension = word.trim().parse().map_err(|_| wanted())?;
        if all.contains(&dimension) || all.len() >= MAX_DIMENSIONS {
            return Err(wanted());
        }
        all.push(dimension);
    }
    Ok(all)
}

fn order(value: &str) -> Result<CostOrder, QueryError> {
    CostOrder::ALL.into_iter().find(|order| order.as_str() == value).ok_or_else(|| {
        let words = CostOrder::ALL.map(CostOrder::as_str).join(", ");
        QueryError::value("sort", value, format!("one of {words}"))
    })
}

fn compared(value: &str) -> Result<Vec<String>, QueryError> {
    let mut names: Vec<String> = Vec::new();
    for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if names.len() > MAX_COMPARED_TYPES {
        return Err(QueryError::TooMany { parameter: "compare", most: MAX_COMPARED_TYPES });
    }
    Ok(names)
}

/// Start of the month of a time in UTC.
fn start_of_month(now: Timestamp) -> Timestamp {
    let start = Day::of(now.as_second()).first_of_month().start_time();
    // In the first second of a month, the range would be empty.
    if start < now { start } else { now.saturating_sub(1.hour()).unwrap_or(now) }
}

/// Notes on data that is missing in a report.
fn notes(report: &CostReport, has_prices: bool) -> Vec<String> {
    let total = &report.total;
    let mut notes = Vec::new();
    if !has_prices {
        notes.push("there are no costs: the aggregator has no price book".to_owned());
    } else if total.unpriced_hours > 0.0 {
        notes.push(format!(
            "{:.1} device hours have no price: the price book has none for their type and purchase option",
            total.unpriced_hours
        ));
    }
    if total.device_hours.unknown > 0.0 {
        notes.push(format!(
            "{:.1} device hours are {}: their agents did not report, or could not read allocations",
            total.device_hours.unknown,
            UsageState::Unknown
        ));
    }
    if !total.alternatives.is_empty() {
        let note = "the comparison considers prices only: on another type, the same work can take more or fewer device hours";
        notes.push(note.to_owned());
    }
    notes
}
