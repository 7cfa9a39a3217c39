//! Request of the page of cost: address, form, order and links.

use axum::http::Uri;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use octavo_ledger::report::{CostItem, CostReport};
use octavo_ledger::{CostOrder, Dimension};
use octavo_model::text::{join, shell_word};
use octavo_store::ledger::{CostQuery, MAX_LIMIT};
use octavo_store::query::check_names;
use octavo_toolkit::error::chain;

use crate::address::{ListAddress, moved};
use crate::badges::{capitalize, printable};
use crate::filter_form::Choice;
use crate::rows::ColumnHeading;

/// Path of the page.
const PAGE: &str = "/cost";
const SORT: &str = "sort";
/// Properties that the form offers.
const OFFERED: [Dimension; 6] = [
    Dimension::Namespace,
    Dimension::Team,
    Dimension::Type,
    Dimension::Workload,
    Dimension::Day,
    Dimension::Node,
];
/// Parameters with a field in the form.
const FIELDS: [&str; 6] = ["from", "until", "by", "namespace", "type", "compare"];
/// Parameter of the API that the page does not have, because a link can change the property.
const LIMIT_BY: &str = "limitBy";
/// Parameters that `octavo cost` has as flags.
const FLAGS: [&str; 10] =
    ["by", "from", "until", "namespace", "team", "type", "workload", "node", "limit", "compare"];

/// Parsed address.
#[derive(Debug)]
pub(super) struct CostRequest {
    /// Parameters, with the properties by which the usage is grouped.
    address: ListAddress,
    pub(super) query: CostQuery,
    /// Order; by default descending cost, or the order of time if the groups are days.
    order: Option<CostOrder>,
}

/// Filter form.
#[derive(Debug)]
pub(super) struct CostForm {
    pub(super) from: String,
    pub(super) until: String,
    pub(super) namespace: String,
    pub(super) type_name: String,
    pub(super) compare: String,
    pub(super) by: Vec<Choice>,
    /// Parameters without a field, which the form retains.
    pub(super) hidden: Vec<(String, String)>,
    /// Filters without a field, with a link that removes each.
    pub(super) filters: Vec<(String, String, String)>,
    /// Links to other times: words, address, and whether it is the shown time.
    pub(super) spans: Vec<(&'static str, String, bool)>,
    /// Address without filters, if there are any.
    pub(super) clear: Option<String>,
}

/// The same request on the command line and to the API.
#[derive(Debug)]
pub(super) struct EquivalentRequests {
    /// Flags of `octavo cost`; absent if it has no flag for a filter.
    pub(super) flags: Option<String>,
    /// Path and query of the API.
    pub(super) api: String,
}

impl CostRequest {
    /// Parses an address. Within one namespace, usage is grouped by workload.
    pub(super) fn parse(uri: &Uri, now: Timestamp) -> Result<Self, String> {
        let address = ListAddress::parse(uri).ok_or("the address has an invalid encoding")?;
        let sort = address.pairs().filter(|(name, _)| name == SORT);
        check_names(sort, SORT).map_err(|error| chain(&error))?;
        if !address.get(LIMIT_BY).is_empty() {
            return Err(format!("unknown parameter {LIMIT_BY:?}; only /api/v1/cost has it"));
        }
        let order = Some(address.get(SORT)).filter(|text| !text.is_empty());
        let order = order.map(parse_order).transpose()?;
        let pairs = address.without(SORT);
        let mut query = CostQuery::parse(pairs.pairs(), now).map_err(|error| chain(&error))?;
        if address.get("by").is_empty() && !address.get("namespace").is_empty() {
            query.usage.by = vec![Dimension::Workload];
        }
        if address.get("limit").is_empty() {
            query.limit.groups = MAX_LIMIT;
        }
        query.limit.order = order.unwrap_or(CostOrder::Cost);
        let address = address.set("by", &join(&query.usage.by, ","));
        Ok(Self { address, query, order })
    }

    /// Groups in the requested order.
    pub(super) fn sorted<'a>(&self, report: &'a CostReport) -> Vec<&'a CostItem> {
        match self.order {
            None if self.is_by_day() => report.items.iter().collect(),
            order => order.unwrap_or(CostOrder::Cost).sorted(report),
        }
    }

    /// Returns whether the usage is limited to a value of the property.
    pub(super) fn has_filter(&self, dimension: Dimension) -> bool {
        self.query.usage.filters.iter().any(|(one, _)| *one == dimension)
    }

    fn is_by_day(&self) -> bool {
        self.query.usage.by.first() == Some(&Dimension::Day)
    }

    /// Address of the page with these parameters changed. Another group has the default order.
    pub(super) fn link(&self, changes: &[(&str, &str)]) -> String {
        let mut address = self.address.without(SORT);
        for (name, value) in changes {
            address = address.set(name, value);
        }
        address.at(PAGE)
    }

    /// Sortable heading of a column.
    pub(super) fn heading(&self, word: &'static str, order: CostOrder) -> ColumnHeading {
        let default = (!self.is_by_day()).then_some(CostOrder::Cost);
        ColumnHeading {
            word,
            key: order.as_str().trim_start_matches('-'),
            class: "num",
            href: Some(self.address.set(SORT, order.as_str()).at(PAGE)),
            sorted: (self.order.or(default) == Some(order)).then_some("descending"),
        }
    }

    /// Address of the report as CSV.
    pub(super) fn download(&self) -> String {
        self.address.at("/cost.csv")
    }

    /// The same request on the command line and to the API.
    pub(super) fn equal(&self) -> EquivalentRequests {
        let mut flags = Some(String::new());
        // The command has the order of the API.
        for (name, value) in self.address.without(SORT).pairs() {
            let flag = format!(" --{name}={}", shell_word(&value));
            let is_known = FLAGS.contains(&name.as_str());
            flags = flags.filter(|_| is_known).map(|flags| flags + &flag);
        }
        EquivalentRequests { flags, api: self.address.at("/api/v1/cost") }
    }
}

fn parse_order(text: &str) -> Result<CostOrder, String> {
    let known = CostOrder::ALL.into_iter().find(|order| order.as_str() == text);
    known.ok_or_else(|| {
        let start: String = text.chars().take(64).collect();
        let words = CostOrder::ALL.map(CostOrder::as_str).join(", ");
        format!("invalid value {start:?} for parameter sort: must be {words}")
    })
}

impl CostForm {
    /// Form of a request.
    pub(super) fn new(request: &CostRequest, now: Timestamp, nodes: bool) -> Self {
        let address = &request.address;
        let others = address.pairs().filter(|(name, _)| !FIELDS.contains(&name.as_str()));
        let others: Vec<(String, String)> = others.collect();
        let filters = others.iter().filter(|(name, _)| name != SORT && name != "limit");
        let filters = filters.map(|(name, value)| {
            (capitalize(name), printable(value), request.link(&[(name.as_str(), "")]))
        });
        let filters: Vec<(String, String, String)> = filters.collect();
        let is_filtered = !filters.is_empty()
            || ["namespace", "type", "compare"].iter().any(|name| !address.get(name).is_empty());
        let until = Some(request.query.usage.until).filter(|_| !address.get("until").is_empty());
        Self {
            from: date(request.query.usage.from),
            until: until.map_or_else(String::new, date),
            namespace: address.get("namespace").to_owned(),
            type_name: address.get("type").to_owned(),
            compare: address.get("compare").to_owned(),
            by: choices(&request.query.usage.by, nodes),
            hidden: others,
            filters,
            spans: spans(address, now),
            clear: is_filtered
                .then(|| address.only(&["from", "until"]))
                .map(|link| moved(&link, PAGE)),
        }
    }

    /// Form beside a message about an invalid address.
    pub(super) fn without_request(now: Timestamp, nodes: bool) -> Self {
        Self {
            from: String::new(),
            until: String::new(),
            namespace: String::new(),
            type_name: String::new(),
            compare: String::new(),
            by: choices(&[Dimension::Namespace], nodes),
            hidden: Vec::new(),
            filters: Vec::new(),
            spans: spans(&ListAddress::default(), now),
            clear: Some(PAGE.to_owned()),
        }
    }
}

/// Choices of the property, which include other properties of the address.
fn choices(by: &[Dimension], nodes: bool) -> Vec<Choice> {
    let offered = OFFERED.into_iter().filter(|one| nodes || *one != Dimension::Node);
    let choice = |by: &[Dimension], chosen| {
        let value = join(by, ",");
        Choice { word: capitalize(&join(by, ", ")), value, chosen }
    };
    let mut all: Vec<Choice> = offered.map(|one| choice(&[one], by == [one])).collect();
    if !all.iter().any(|one| one.chosen) {
        all.push(choice(by, true));
    }
    all
}

/// Links to other times.
fn spans(address: &ListAddress, now: Timestamp) -> Vec<(&'static str, String, bool)> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let this = today.first_of_month();
    let last = this.saturating_sub(1.month());
    let week = today.saturating_sub(6.days());
    let until = |date: Date| date.to_string();
    let all = [
        ("This month", String::new(), String::new()),
        ("Last month", until(last), until(this)),
        ("Last 7 days", until(week), String::new()),
    ];
    let link = |(word, from, until): (&'static str, String, String)| {
        let is_shown = address.get("from") == from && address.get("until") == until;
        (word, address.set("from", &from).set("until", &until).at(PAGE), is_shown)
    };
    all.map(link).into()
}

/// Date of a time in UTC.
fn date(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).date().to_string()
}
