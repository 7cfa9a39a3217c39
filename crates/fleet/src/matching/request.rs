//! Requests. Every field is validated on construction, so matching cannot fail.

use std::fmt;
use std::str::FromStr;

use octavo_model::accelerators::{Lookup, lookup};
use octavo_model::id::TypeName;
use octavo_model::quantity::{ComputeCapability, Mebibytes};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, IntoStaticStr};

use super::architectures::{self, Generation};
use super::throughput::ThroughputTable;
use crate::price::{Amount, PurchaseOption};
use crate::request_error::RequestError;

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
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
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
    IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
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
        let wrong = || {
            let problem = format!("count must be an integer from 1 to {MAX_DEVICES}");
            RequestError::new("count", problem)
        };
        let count = u32::try_from(count).map_err(|_| wrong())?;
        if count == 0 || count > MAX_DEVICES {
            return Err(wrong());
        }
        self.count = Some(count);
        Ok(self)
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
        let part = |text: &str| {
            let digits =
                !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
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
    let type_of = |sku: &octavo_model::id::Sku| {
        let facts = octavo_model::accelerators::facts(sku);
        facts.and_then(|facts| facts.type_name.parse::<TypeName>().ok())
    };
    let mut found: Vec<TypeName> = match lookup(name) {
        Lookup::Found(sku) => type_of(&sku).into_iter().collect(),
        Lookup::Ambiguous(skus) => skus.iter().filter_map(type_of).collect(),
        // An uncataloged name may be a type derived from a driver's product name.
        Lookup::Unknown(_) if name.contains('-') => name.parse().into_iter().collect(),
        Lookup::Unknown(_) => Vec::new(),
    };
    found.sort();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!(
            "{short:?} is not a known type such as nvidia-a100-80gb; `octavo catalog search` finds names"
        )),
        several => {
            let several: Vec<&str> = several.iter().map(TypeName::as_str).collect();
            let several = several.join(", ");
            Err(format!("{short:?} is ambiguous; use one of {several}"))
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
    /// Formats the amount in gigabytes of 10^9 bytes, as vendors specify memory, with at most one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0 / 100_000_000;
        let text = match (tenths / 10, tenths % 10) {
            (whole, 0) => format!("{whole} GB"),
            (whole, tenth) => format!("{whole}.{tenth} GB"),
        };
        f.pad(&text)
    }
}

impl Interconnect {
    /// All values.
    pub const ALL: [Self; 5] =
        [Self::Any, Self::Direct, Self::NvLink, Self::InfinityFabric, Self::NeuronLink];

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Isolation {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Exclusive, Self::Mig, Self::Shared];

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Interconnect {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| unknown_value("interconnect", text, &Self::ALL.map(Self::as_str)))
    }
}

impl FromStr for Isolation {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| unknown_value("isolation", text, &Self::ALL.map(Self::as_str)))
    }
}

fn unknown_value(field: &'static str, text: &str, words: &[&str]) -> RequestError {
    let text: String = text.chars().take(40).collect();
    RequestError::new(field, format!("{text:?} is not one of {}", words.join(", ")))
}
