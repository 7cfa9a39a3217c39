//! Sums of usage, as read from the database.

use jiff::Timestamp;
use octavo_fleet::budget::BudgetScope;
use octavo_fleet::price::{PriceBook, PriceKey, UnitPrice};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use crate::interval::Day;
use crate::part::UsageState;

/// Property by which usage is grouped.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Dimension {
    /// Namespace of the pod.
    Namespace,
    /// Value of the label that names the team.
    Team,
    /// Accelerator type.
    Type,
    /// MIG profile.
    Profile,
    /// Allocation method.
    Method,
    /// Day in UTC.
    Day,
    /// Workload that owns the pod.
    Workload,
    /// Node.
    Node,
    /// Pod.
    Pod,
}

/// Usage of devices with the same price, for one value of each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// Values in the order of the dimensions; `None` for parts without the property.
    pub values: Vec<Option<String>>,
    /// Number of price changes in the requested range before this usage.
    pub period: usize,
    /// Properties that decide the price; `None` for unidentified devices.
    pub price_key: Option<PriceKey>,
    /// Its allocation state.
    pub state: UsageState,
    /// True if it is not from a report, but follows from the reports before and after it.
    pub inferred: bool,
    /// Sum of the seconds, each multiplied by the share of a device in parts per million.
    pub ppm_seconds: i64,
    /// Sum of the utilization in percent, by seconds and share of a device.
    pub percent_seconds: i64,
    /// Seconds with a known utilization, by share of a device.
    pub measured_seconds: i64,
}

/// Requested usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Start of the range.
    pub from: Timestamp,
    /// End of the range, exclusive.
    pub until: Timestamp,
    /// Properties by which the usage is grouped.
    pub by: Vec<Dimension>,
    /// Only usage with these values.
    pub filters: Vec<(Dimension, String)>,
    /// Ascending times in the range at which a price changes; only their day counts.
    pub price_changes: Vec<Timestamp>,
}

impl UsageQuery {
    /// The price of a device after this number of price changes in the range.
    pub(crate) fn price(
        &self,
        period: usize,
        key: &PriceKey,
        prices: &PriceBook,
    ) -> Option<UnitPrice> {
        let start = period.checked_sub(1).and_then(|at| self.price_changes.get(at));
        let start = start.copied().unwrap_or_else(|| Day::of(self.from.as_second()).start_time());
        prices.price(key, start)
    }

    /// Returns whether the daily sums do not suffice.
    pub fn needs_details(&self) -> bool {
        let filters = self.filters.iter().map(|(dimension, _)| dimension);
        !self.by.iter().chain(filters).all(|one| one.is_in_daily_sums())
    }
}

/// The property that the scope of a budget names.
impl From<&BudgetScope> for Dimension {
    fn from(scope: &BudgetScope) -> Self {
        match scope {
            BudgetScope::Namespace(_) => Self::Namespace,
            BudgetScope::Team(_) => Self::Team,
        }
    }
}

impl Dimension {
    /// Noun for a number of values.
    pub fn noun(self, number: u64) -> &'static str {
        let (one, several) = match self {
            Self::Namespace => ("namespace", "namespaces"),
            Self::Team => ("team", "teams"),
            Self::Type => ("type", "types"),
            Self::Profile => ("profile", "profiles"),
            Self::Method => ("method", "methods"),
            Self::Day => ("day", "days"),
            Self::Workload => ("workload", "workloads"),
            Self::Node => ("node", "nodes"),
            Self::Pod => ("pod", "pods"),
        };
        if number == 1 { one } else { several }
    }

    /// Returns whether the daily sums have this property.
    pub fn is_in_daily_sums(self) -> bool {
        match self {
            Self::Namespace
            | Self::Team
            | Self::Type
            | Self::Profile
            | Self::Method
            | Self::Day => true,
            Self::Workload | Self::Node | Self::Pod => false,
        }
    }
}
