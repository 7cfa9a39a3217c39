//! Export in the FOCUS format: a FOCUS 1.2 cost and usage dataset, with the columns of FOCUS 1.3 for split costs.
//!
//! ```text
//!  sums of a day by DIMENSIONS --charges--> origin charges (node, price) --rows--> allocated charges --csv--> text
//! ```
//!
//! The device hours of a node at one price on one day are an origin charge. Each of its rows is an allocated charge: the part of
//! one pod, or the part that was unallocated or unknown. Metrics of the rows add up to the origin charge, and their ratios to 1.
//! Dimensions of the rows are those of the origin charge, except the allocation columns and custom columns.
//!
//! `BilledCost` is 0, because Octavo issues no invoice: a provider's bill for the same devices contains their billed cost.
//!
//! Source: FOCUS 1.2, "Cost and Usage"; FOCUS 1.3, "Data Generator-Calculated Split Cost Allocation Handling".

use std::collections::BTreeMap;
use std::fmt;

use jiff::{Timestamp, ToSpan};
use octavo_fleet::price::{Amount, Currency, PriceBook, PriceKey, PurchaseOption, UnitPrice};
use rust_decimal::Decimal;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::interval::Day;
use crate::part::UsageState;
use crate::report::price_of;
use crate::usage::{Dimension, UsageQuery, UsageSum};

/// Properties by which the sums of an export are grouped, in the order of the values.
pub const DIMENSIONS: [Dimension; 5] =
    [Dimension::Node, Dimension::Pod, Dimension::Method, Dimension::Profile, Dimension::Team];

/// Unit of quantities. Source of its form: FOCUS 1.2, "Unit Format".
const UNIT: &str = "Device-Hours";
/// Provider of the data, and the billing account if the cluster has no name.
const PROVIDER: &str = "Octavo";
/// Decimals of quantities and ratios.
const DECIMALS: u32 = 12;
/// A ratio of 1, in units of its last decimal.
const WHOLE: i128 = 1_000_000_000_000;
/// Units of the last decimal of an hour per second and millionth of a device: 10^12 / (3600 * 10^6).
const HOUR_FRACTION: (i128, i128) = (2500, 9);

/// Device hours of a node at one price on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginCharge {
    day: Day,
    node: String,
    price_key: Option<PriceKey>,
    price: Option<UnitPrice>,
    /// Sum of the seconds, each multiplied by the share of a device in parts per million.
    parts: BTreeMap<Allocation, i64>,
}

/// Part of an origin charge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Allocation {
    state: UsageState,
    pod: Option<String>,
    method: Option<String>,
    profile: Option<String>,
    team: Option<String>,
}

/// Properties of all rows of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillingAccount {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Currency of rows without a price.
    pub currency: Currency,
}

/// A charge that cannot be exported.
#[derive(Debug, Error)]
pub enum FocusError {
    /// A number is too large.
    #[error("the cost of {0} is too large for a decimal number: correct the price book")]
    TooLarge(String),
    /// A row cannot be written.
    #[error("cannot write a row of the export")]
    Row(#[from] csv::Error),
}

/// Row of the dataset: an allocated charge. Columns that FOCUS allows to be null are empty if they have no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FocusRow {
    pub(crate) allocated_method_details: String,
    pub(crate) allocated_method_id: Option<String>,
    pub(crate) allocated_resource_id: Option<String>,
    pub(crate) allocated_resource_name: Option<String>,
    pub(crate) allocated_tags: Option<String>,
    #[serde(serialize_with = "with_point")]
    pub(crate) billed_cost: Amount,
    pub(crate) billing_account_id: String,
    pub(crate) billing_account_name: String,
    pub(crate) billing_currency: Currency,
    pub(crate) billing_period_end: Timestamp,
    pub(crate) billing_period_start: Timestamp,
    pub(crate) charge_category: &'static str,
    pub(crate) charge_class: Option<&'static str>,
    pub(crate) charge_description: String,
    pub(crate) charge_frequency: &'static str,
    pub(crate) charge_period_end: Timestamp,
    pub(crate) charge_period_start: Timestamp,
    #[serde(serialize_with = "with_point")]
    pub(crate) consumed_quantity: Decimal,
    pub(crate) consumed_unit: &'static str,
    #[serde(serialize_with = "with_point")]
    pub(crate) contracted_cost: Amount,
    #[serde(serialize_with = "with_point")]
    pub(crate) contracted_unit_price: Amount,
    #[serde(serialize_with = "with_point")]
    pub(crate) effective_cost: Amount,
    pub(crate) invoice_id: Option<&'static str>,
    pub(crate) invoice_issuer_name: &'static str,
    #[serde(serialize_with = "with_point")]
    pub(crate) list_cost: Amount,
    #[serde(serialize_with = "with_point")]
    pub(crate) list_unit_price: Amount,
    pub(crate) pricing_category: &'static str,
    #[serde(serialize_with = "with_point")]
    pub(crate) pricing_quantity: Decimal,
    pub(crate) pricing_unit: &'static str,
    pub(crate) provider_name: &'static str,
    pub(crate) publisher_name: &'static str,
    pub(crate) region_id: Option<String>,
    pub(crate) region_name: Option<String>,
    pub(crate) resource_id: String,
    pub(crate) resource_name: String,
    pub(crate) resource_type: &'static str,
    pub(crate) service_category: &'static str,
    pub(crate) service_name: &'static str,
    pub(crate) service_subcategory: &'static str,
    pub(crate) sku_id: String,
    pub(crate) sku_meter: &'static str,
    pub(crate) sku_price_details: Option<&'static str>,
    pub(crate) sku_price_id: String,
    #[serde(rename = "x_AcceleratorType")]
    pub(crate) accelerator_type: Option<String>,
    #[serde(rename = "x_AllocationState")]
    pub(crate) allocation_state: &'static str,
    #[serde(rename = "x_ClusterName")]
    pub(crate) cluster_name: Option<String>,
    #[serde(rename = "x_InstanceType")]
    pub(crate) instance_type: Option<String>,
    #[serde(rename = "x_MigProfile")]
    pub(crate) mig_profile: Option<String>,
    #[serde(rename = "x_PriceSource")]
    pub(crate) price_source: Option<String>,
}

/// Columns of a row.
pub const COLUMNS: [&str; 49] = [
    "AllocatedMethodDetails",
    "AllocatedMethodId",
    "AllocatedResourceId",
    "AllocatedResourceName",
    "AllocatedTags",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "x_AcceleratorType",
    "x_AllocationState",
    "x_ClusterName",
    "x_InstanceType",
    "x_MigProfile",
    "x_PriceSource",
];

/// The origin charges of a day, from its sums by [`DIMENSIONS`]. Charges without usage are omitted.
pub fn charges(
    day: Day,
    query: &UsageQuery,
    sums: Vec<UsageSum>,
    prices: &PriceBook,
) -> Vec<OriginCharge> {
    let mut charges: BTreeMap<(String, Option<PriceKey>), OriginCharge> = BTreeMap::new();
    for sum in sums.into_iter().filter(|sum| sum.ppm_seconds > 0) {
        let price = price_of(query, &sum, Some(prices));
        let mut values = sum.values.into_iter();
        let mut next = || values.next().flatten();
        let node = next().unwrap_or_default();
        let (pod, method, profile, team) = (next(), next(), next(), next());
        let allocation = Allocation { state: sum.state, pod, method, profile, team };
        let key = (node.clone(), sum.price_key.clone());
        let charge = charges.entry(key).or_insert_with(|| OriginCharge {
            day,
            node,
            price_key: sum.price_key,
            price,
            parts: BTreeMap::new(),
        });
        let part = charge.parts.entry(allocation).or_default();
        *part = part.saturating_add(sum.ppm_seconds);
    }
    charges.into_values().collect()
}

/// Header of the CSV.
pub fn header() -> Vec<u8> {
    format!("{}\n", COLUMNS.join(",")).into_bytes()
}

impl OriginCharge {
    /// The rows in CSV, without the header.
    ///
    /// # Errors
    /// Fails if a number is too large to be represented.
    pub fn csv(&self, account: &BillingAccount) -> Result<Vec<u8>, FocusError> {
        let rows = self.rows(account).ok_or_else(|| FocusError::TooLarge(self.to_string()))?;
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        for row in rows {
            writer.serialize(row)?;
        }
        writer.into_inner().map_err(|error| FocusError::Row(error.into_error().into()))
    }

    /// The allocated charges. `None` if a number is too large to be represented.
    pub(crate) fn rows(&self, account: &BillingAccount) -> Option<Vec<FocusRow>> {
        let total =
            self.parts.values().try_fold(0_i128, |sum, part| sum.checked_add((*part).into()))?;
        let quantities = split(self.parts.values(), HOUR_FRACTION)?;
        let ratios = split(self.parts.values(), (WHOLE, total))?;
        let numbers = quantities.into_iter().zip(ratios);
        let parts = self.parts.keys().zip(numbers);
        parts.map(|(part, (hours, ratio))| self.row(account, part, hours, ratio)).collect()
    }

    fn row(
        &self,
        account: &BillingAccount,
        part: &Allocation,
        hours: Decimal,
        ratio: Decimal,
    ) -> Option<FocusRow> {
        let key = self.price_key.as_ref();
        let price = self.price.as_ref();
        let per_hour = price.map_or(Amount::ZERO, |price| price.per_hour);
        let cost = per_hour.checked_mul(hours)?;
        let (start, end) = self.billing_period()?;
        let name = account.cluster.as_deref().unwrap_or(PROVIDER);
        let key_name = key.map_or_else(|| "unidentified".to_owned(), ToString::to_string);
        let type_name = key.map(|key| key.type_name.to_string());
        let region = key.and_then(|key| key.region.clone());
        Some(FocusRow {
            allocated_method_details: format!(
                r#"{{"Elements":[{{"AllocatedRatio":{ratio},"UsageUnit":"{UNIT}","UsageQuantity":{hours}}}]}}"#
            ),
            allocated_method_id: part.method.clone(),
            allocated_resource_id: part.pod.clone(),
            allocated_resource_name: part.pod.clone(),
            allocated_tags: part.tags(),
            billed_cost: Amount::ZERO,
            billing_account_id: name.to_owned(),
            billing_account_name: name.to_owned(),
            billing_currency: price.map_or(&account.currency, |price| &price.currency).clone(),
            billing_period_end: end,
            billing_period_start: start,
            charge_category: "Usage",
            charge_class: None,
            charge_description: format!("Device hours of {key_name} on node {}", self.node),
            charge_frequency: "Usage-Based",
            charge_period_end: self.day.end_time(),
            charge_period_start: self.day.start_time(),
            consumed_quantity: hours,
            consumed_unit: UNIT,
            contracted_cost: cost,
            contracted_unit_price: per_hour,
            effective_cost: cost,
            invoice_id: None,
            invoice_issuer_name: PROVIDER,
            list_cost: cost,
            list_unit_price: per_hour,
            pricing_category: match key.map(|key| key.option) {
                Some(PurchaseOption::Spot) => "Dynamic",
                Some(PurchaseOption::OnDemand) => "Standard",
                // FOCUS requires the commitment discount of a committed charge, which Octavo does not know.
                Some(PurchaseOption::Reserved) | None => "Other",
            },
            pricing_quantity: hours,
            pricing_unit: UNIT,
            provider_name: PROVIDER,
            publisher_name: PROVIDER,
            region_id: region.clone(),
            region_name: region,
            resource_id: match &account.cluster {
                Some(cluster) => format!("{cluster}/{}", self.node),
                None => self.node.clone(),
            },
            resource_name: self.node.clone(),
            resource_type: "Node",
            service_category: "Compute",
            service_name: "Kubernetes accelerators",
            service_subcategory: "Containers",
            sku_id: type_name.clone().unwrap_or_else(|| key_name.clone()),
            sku_meter: "Device hours",
            sku_price_details: None,
            sku_price_id: key_name,
            accelerator_type: type_name,
            allocation_state: part.state.into(),
            cluster_name: account.cluster.clone(),
            instance_type: key.and_then(|key| key.instance_type.clone()),
            mig_profile: part.profile.clone(),
            price_source: price.map(|price| price.source.to_string()),
        })
    }

    /// The month of the day.
    fn billing_period(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.day.first_of_month();
        let next = first.date().checked_add(1.month()).ok()?;
        Some((first.start_time(), Day::from_date(next).start_time()))
    }
}

/// Formats the charge: `2026-11-01, node gpu-1, nvidia-h100-80gb on-demand`.
impl fmt::Display for OriginCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, node {}", self.day.date(), self.node)?;
        self.price_key.iter().try_for_each(|key| write!(f, ", {key}"))
    }
}

impl Allocation {
    /// Namespace, team and MIG profile as a JSON object; `None` for a part without a pod. The prefix marks tags that the user did
    /// not set. Source: FOCUS 1.2, "Tags".
    fn tags(&self) -> Option<String> {
        let namespace = self.pod.as_ref()?.split('/').next();
        let tags = [
            ("octavo/namespace", namespace),
            ("octavo/profile", self.profile.as_deref()),
            ("octavo/team", self.team.as_deref()),
        ];
        let tags = tags.into_iter().filter_map(|(name, value)| Some((name, value?)));
        serde_json::to_string(&tags.collect::<BTreeMap<_, _>>()).ok()
    }
}

/// Writes a number with a decimal point, because readers of CSV derive the type of a column from its text.
fn with_point<S: Serializer>(number: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    let number = number.to_string();
    if number.contains('.') {
        serializer.serialize_str(&number)
    } else {
        serializer.collect_str(&format_args!("{number}.00"))
    }
}

/// The parts, multiplied by a fraction and rounded so that they add up to the rounded product of their sum: each is the difference
/// between two rounded cumulative sums. The result is in units of the last decimal.
fn split<'a>(
    parts: impl Iterator<Item = &'a i64>,
    (numerator, denominator): (i128, i128),
) -> Option<Vec<Decimal>> {
    let (mut sum, mut before) = (0_i128, 0_i128);
    let mut next = |part: i64| {
        sum = sum.checked_add(part.into())?;
        let doubled = sum.checked_mul(numerator)?.checked_mul(2)?.checked_add(denominator)?;
        let rounded = doubled.checked_div(denominator.checked_mul(2)?)?;
        let difference = rounded.checked_sub(before)?;
        before = rounded;
        let part = Decimal::try_from_i128_with_scale(difference, DECIMALS).ok()?;
        Some(part.normalize())
    };
    parts.map(|part| next(*part)).collect()
}
