//! The request document. Unknown keys are rejected: most likely they are misspelled requirements.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};
use utoipa::ToSchema;

use super::request::{Bytes, Interconnect, Isolation, Request};
use crate::price::{Amount, PurchaseOption};
use crate::request_error::RequestError;
use crate::slo::MeasuredRow;

/// Requirements of one pod, as requested. Every field is optional. Names are resolved by [`Request::try_from`].
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchRequest {
    /// Devices for one pod, all on one node; by default the fewest that have the memory.
    pub count: Option<u64>,
    /// Minimum memory of each device: `80GB` is 80 · 10^9 bytes, as vendors specify memory, and `80Gi` 80 · 2^30.
    pub memory_per_device_at_least: Option<String>,
    /// Minimum memory of all devices of the pod together.
    pub memory_total_at_least: Option<String>,
    /// Oldest acceptable architecture, such as `ampere`; excludes other vendors.
    pub architecture_at_least: Option<String>,
    /// Lowest acceptable CUDA compute capability, such as `8.0`.
    pub compute_capability_at_least: Option<String>,
    /// Preferred types, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<String>,
    /// `any`, `direct`, `nvlink`, `infinity-fabric` or `neuronlink`.
    #[schema(value_type = Option<String>)]
    pub interconnect: Option<Interconnect>,
    /// `exclusive`: whole devices alone; `mig`: also partitions; `shared`: also time-sliced devices.
    #[schema(value_type = Option<String>)]
    pub isolation: Option<Isolation>,
    /// Maximum price of all devices together per hour, as a decimal in quotes, in the price book's currency.
    #[serde(default)]
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[schema(value_type = Option<String>)]
    pub price_at_most_per_hour: Option<Amount>,
    /// `on-demand`, `spot` or `reserved`.
    #[schema(value_type = Option<String>)]
    pub purchase_option: Option<PurchaseOption>,
    /// Rows of a model catalog's performance data; `tps_mean` is tokens per second. They do not change the order:
    /// warnings contain the expected throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<MeasuredRow>,
}

impl TryFrom<MatchRequest> for Request {
    type Error = RequestError;

    fn try_from(document: MatchRequest) -> Result<Self, RequestError> {
        let mut request = Self {
            memory_each: memory("memoryPerDeviceAtLeast", document.memory_per_device_at_least)?,
            memory_total: memory("memoryTotalAtLeast", document.memory_total_at_least)?,
            interconnect: document.interconnect.unwrap_or_default(),
            isolation: document.isolation.unwrap_or_default(),
            max_price: document.price_at_most_per_hour,
            purchase_option: document.purchase_option.unwrap_or_default(),
            ..Self::default()
        };
        if let Some(count) = document.count {
            request = request.with_count(count)?;
        }
        if let Some(name) = document.architecture_at_least {
            request = request.with_architecture(&name)?;
        }
        if let Some(text) = document.compute_capability_at_least {
            request = request.with_compute_capability(&text)?;
        }
        for name in document.preferred {
            request = request.with_preferred(&name)?;
        }
        Ok(request)
    }
}

fn memory(field: &'static str, text: Option<String>) -> Result<Option<Bytes>, RequestError> {
    let parsed =
        text.map(|text| text.parse().map_err(|problem: String| RequestError::new(field, problem)));
    parsed.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        let document: MatchRequest =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        Request::try_from(document).map_err(|error| format!("{}: {error}", error.field))
    }

    #[test]
    fn request_fields_are_parsed_and_all_are_optional() {
        assert_eq!(read("{}"), Ok(Request::default()));
        let request = read(
            r#"{"count": 2, "memoryPerDeviceAtLeast": "80GB", "memoryTotalAtLeast": "150Gi", "architectureAtLeast": "ampere",
                "computeCapabilityAtLeast": "8.0", "preferred": ["H200"], "interconnect": "nvlink", "isolation": "mig",
                "priceAtMostPerHour": "12.50", "purchaseOption": "spot"}"#,
        )
        .unwrap();
        assert_eq!(request.count, Some(2));
        assert_eq!(request.memory_total.map(Bytes::get), Some(150 << 30));
        assert_eq!(request.architecture.map(|one| one.name), Some("Ampere"));
        assert_eq!(request.max_price.map(|most| most.to_string()).as_deref(), Some("12.50"));
    }

    #[test]
    fn invalid_request_is_rejected_with_its_field() {
        for (text, expected) in [
            (r#"{"memory": "80GB"}"#, "unknown field `memory`"),
            (r#"{"count": -1}"#, "line 1 column 12"),
            (r#"{"count": 0}"#, "count: count must be"),
            (
                r#"{"memoryTotalAtLeast": "80"}"#,
                "memoryTotalAtLeast: \"80\" is not an amount of memory",
            ),
            (r#"{"priceAtMostPerHour": "-3"}"#, "\"-3\" is not a price"),
            (r#"{"priceAtMostPerHour": 3}"#, "expected a string"),
            (r#"{"isolation": "mine"}"#, "\"mine\" is not one of"),
            (r#"{"count": 1, "count": 2}"#, "duplicate field"),
            ("[", "EOF"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
