//! EC2 quotas: virtual CPUs that the instances of the fleet and additional ones need, against the limits of the account.
//!
//! Quotas are per account and region, and count virtual CPUs by class of instances and purchase option. Sources of the codes:
//! AWS Service Quotas, service `ec2`, as cited by several open-source tools in 2026.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{CPU, ClusterNode};
use octavo_model::accelerators::Catalog;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thiserror::Error;

use crate::instances::{ec2_instance_type, is_spot};

/// Class of instances with a quota.
struct Class {
    /// Families: letters at the beginning of an instance type, or the whole part before the dot.
    families: &'static [&'static str],
    /// Name of the class in names of quotas.
    name: &'static str,
    on_demand: &'static str,
    /// `None`: the quota is found by its name.
    spot: Option<&'static str>,
}

/// Classes, the special ones first.
const CLASSES: [Class; 8] = [
    Class {
        families: &["p5", "p5e", "p5en"],
        name: "P5",
        on_demand: "L-417A185B",
        spot: Some("L-C4BD4855"),
    },
    // Sources disagree about the quota of Spot requests.
    Class {
        families: &["p6-b200", "p6-b300", "p6e-gb200"],
        name: "P6",
        on_demand: "L-417A185B",
        spot: None,
    },
    Class { families: &["p"], name: "P", on_demand: "L-417A185B", spot: Some("L-7212CCBC") },
    Class {
        families: &["g", "gr", "vt"],
        name: "G and VT",
        on_demand: "L-DB2E81BA",
        spot: Some("L-3819A6DF"),
    },
    Class { families: &["inf"], name: "Inf", on_demand: "L-1945791B", spot: Some("L-B5D1601B") },
    Class { families: &["trn"], name: "Trn", on_demand: "L-2C3B7624", spot: Some("L-6B0D517C") },
    Class { families: &["dl"], name: "DL", on_demand: "L-6E869C2A", spot: Some("L-85EED4F7") },
    Class {
        families: &["a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"],
        name: "Standard",
        on_demand: "L-1216C47A",
        spot: Some("L-34B43A08"),
    },
];

/// Limits of an account, as printed by `aws service-quotas list-service-quotas --service-code ec2`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Limits {
    quotas: Vec<Limit>,
}

/// Limit of a quota.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Limit {
    quota_code: String,
    quota_name: String,
    value: f64,
}

/// Additional instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Instance type.
    pub instance_type: String,
    /// Number of instances.
    pub count: u64,
    /// True for Spot instances.
    pub is_spot: bool,
}

/// Reason why needs cannot be calculated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuotaError {
    /// The instance type is not an accelerated one that is known.
    #[error(
        "the number of virtual CPUs of {0} is unknown: neither the catalog nor the fleet has this \
         instance type; check its spelling with `octavo catalog search {0}`"
    )]
    UnknownInstance(String),
    /// No quota is known for the instance type.
    #[error("no EC2 quota is known for {0}")]
    UnknownClass(String),
}

/// State of all quotas that the instances need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuotaReport {
    /// Quotas, ordered by code.
    pub items: Vec<QuotaNeed>,
}

/// State of one quota.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaNeed {
    /// Code of the quota; absent if the limits do not contain it.
    pub code: Option<String>,
    /// Name in the limits; otherwise the class and the purchase option.
    pub name: String,
    /// Instance types.
    pub instance_types: BTreeSet<String>,
    /// Limit in virtual CPUs; absent if unknown.
    pub limit: Option<u64>,
    /// Virtual CPUs of the fleet's nodes.
    pub used: u64,
    /// Virtual CPUs of additional instances.
    pub added: u64,
    /// True if the limit is sufficient.
    pub sufficient: bool,
}

impl QuotaNeed {
    /// Virtual CPUs of all instances.
    pub fn needed(&self) -> u64 {
        self.used.saturating_add(self.added)
    }

    fn judge(mut self) -> Self {
        self.sufficient = self.limit.is_some_and(|limit| limit >= self.needed());
        self
    }
}

/// Compares the instances of the fleet and the additional ones with the limits.
///
/// # Errors
///
/// Fails if an additional instance is unknown. Nodes of other classes are not counted.
pub fn check_quotas(
    nodes: &[ClusterNode],
    additions: &[Addition],
    limits: &Limits,
) -> Result<QuotaReport, QuotaError> {
    let known = vcpus(nodes);
    let mut needs: BTreeMap<(&str, bool), QuotaNeed> = BTreeMap::new();
    for node in nodes {
        let Some((instance_type, class)) =
            ec2_instance_type(node).and_then(|name| Some((name, class(name)?)))
        else {
            continue;
        };
        let need = need(&mut needs, class, is_spot(node), limits);
        need.instance_types.insert(instance_type.to_owned());
        let count = known.get(instance_type).copied().unwrap_or_default();
        need.used = need.used.saturating_add(count);
    }
    for Addition { instance_type, count, is_spot } in additions {
        let class =
            class(instance_type).ok_or_else(|| QuotaError::UnknownClass(instance_type.clone()))?;
        let each = known.get(instance_type.as_str());
        let each = each.ok_or_else(|| QuotaError::UnknownInstance(instance_type.clone()))?;
        let need = need(&mut needs, class, *is_spot, limits);
        need.instance_types.insert(instance_type.clone());
        need.added = need.added.saturating_add(each.saturating_mul(*count));
    }
    Ok(QuotaReport { items: needs.into_values().map(QuotaNeed::judge).collect() })
}

/// Virtual CPUs by instance type: of the catalog, otherwise of a node.
fn vcpus(nodes: &[ClusterNode]) -> BTreeMap<&str, u64> {
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    for node in nodes {
        if let Some(name) = ec2_instance_type(node) {
            let count = known.entry(name).or_default();
            *count = (*count).max(node.capacity.get(CPU).div_ceil(1000));
        }
    }
    let catalog = Catalog::built_in();
    let offers = catalog.products().iter().flat_map(|product| product.offers);
    for offer in offers.filter(|offer| offer.cloud == "aws") {
        known.extend(offer.vcpus.map(|count| (offer.instance, u64::from(count))));
    }
    known
}

/// Class of an instance type.
fn class(instance_type: &str) -> Option<&'static Class> {
    let (family, _) = instance_type.split_once('.')?;
    let letters = family.split(|c: char| !c.is_ascii_lowercase()).next()?;
    CLASSES.iter().find(|class| class.families.iter().any(|own| *own == family || *own == letters))
}

fn need<'a>(
    needs: &'a mut BTreeMap<(&'static str, bool), QuotaNeed>,
    class: &'static Class,
    is_spot: bool,
    limits: &Limits,
) -> &'a mut QuotaNeed {
    let code = if is_spot { class.spot } else { Some(class.on_demand) };
    needs.entry((code.unwrap_or(class.name), is_spot)).or_insert_with(|| {
        let found = limits.quotas.iter().find(|limit| match code {
            Some(code) => limit.quota_code == code,
            None => limit.quota_name.contains("Spot") && has_word(&limit.quota_name, class.name),
        });
        // Several classes of Spot requests share a quota of On-Demand instances, which the last one is named for.
        let shared = CLASSES.iter().rfind(|other| !is_spot && other.on_demand == class.on_demand);
        let class_name = shared.unwrap_or(class).name;
        let option = if is_spot { "Spot" } else { "On-Demand" };
        QuotaNeed {
            code: code.map(ToOwned::to_owned).or_else(|| found.map(|one| one.quota_code.clone())),
            name: found.map_or_else(
                || format!("{option} {class_name} instances"),
                |one| one.quota_name.clone(),
            ),
            instance_types: BTreeSet::new(),
            limit: found.map(|one| whole(one.value)),
            used: 0,
            added: 0,
            sufficient: false,
        }
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|one| one == word)
}

/// Whole part of a limit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a floating-point number saturates"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests;
