//! The JSON of matching requests and responses.
//!
//! Requests are parsed strictly, because an unknown key is most likely a misspelled requirement that would otherwise be
//! ignored. Responses may get more fields. The aggregator reads requests and writes responses; the command line does
//! the opposite.

use octavo_fleet::availability::CountBasis;
use octavo_fleet::matching::{
    Answer, Bytes, FreeUnits, Match, Offer, ProfileInfo, Refusal, Request, RequestError, Shape,
    Throughput,
};
use octavo_fleet::price::{Amount, Price};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::API_VERSION;
use super::slo::RowJson;

/// What a pod needs. Everything may be left out; what is left out does not matter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchRequest {
    /// Devices for one pod, all on one node; without it the fewest that have the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Memory of each device: `80GB` is 80 · 10^9 bytes, as memory is sold, and `80Gi` 80 · 2^30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_device_at_least: Option<String>,
    /// Memory of all devices of the pod together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total_at_least: Option<String>,
    /// The oldest architecture that will do, such as `ampere`; another maker's does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture_at_least: Option<String>,
    /// The lowest CUDA compute capability that will do, such as `8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability_at_least: Option<String>,
    /// Types that are liked best, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<String>,
    /// `any`, `direct`, `nvlink`, `infinity-fabric` or `neuronlink`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interconnect: Option<String>,
    /// `exclusive`: whole devices alone; `mig`: partitions too; `shared`: devices that others use by turns too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The most that all devices together may cost an hour, as a decimal in quotes, in the price book's currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_at_most_per_hour: Option<String>,
    /// `on-demand`, `spot` or `reserved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchase_option: Option<String>,
    /// Rows of a model catalogue's performance data; `tps_mean` is tokens a second. They change no order: warnings say what to expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<RowJson>,
}

/// What there is for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `MatchAnswer`.
    pub kind: String,
    /// Of the fleet that was asked.
    pub revision: u64,
    /// `fits-now`, `nothing-free` or `nothing-fits`.
    pub verdict: String,
    /// The same in one sentence.
    pub summary: String,
    /// By what is free: `cluster`, as the scheduler would place pods, or `agents`, as they see devices without a process.
    #[serde(default)]
    pub free_by: String,
    /// What fits, the best first.
    pub matches: Vec<MatchRow>,
    /// What does not, by name.
    pub refused: Vec<RefusalRow>,
    /// What to know of the whole answer, such as that the price book cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// An offer that fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchRow {
    /// 1 is the best.
    pub rank: usize,
    /// What it is called: a hardware profile's namespace and name; or the type, and behind a slash the partition's profile or `shared`.
    pub name: String,
    /// The hardware profile; absent where none has it, or none are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PickedJson>,
    /// The type of the devices; the first of them where a profile reaches several.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Further types that a pod may get as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_types: Vec<String>,
    /// The resource that the pod asks for; absent where only agents tell what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// `whole`, `mig`, `part` or `shared`.
    pub shape: String,
    /// Units that the pod asks for.
    pub count: u32,
    /// `free`, `could-become`, `unknown` or `taken`.
    pub standing: String,
    /// Memory of one unit; absent where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The chip family; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// All units there are.
    pub total: u64,
    /// What is free of them; absent where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<FreeJson>,
    /// What a change that disturbs nobody would free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub could_become: Option<ChangeJson>,
    /// What all units of the pod cost; absent without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostJson>,
    /// How fast so many were measured to be; absent without a row that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<SpeedJson>,
    /// Why it fits.
    pub reasons: Vec<String>,
    /// What to know before it is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A hardware profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PickedJson {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What people are shown.
    pub display_name: String,
    /// The fewest units that people can ask for.
    pub min: u64,
    /// The most; absent for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// How fast a model was measured to write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeedJson {
    /// The least, in tokens a second.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// What the rows call the hardware.
    pub rows: Vec<String>,
}

/// Units that are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FreeJson {
    /// On all nodes.
    pub total: u64,
    /// On the node that has most.
    pub on_one_node: u32,
}

/// A change that would free units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeJson {
    /// Units that would be free on one node then.
    pub on_one_node: u32,
    /// What is to be done.
    pub how: String,
}

/// Money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostJson {
    /// For an hour, a decimal.
    pub per_hour: String,
    /// Three letters.
    pub currency: String,
    /// How it is paid for.
    pub purchase_option: String,
}

/// An offer that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusalRow {
    /// What it is called.
    pub name: String,
    /// All that speaks against it.
    pub why: Vec<String>,
}

impl TryFrom<MatchRequest> for Request {
    type Error = RequestError;

    fn try_from(asked: MatchRequest) -> Result<Self, RequestError> {
        let mut request = Self {
            memory_each: memory("memoryPerDeviceAtLeast", asked.memory_per_device_at_least)?,
            memory_total: memory("memoryTotalAtLeast", asked.memory_total_at_least)?,
            interconnect: parsed(asked.interconnect)?.unwrap_or_default(),
            isolation: parsed(asked.isolation)?.unwrap_or_default(),
            max_price: price("priceAtMostPerHour", asked.price_at_most_per_hour)?,
            purchase_option: price("purchaseOption", asked.purchase_option)?.unwrap_or_default(),
            ..Self::default()
        };
        if let Some(count) = asked.count {
            request = request.with_count(count)?;
        }
        if let Some(name) = asked.architecture_at_least {
            request = request.with_architecture(&name)?;
        }
        if let Some(text) = asked.compute_capability_at_least {
            request = request.with_compute_capability(&text)?;
        }
        for name in asked.preferred {
            request = request.with_preferred(&name)?;
        }
        Ok(request)
    }
}

fn memory(field: &'static str, text: Option<String>) -> Result<Option<Bytes>, RequestError> {
    let parsed = text.map(|text| {
        text.parse()
            .map_err(|problem: String| RequestError::new(field, problem))
    });
    parsed.transpose()
}

fn parsed<T: std::str::FromStr<Err = RequestError>>(
    text: Option<String>,
) -> Result<Option<T>, RequestError> {
    text.map(|text| text.parse()).transpose()
}

fn price<T: std::str::FromStr<Err = octavo_fleet::price::PriceError>>(
    field: &'static str,
    text: Option<String>,
) -> Result<Option<T>, RequestError> {
    let parsed = text.map(|text| {
        text.parse()
            .map_err(|error: T::Err| RequestError::new(field, error.to_string()))
    });
    parsed.transpose()
}

impl MatchAnswer {
    /// Creates the response for a fleet revision. `free_by` is the source of the free counts.
    pub fn new(
        answer: Answer,
        (revision, free_by): (u64, CountBasis),
        notices: Vec<String>,
    ) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "MatchAnswer".to_owned(),
            revision,
            verdict: answer.verdict.as_str().to_owned(),
            summary: answer.summary,
            free_by: free_by.as_str().to_owned(),
            matches: answer.matches.into_iter().map(Into::into).collect(),
            refused: answer.refused.into_iter().map(Into::into).collect(),
            notices,
        }
    }
}

impl CostJson {
    /// Cost of all units together. `price` is the price of one unit.
    pub fn new(all: Amount, price: &Price) -> Self {
        Self {
            per_hour: all.to_string(),
            currency: price.currency.to_string(),
            purchase_option: price.option.as_str().to_owned(),
        }
    }
}

impl From<Match> for MatchRow {
    fn from(found: Match) -> Self {
        let Offer {
            name,
            type_name,
            shape,
            memory,
            total,
            free,
            after_change: could_become,
            price,
            traits,
            resource,
            profile,
            others,
            ..
        } = found.offer;
        Self {
            rank: found.rank,
            name,
            profile: profile.map(Into::into),
            type_name: type_name.to_string(),
            other_types: others.iter().map(ToString::to_string).collect(),
            resource,
            shape: shape_name(&shape),
            count: found.count,
            standing: found.standing.as_str().to_owned(),
            memory_bytes: memory.map(Bytes::get),
            architecture: traits.architecture,
            total,
            free: match free {
                FreeUnits::Unknown => None,
                FreeUnits::Known { total, on_one_node } => Some(FreeJson { total, on_one_node }),
            },
            could_become: could_become.map(|change| ChangeJson {
                on_one_node: change.on_one_node,
                how: change.how,
            }),
            cost: found
                .per_hour
                .zip(price)
                .map(|(all, price)| CostJson::new(all, &price)),
            tokens_per_second: found.speed.as_ref().map(Into::into),
            reasons: found.reasons,
            warnings: found.warnings,
        }
    }
}

impl From<ProfileInfo> for PickedJson {
    fn from(picked: ProfileInfo) -> Self {
        Self {
            namespace: picked.namespace,
            name: picked.name,
            display_name: picked.shown,
            min: picked.min,
            max: picked.max,
        }
    }
}

impl From<&Throughput> for SpeedJson {
    fn from(speed: &Throughput) -> Self {
        let (low, high) = speed.tenths();
        Self {
            low: f64::from(low) / 10.0,
            high: f64::from(high) / 10.0,
            rows: speed.rows().iter().cloned().collect(),
        }
    }
}

impl From<Refusal> for RefusalRow {
    fn from(refusal: Refusal) -> Self {
        Self {
            name: refusal.name,
            why: refusal.why,
        }
    }
}

fn shape_name(shape: &Shape) -> String {
    shape.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        let asked: MatchRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Request::try_from(asked).map_err(|error| format!("{}: {error}", error.field))
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
        assert_eq!(
            request.max_price.map(|most| most.to_string()).as_deref(),
            Some("12.50")
        );
    }

    #[test]
    fn invalid_request_is_rejected_with_its_field() {
        for (text, said) in [
            (r#"{"memory": "80GB"}"#, "unknown field `memory`"),
            (r#"{"count": -1}"#, "line 1 column 12"),
            (r#"{"count": 0}"#, "count: count must be"),
            (
                r#"{"memoryTotalAtLeast": "80"}"#,
                "memoryTotalAtLeast: \"80\" is no amount of memory",
            ),
            (
                r#"{"priceAtMostPerHour": "-3"}"#,
                "priceAtMostPerHour: \"-3\" is no price",
            ),
            (r#"{"priceAtMostPerHour": 3}"#, "expected a string"),
            (r#"{"isolation": "mine"}"#, "isolation: \"mine\" is none of"),
            (r#"{"count": 1, "count": 2}"#, "duplicate field"),
            ("[", "EOF"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
