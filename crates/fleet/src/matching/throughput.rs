//! Measured token throughput of a model by hardware, shown when a match replaces the preferred type.
//!
//! The numbers come from the performance rows of a model catalog and are not extrapolated: without a row for this count
//! and type there is no number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::slo::Hardware;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Hardware name in the catalog.
    pub hardware: String,
    /// Devices per model replica.
    pub count: u32,
    /// Mean tokens per second of one replica.
    pub tokens_per_second: f64,
}

/// Measured throughput by type and device count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThroughputTable {
    known: BTreeMap<(TypeName, u32), Throughput>,
    unknown: BTreeSet<String>,
}

/// Range of measured tokens per second, rounded to tenths, and the hardware names of the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Speed)]
pub struct Throughput {
    /// Lowest number of tokens per second.
    low: f64,
    /// Highest number of tokens per second.
    high: f64,
    /// Hardware names of the rows.
    #[schema(value_type = Vec<String>)]
    rows: BTreeSet<String>,
    /// True if the rows' hardware name also denotes other types.
    #[serde(skip)]
    is_ambiguous: bool,
}

/// Upper bound in tenths of a token per second, far above any device.
const MAX_TENTHS: f64 = 4e9;

impl ThroughputTable {
    /// Builds the table from rows. Hardware names are resolved by the catalog. A name that denotes several types counts
    /// for each of them, unless another row names one type unambiguously.
    pub fn from_rows(rows: &[Measurement], catalog: &Catalog) -> Self {
        let mut names: BTreeMap<&str, Hardware> = BTreeMap::new();
        let mut speeds = Self::default();
        for row in rows {
            let hardware = names
                .entry(&row.hardware)
                .or_insert_with(|| Hardware::resolve(catalog, &row.hardware));
            let Hardware::Types(types) = hardware else {
                speeds.unknown.insert(row.hardware.clone());
                continue;
            };
            for type_name in types.iter() {
                let speed = Throughput::of(row, types.len() > 1);
                let key = (type_name.clone(), row.count);
                speeds.known.entry(key).and_modify(|known| known.add(&speed)).or_insert(speed);
            }
        }
        speeds
    }

    /// Returns the throughput of `count` devices of this type.
    pub fn get(&self, type_name: &TypeName, count: u32) -> Option<&Throughput> {
        self.known.get(&(type_name.clone(), count))
    }

    /// Returns the hardware names that the catalog does not know.
    pub fn unknown(&self) -> &BTreeSet<String> {
        &self.unknown
    }
}

impl Throughput {
    fn of(row: &Measurement, is_ambiguous: bool) -> Self {
        let tenths = (row.tokens_per_second * 10.0).round();
        let speed = tenths.clamp(0.0, MAX_TENTHS) / 10.0;
        Self { low: speed, high: speed, rows: BTreeSet::from([row.hardware.clone()]), is_ambiguous }
    }

    /// A row that names one type replaces rows with ambiguous names.
    fn add(&mut self, other: &Self) {
        if self.is_ambiguous && !other.is_ambiguous {
            *self = other.clone();
        } else if self.is_ambiguous == other.is_ambiguous {
            self.low = self.low.min(other.low);
            self.high = self.high.max(other.high);
            self.rows.extend(other.rows.iter().cloned());
        }
    }

    /// Returns the hardware names of the rows.
    pub(super) fn rows(&self) -> Vec<&str> {
        self.rows.iter().map(String::as_str).collect()
    }
}

/// Formats as `75`, `74.5` or `60 to 75`.
impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.low.to_string(), self.high.to_string());
        if low == high { f.pad(&low) } else { f.pad(&format!("{low} to {high}")) }
    }
}

/// Compares the throughput of `own` and `other`: "expect 75 instead of 120 tokens/s (benchmark results: A100-80, H200)".
pub(super) fn compare(own: &Throughput, other: &Throughput) -> String {
    let rows: BTreeSet<&str> = own.rows.union(&other.rows).map(String::as_str).collect();
    let rows: Vec<&str> = rows.into_iter().collect();
    format!("expect {own} instead of {other} tokens/s (benchmark results: {})", rows.join(", "))
}
