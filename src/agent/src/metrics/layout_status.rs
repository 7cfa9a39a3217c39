//! The node's current status as series that come and go: the selected layout with its reason, and the pods that block
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::DeviceProvider;
use octavo_planner::reconcile::NodeLayoutStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Maximum number of pods with a series of their own. Users choose pod names, so their number needs a limit.
const MAX_BLOCKER_SERIES: usize = 16;
/// Maximum number of resources with series of their own.
const MAX_RESOURCE_SERIES: usize = 64;
/// Namespace of the series for all other pods. Every pod has a namespace, so this cannot be confused with a pod of
/// that name.
const OTHERS: &str = "other";

/// A pod by namespace and name; both empty for a process outside any pod.
type Pod = (String, String);

/// The last status in the form that a scrape reports. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct StatusCollector(Arc<Mutex<StatusSample>>);

#[derive(Debug, Default)]
struct StatusSample {
    /// The layout and its state.
    layout: Option<(String, Reported<Reason>)>,
    /// Whether there is a problem with the layouts or the state directory.
    has_notice: bool,
    /// Number of blocked devices by the pod that blocks them.
    blockers: BTreeMap<Pod, usize>,
    /// The component that allocates devices, and the state of sharing.
    sharing: Option<(Reported<DeviceProvider>, Reported<Reason>)>,
    /// Desired and allocatable count of each resource.
    shares: BTreeMap<String, (u64, Option<u64>)>,
}

impl StatusCollector {
    pub(super) fn set(&self, status: &NodeLayoutStatus) {
        let sample = StatusSample {
            layout: status.layout.clone().zip(status.state.clone()),
            has_notice: status.notice.is_some(),
            blockers: blockers(status),
            sharing: status
                .sharing
                .as_ref()
                .map(|sharing| (sharing.mode.clone(), sharing.state.clone())),
            shares: shares(status),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sample;
    }
}

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sample = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "Layout selected for the node and the state of the node, as labels; always 1";
        let mut metric = encoder.encode_descriptor("layout_info", help, None, MetricType::Gauge)?;
        if let Some((layout, reason)) = &sample.layout {
            let labels = [("layout", layout.as_str()), ("reason", reason.as_str())];
            ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Present with value 1 if there is a problem with the layouts file or the state directory";
        let metric = encoder.encode_descriptor("layout_notice", help, None, MetricType::Gauge)?;
        if sample.has_notice {
            ConstGauge::new(1_i64).encode(metric)?;
        }
        let help = "Number of devices whose layout change is blocked by this pod; without a pod, by a process outside any pod";
        let name = "blocker_devices";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((namespace, pod), count) in &sample.blockers {
            let labels = [("namespace", namespace.as_str()), ("pod", pod)];
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
        }
        sample.encode_sharing(encoder)
    }
}

impl StatusSample {
    fn encode_sharing(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Component that allocates devices to pods, and whether it follows the layout, as labels; always 1";
        let mut metric =
            encoder.encode_descriptor("sharing_info", help, None, MetricType::Gauge)?;
        if let Some((mode, reason)) = &self.sharing {
            let labels = [("mode", mode.as_str()), ("reason", reason.as_str())];
            ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Number of devices, partitions or replicas per resource: wanted by the layout, and allocatable on the Node";
        let mut metric = encoder.encode_descriptor("shares", help, None, MetricType::Gauge)?;
        for (resource, (wanted, allocatable)) in &self.shares {
            let counts = [("wanted", Some(wanted)), ("allocatable", allocatable.as_ref())];
            for (count, number) in counts {
                let Some(number) = number else { continue };
                let labels = [("resource", resource.as_str()), ("count", count)];
                let number = i64::try_from(*number).unwrap_or(i64::MAX);
                ConstGauge::new(number).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// The resources' names are those of profiles, so their number is bounded; the limit is applied nevertheless.
fn shares(status: &NodeLayoutStatus) -> BTreeMap<String, (u64, Option<u64>)> {
    let resources = status.sharing.iter().flat_map(|sharing| &sharing.resources);
    resources
        .take(MAX_RESOURCE_SERIES)
        .map(|one| (one.name.to_string(), (one.wanted, one.allocatable)))
        .collect()
}

/// Returns the number of blocked devices by the pod that blocks them. The pods that block most devices are retained;
/// ties are broken by name.
fn blockers(status: &NodeLayoutStatus) -> BTreeMap<Pod, usize> {
    let mut all: BTreeMap<Pod, BTreeSet<PciAddress>> = BTreeMap::new();
    for device in &status.devices {
        for holder in &device.holders {
            all.entry(pod(holder)).or_default().insert(device.pci);
        }
    }
    let mut all: Vec<(Pod, BTreeSet<PciAddress>)> = all.into_iter().collect();
    all.sort_by_key(|(_, devices)| std::cmp::Reverse(devices.len()));
    let rest = all.split_off(MAX_BLOCKER_SERIES.min(all.len()));
    let rest: BTreeSet<PciAddress> = rest.into_iter().flat_map(|(_, devices)| devices).collect();
    let mut counts: BTreeMap<Pod, usize> =
        all.into_iter().map(|(pod, devices)| (pod, devices.len())).collect();
    if !rest.is_empty() {
        counts.insert((String::new(), OTHERS.to_owned()), rest.len());
    }
    counts
}

/// A pod whose name is unknown is identified by its UID.
fn pod(holder: &Holder) -> Pod {
    let Some(pod) = &holder.details.pod else {
        return Pod::default();
    };
    let name = pod.name.as_ref().or(pod.uid.as_ref());
    (pod.namespace.clone().unwrap_or_default(), name.cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use octavo_model::holder::{self, HolderDetails};
    use octavo_model::reason::Reason;
    use octavo_model::sharing_status::{DeviceProvider, ResourceStatus};
    use octavo_model::{resource::ResourceName, sharing_status::SharingStatus};
    use octavo_planner::reconcile::DeviceLayoutStatus;
    use octavo_toolkit::telemetry::exposition;
    use prometheus_client::registry::Registry;

    use super::*;

    fn of(pod: Option<(&str, &str)>, device: u8) -> Holder {
        Holder {
            device: PciAddress::new(0, device, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            details: HolderDetails {
                pid: Some(7),
                pod: pod.map(|(namespace, name)| holder::Pod {
                    namespace: Some(namespace.to_owned()),
                    name: Some(name.to_owned()),
                    ..holder::Pod::default()
                }),
                ..HolderDetails::default()
            },
        }
    }

    fn status(devices: Vec<Vec<Holder>>) -> NodeLayoutStatus {
        let device = |(number, holders): (u8, Vec<Holder>)| DeviceLayoutStatus {
            holders,
            waits_for_holders: true,
            ..DeviceLayoutStatus::new(
                PciAddress::new(0, number, 0, 0).unwrap(),
                format!("GPU {number}"),
                Reason::Blocked.into(),
            )
        };
        NodeLayoutStatus {
            layout: Some("night".to_owned()),
            state: Some(Reason::Blocked.into()),
            devices: (0..).zip(devices).map(device).collect(),
            ..NodeLayoutStatus::default()
        }
    }

    fn samples(collector: &StatusCollector) -> Vec<String> {
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(collector.clone()));
        let text = exposition::write(&registry, std::iter::empty()).unwrap().1;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn device_counts_once_per_blocking_pod() {
        let collector = StatusCollector::default();
        assert!(samples(&collector).is_empty());
        let notebook = Some(("team-a", "notebook"));
        collector.set(&status(vec![
            vec![of(notebook, 0), of(notebook, 0), of(None, 0)],
            vec![of(notebook, 1)],
            vec![],
        ]));
        assert_eq!(
            samples(&collector),
            [
                r#"octavo_layout_info{layout="night",reason="blocked"} 1"#,
                r#"octavo_blocker_devices{namespace="",pod=""} 1"#,
                r#"octavo_blocker_devices{namespace="team-a",pod="notebook"} 2"#,
            ]
        );
        collector.set(&NodeLayoutStatus::default());
        assert!(samples(&collector).is_empty());
    }

    #[test]
    fn allocatable_and_desired_counts_are_reported() {
        let collector = StatusCollector::default();
        collector.set(&NodeLayoutStatus {
            sharing: Some(SharingStatus {
                mode: DeviceProvider::HandOff.into(),
                state: Reason::SharingNotInForce.into(),
                message: None,
                resources: [(24, Some(8)), (7, None)]
                    .into_iter()
                    .zip([ResourceName::gpu(), ResourceName::gpu().shared()])
                    .map(|((wanted, allocatable), name)| ResourceStatus {
                        name,
                        wanted,
                        allocatable,
                        units: Vec::new(),
                    })
                    .collect(),
                retained: Vec::new(),
                ..SharingStatus::default()
            }),
            ..NodeLayoutStatus::default()
        });
        assert_eq!(
            samples(&collector),
            [
                r#"octavo_sharing_info{mode="hand-off",reason="sharing-not-in-force"} 1"#,
                r#"octavo_shares{resource="nvidia.com/gpu",count="wanted"} 24"#,
                r#"octavo_shares{resource="nvidia.com/gpu",count="allocatable"} 8"#,
                r#"octavo_shares{resource="nvidia.com/gpu.shared",count="wanted"} 7"#,
            ]
        );
    }

    #[test]
    fn top_blockers_have_series_and_the_rest_are_summed() {
        let few: Vec<Holder> =
            (0..40).map(|number| of(Some(("a", &format!("pod-{number:02}"))), 0)).collect();
        let many = of(Some(("z", "last")), 0);
        let collector = StatusCollector::default();
        let mut first = few;
        first.push(many.clone());
        collector.set(&status(vec![first, vec![many]]));
        let samples = samples(&collector);
        let blockers = || samples.iter().filter(|line| line.contains("blocker"));
        assert_eq!(blockers().count(), MAX_BLOCKER_SERIES + 1);
        for expected in [
            r#"octavo_blocker_devices{namespace="z",pod="last"} 2"#,
            r#"octavo_blocker_devices{namespace="a",pod="pod-14"} 1"#,
            r#"octavo_blocker_devices{namespace="",pod="other"} 1"#,
        ] {
            assert!(blockers().any(|line| line == expected), "{expected}\n{samples:?}");
        }
    }

    #[test]
    fn pod_without_a_name_is_identified_by_uid() {
        let mut holder = of(None, 0);
        holder.details.pod =
            Some(holder::Pod { uid: Some("3f1c9a52".to_owned()), ..holder::Pod::default() });
        assert_eq!(pod(&holder), (String::new(), "3f1c9a52".to_owned()));
    }
}
