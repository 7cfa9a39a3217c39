//! Requests. Every field is validated on construction, so matching cannot fail.

use std::fmt;
use std::str::FromStr;

use octavo_model::accelerators::{Catalog, Lookup};
use octavo_model::id::TypeName;
use octavo_model::quantity::{ComputeCapability, Mebibytes};
use octavo_model::text::format_memory;
use serde::{Deserialize, Serialize};
use serde_with::{
    DeserializeFromStr, DisplayFromStr, SerializeDisplay, serde_as, skip_serializing_none,
};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use super::architectures::{self, Generation};
use super::throughput::ThroughputTable;
use crate::price::{Amount, Currency, PurchaseOption};
use crate::request_error::RequestError;
use crate::slo::MeasuredRow;
use crate::type_labels::types_of;

/// Maximum devices per pod.
pub(super) const MAX_DEVICES: u32 = 1024;
/// Maximum number of preferred types.
pub(super) const MAX_PREFERRED: usize = 32;

/// Requirements of one pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// Units per pod, all on one node; `None` for the fewest that have the memory.
    pub count: Option<u32>,
    /// Minimum memory per unit.
    pub memory_each: Option<Bytes>,
    /// Minimum memory of all units together.
    pub memory_total: Option<Bytes>,
    /// Oldest acceptable chip family.
    pub architecture: Option<Generation>,
    /// Lowest acceptable CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Preferred types, best first.
    pub preferred: Vec<TypeName>,
    /// Required link between the units.
    pub interconnect: Interconnect,
    /// Required isolation.
    pub isolation: Isolation,
    /// Maximum price of all units per hour.
    pub max_price: Option<Amount>,
    /// Currency of the maximum price, which is that of the price book.
    pub currency: Option<Currency>,
    /// Purchase option.
    pub purchase_option: PurchaseOption,
    /// Measured throughput by hardware; used in warnings, never for the decision.
    pub throughput: ThroughputTable,
}

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Bytes(u64);

/// Required link between devices.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    SerializeDisplay,
    DeserializeFromStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[strum(parse_err_ty = RequestError, parse_err_fn = unknown_interconnect)]
pub enum Interconnect {
    /// Any, including the bus.
    #[default]
    Any,
    /// Any direct link between devices.
    Direct,
    /// NVIDIA's `NVLink`.
    #[strum(serialize = "nvlink")]
    NvLink,
    /// AMD's Infinity Fabric.
    InfinityFabric,
    /// Amazon's `NeuronLink`.
    #[strum(serialize = "neuronlink")]
    NeuronLink,
}

/// Required isolation. Each level also accepts the ones before it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    SerializeDisplay,
    DeserializeFromStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[strum(parse_err_ty = RequestError, parse_err_fn = unknown_isolation)]
pub enum Isolation {
    /// Whole devices, allocated exclusively.
    #[default]
    Exclusive,
    /// Partitions with memory of their own.
    Mig,
    /// Time-sliced devices.
    Shared,
}

impl Request {
    /// Sets the units per pod.
    pub fn with_count(mut self, count: u64) -> Result<Self, RequestError> {
        self.count = u32::try_from(count).ok().filter(|count| (1..=MAX_DEVICES).contains(count));
        let problem = || format!("count must be an integer from 1 to {MAX_DEVICES}");
        self.count.is_some().then_some(self).ok_or_else(|| RequestError::new("count", problem()))
    }

    /// Sets the oldest acceptable chip family by name.
    pub fn with_architecture(mut self, name: &str) -> Result<Self, RequestError> {
        let found = architectures::parse(name);
        self.architecture = Some(found.ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            let known = architectures::names();
            let meant = architectures::suggest(&name);
            let meant = meant.map_or_else(String::new, |near| format!("did you mean {near}? "));
            let problem = format!(
                "{name:?} is not a known architecture; {meant}known architectures are {known}"
            );
            RequestError::new("architectureAtLeast", problem)
        })?);
        Ok(self)
    }

    /// Adds a preferred type, by its name or any other name that identifies one type.
    pub fn with_preferred(mut self, name: &str) -> Result<Self, RequestError> {
        let field = "preferred";
        if self.preferred.len() >= MAX_PREFERRED {
            let problem = format!("at most {MAX_PREFERRED} types can be preferred");
            return Err(RequestError::new(field, problem));
        }
        let type_name = resolve_type(name).map_err(|problem| RequestError::new(field, problem))?;
        if !self.preferred.contains(&type_name) {
            self.preferred.push(type_name);
        }
        Ok(self)
    }

    /// Sets the lowest acceptable compute capability, such as `8.0`.
    pub fn with_compute_capability(mut self, text: &str) -> Result<Self, RequestError> {
        // The integer parser also accepts a sign.
        let part = |text: &str| {
            let digits = text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let parsed = text.split_once('.').and_then(|(major, minor)| {
            Some(ComputeCapability { major: part(major)?, minor: part(minor)? })
        });
        self.compute_capability = Some(parsed.ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            let problem = format!("{text:?} is not a compute capability such as 8.0");
            RequestError::new("computeCapabilityAtLeast", problem)
        })?);
        Ok(self)
    }
}

/// Resolves a name to one type: a type name, whether the catalog lists it or not, or a name that the catalog resolves.
pub fn resolve_type(name: &str) -> Result<TypeName, String> {
    let short: String = name.chars().take(60).collect();
    let catalog = Catalog::built_in();
    let product = catalog.lookup(name);
    let mut found = types_of(&catalog, &product);
    if matches!(product, Lookup::Unknown(_)) && name.contains('-') {
        found.extend(name.parse());
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!(
            "{short:?} is not a known type such as nvidia-a100-80gb; `octavo catalog search` finds names"
        )),
        several => {
            let several: Vec<&str> = several.iter().map(TypeName::as_str).collect();
            Err(format!("{short:?} is ambiguous; use one of {}", several.join(", ")))
        }
    }
}

impl Bytes {
    /// Creates an amount from a number of bytes.
    pub fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Multiplies the amount, saturating.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(u64::from(count)))
    }

    /// Returns how many units of `each` are needed for the amount.
    pub fn units_needed(self, each: Self) -> Option<u64> {
        (each.0 > 0).then(|| self.0.div_ceil(each.0))
    }
}

impl From<Mebibytes> for Bytes {
    fn from(amount: Mebibytes) -> Self {
        Self(amount.get().saturating_mul(1 << 20))
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Parses an amount. `80GB` and `80G` are 80 · 10^9 bytes, as vendors specify memory; `80Gi` and `80GiB` are 80 ·
    /// 2^30, as drivers do.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text: String = text.chars().take(40).collect();
            format!(
                "{text:?} is not an amount of memory: use an integer with a unit, such as 80GB (10^9 bytes) or \
                 80Gi (2^30 bytes)"
            )
        };
        let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(end);
        let unit: u64 = match unit.trim_start().trim_end_matches(['B', 'b']) {
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "T" => 1_000_000_000_000,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            "Ti" => 1 << 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(unit).filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_memory(Mebibytes::from_bytes(self.0)))
    }
}

fn unknown_interconnect(text: &str) -> RequestError {
    RequestError::unknown_value::<Interconnect>("interconnect", text)
}

fn unknown_isolation(text: &str) -> RequestError {
    RequestError::unknown_value::<Isolation>("isolation", text)
}

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
        document.preferred.iter().try_fold(request, |request, name| request.with_preferred(name))
    }
}

fn memory(field: &'static str, text: Option<String>) -> Result<Option<Bytes>, RequestError> {
    let parsed = text.map(|text| text.parse::<Bytes>()).transpose();
    parsed.map_err(|problem| RequestError::new(field, problem))
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
