//! Purchase options of devices, and the node labels that name them.

use std::collections::BTreeMap;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{PriceError, truncate};

/// Purchase option of a device.
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
#[strum(serialize_all = "kebab-case")]
#[strum(parse_err_ty = PriceError, parse_err_fn = unknown_option)]
pub enum PurchaseOption {
    /// By the hour, without commitment.
    #[default]
    OnDemand,
    /// By the hour, interruptible.
    Spot,
    /// With a long-term commitment.
    Reserved,
}

/// Node labels with the purchase option that a value means. If a node has several, the first one counts.
///
/// Sources: Karpenter v1.13.0, `pkg/apis/v1/labels.go`; EKS, "Managed node group capacity types" and API type
/// `CapacityTypes`; GKE, "Spot VMs" and "Preemptible VMs"; AKS, "Add a Spot node pool"; OpenShift, machine-api-operator,
/// `machine.openshift.io/interruptible-instance`.
const LABELS: [(&str, &str, PurchaseOption); 10] = [
    ("karpenter.sh/capacity-type", "spot", PurchaseOption::Spot),
    ("eks.amazonaws.com/capacityType", "SPOT", PurchaseOption::Spot),
    ("cloud.google.com/gke-spot", "true", PurchaseOption::Spot),
    ("cloud.google.com/gke-preemptible", "true", PurchaseOption::Spot),
    ("kubernetes.azure.com/scalesetpriority", "spot", PurchaseOption::Spot),
    ("machine.openshift.io/interruptible-instance", "", PurchaseOption::Spot),
    ("karpenter.sh/capacity-type", "reserved", PurchaseOption::Reserved),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", PurchaseOption::Reserved),
    ("karpenter.sh/capacity-type", "on-demand", PurchaseOption::OnDemand),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", PurchaseOption::OnDemand),
];

impl PurchaseOption {
    /// Returns the purchase option that the labels of a node name; `None` if they name none.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let has = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
        LABELS.iter().find(|(key, value, _)| has(key, value)).map(|(.., option)| *option)
    }
}

fn unknown_option(text: &str) -> PriceError {
    PriceError::Option(truncate(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purchase_option_follows_the_labels_of_the_cloud() {
        let option = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            PurchaseOption::from_labels(&labels.collect())
        };
        for (key, value, expected) in LABELS {
            assert_eq!(option(&[(key, value), ("zone", "a")]), Some(expected), "{key}={value}");
        }
        assert_eq!(option(&[]), None);
        assert_eq!(option(&[("karpenter.sh/capacity-type", "other")]), None);
        assert_eq!(option(&[("cloud.google.com/gke-spot", "false")]), None);
        let both = [
            ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
            ("karpenter.sh/capacity-type", "spot"),
        ];
        assert_eq!(option(&both), Some(PurchaseOption::Spot));
    }
}
