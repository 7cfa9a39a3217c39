//! API document of the history.

use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::metric::Metric;

/// Values of one metric over time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `SeriesList`.
    pub kind: String,
    /// `utilization`, `memory`, `power`, `temperature` or `allocation`.
    #[schema(value_type = String)]
    pub metric: Metric,
    /// `percent`, `watts` or `celsius`.
    pub unit: String,
    /// Smallest difference between two values of a device, in the unit.
    pub precision: u32,
    /// Time of the first sample since the aggregator started; absent before it. Earlier values are absent.
    pub begins: Option<String>,
    /// Start of the first step; absent before the first sample.
    pub start: Option<String>,
    /// Length of a step in seconds.
    pub step_seconds: u64,
    /// Number of values per series.
    pub points: usize,
    /// Number of devices and partitions of the fleet without a history, because the memory for it is exhausted.
    pub omitted_series: usize,
    /// Human-readable explanation of missing data.
    pub notice: Option<String>,
    /// The series, ordered by node and device, or by type.
    pub items: Vec<SeriesRow>,
}

/// Values of a device, a partition or a group of devices.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesRow {
    /// Name of the node; absent for groups of several nodes.
    pub node: Option<String>,
    /// PCI address of the device; absent for groups.
    pub device: Option<String>,
    /// UUID of the partition; absent for devices and groups.
    pub partition: Option<String>,
    /// Type of the device or of the group; absent if unknown or mixed.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub type_name: Option<TypeName>,
    /// Value of each step; `null` without a sample.
    pub values: Vec<Option<u32>>,
    /// Number of devices with a value in each step; absent for a single device or partition.
    pub devices: Option<Vec<u32>>,
}
