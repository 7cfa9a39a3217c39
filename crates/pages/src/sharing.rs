//! Sharing and usage of a node's devices by pod.

use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::Percent;
use octavo_model::reason::{Reason, Severity};
use octavo_model::reported::Reported;
use octavo_model::resource::ShareId;
use octavo_model::sharing_status::{
    DeviceProvider, Health, ResourceStatus, RetainedId, SharingStatus,
};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};

use super::badges::{capitalize, count_noun, format_age, format_memory, printable};
use super::layout::StateBadge;
use super::slice_diagram::SliceDiagram;

/// Maximum number of replicas that are drawn as slots: the number of columns in the style sheet.
pub(super) const MAX_SLOTS: u32 = 24;

/// Sharing section of a node's page.
#[derive(Debug)]
pub(super) struct SharingSection {
    pub(super) badge: StateBadge,
    /// Device plugin that advertises the devices.
    pub(super) by: String,
    pub(super) message: Option<String>,
    pub(super) resources: Vec<Resource>,
    pub(super) retained: Vec<String>,
    pub(super) unfit: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) wanted: u64,
    pub(super) offered: String,
    /// Number of units and of replicas: `2 devices or partitions, 3 replicas each`.
    pub(super) units: String,
}

/// Usage of a device by pod.
#[derive(Debug)]
pub(super) struct UsageTable {
    pub(super) rows: Vec<HolderRow>,
    /// Warnings about its memory, most severe first.
    pub(super) alarms: Vec<String>,
}

/// Holder of a share.
#[derive(Debug)]
pub(super) struct HolderRow {
    pub(super) who: String,
    pub(super) container: String,
    /// Partition and replicas.
    pub(super) place: String,
    pub(super) memory: String,
    pub(super) bar: Option<MemoryShare>,
    pub(super) busy: String,
    pub(super) over: bool,
}

/// Used memory, relative to the fair share.
#[derive(Debug)]
pub(super) struct MemoryShare {
    pub(super) used: u64,
    pub(super) all: u64,
    /// Label: `of 26.6 GiB`.
    pub(super) words: String,
}

/// Maximum number of names in a diagram.
const MAX_NAMES: usize = 3;
/// Text for a value that is not reported.
const NOT_REPORTED: &str = "not reported";
/// Text for the memory of a holder without a process.
const NO_PROCESS: &str = "no process";

impl SharingSection {
    /// Converts the node's sharing status.
    pub(super) fn of(report: &SharingStatus) -> Self {
        Self {
            badge: sharing_badge(&report.state),
            by: match report.mode.known() {
                Some(DeviceProvider::HandOff) => "Allocated by NVIDIA's device plugin.".to_owned(),
                Some(DeviceProvider::Embedded) => {
                    "Allocated by the built-in device plugin of the agent.".to_owned()
                }
                Some(DeviceProvider::Dra) => {
                    "Allocated by the agent to resource claims.".to_owned()
                }
                None => format!("Allocated by: {}.", printable(report.mode.as_str())),
            },
            message: report.message.as_deref().map(|text| capitalize(&printable(text))),
            resources: report.resources.iter().map(resource).collect(),
            retained: report.retained.iter().map(retained_unit).collect(),
            unfit: report.resources.iter().flat_map(unhealthy_units).collect(),
        }
    }
}

fn sharing_badge(state: &Reported<Reason>) -> StateBadge {
    let (tone, icon) = match state.known() {
        Some(Reason::SharingInForce | Reason::ClaimsServed) => ("good", "ok"),
        Some(Reason::SharingPending) => ("soft", "stale"),
        Some(Reason::SharingHeld) => ("warn", "warn"),
        Some(reason) if reason.kind() == Severity::Warning => ("bad", "bad"),
        Some(_) | None => ("soft", "note"),
    };
    let word = match state.known() {
        Some(Reason::SharingInForce) => Reason::Applied.as_str().to_owned(),
        Some(Reason::SharingNotInForce) => "not applied".to_owned(),
        Some(_) | None => printable(state.as_str()),
    };
    StateBadge { tone, icon, word }
}

fn resource(resource: &ResourceStatus) -> Resource {
    let units = count_noun(resource.units.len(), "device or partition", "devices or partitions");
    let mut replicas: Vec<u32> = resource.units.iter().filter_map(|unit| unit.replicas).collect();
    replicas.sort_unstable();
    let each = match (replicas.first(), replicas.last()) {
        (Some(least), Some(most)) if least == most => format!(", {least} replicas each"),
        (Some(least), Some(most)) => format!(", {least} to {most} replicas each"),
        _ => String::new(),
    };
    Resource {
        name: resource.name.to_string(),
        wanted: resource.wanted,
        offered: resource
            .allocatable
            .map_or_else(|| NOT_REPORTED.to_owned(), |count| count.to_string()),
        units: format!("{units}{each}"),
    }
}

fn retained_unit(retained: &RetainedId) -> String {
    printable(&format!(
        "{}/{} ({}) holds {} as {}",
        retained.namespace, retained.pod, retained.container, retained.id, retained.resource
    ))
}

/// Describes the units of a resource that cannot be allocated.
fn unhealthy_units(resource: &ResourceStatus) -> Vec<String> {
    let units = resource.units.iter().filter_map(|unit| match &unit.health {
        Health::Healthy => None,
        Health::Unhealthy { reason } => {
            Some(printable(&format!("{} is not allocatable: {reason}", unit.uuid)))
        }
    });
    units.collect()
}

impl UsageTable {
    /// Converts the usage of a device; `None` if there is neither a holder nor a warning.
    pub(super) fn of(device: &DeviceUsage) -> Option<Self> {
        let rows: Vec<HolderRow> = device
            .units
            .iter()
            .flat_map(|unit| {
                let tenants = unit.tenants.iter().map(|tenant| row(unit, tenant));
                tenants.chain(unattributed_row(unit))
            })
            .collect();
        let alarms: Vec<String> = device.units.iter().flat_map(memory_warnings).collect();
        (!rows.is_empty() || !alarms.is_empty()).then_some(Self { rows, alarms })
    }
}

fn row(unit: &UnitUsage, tenant: &Tenant) -> HolderRow {
    let container = tenant.container.as_deref().map(printable);
    HolderRow {
        who: name(tenant),
        container: container.unwrap_or_default(),
        place: place(unit, tenant),
        memory: if tenant.is_without_process() {
            NO_PROCESS.to_owned()
        } else {
            tenant.memory.map_or_else(|| NOT_REPORTED.to_owned(), format_memory)
        },
        bar: share(unit, tenant).filter(|_| !tenant.is_without_process()),
        busy: match tenant.utilization {
            Some(percent) => format!("{} %", percent.0),
            None if unit.gpu_instance.is_some() && unit.utilization.is_none() => {
                NOT_REPORTED.to_owned()
            }
            None => String::new(),
        },
        over: tenant.is_over_share,
    }
}

/// Name of a holder within its namespace.
pub(super) fn holder_name(tenant: &Tenant) -> String {
    tenant.pod.as_deref().map_or_else(|| name(tenant), printable)
}

fn name(tenant: &Tenant) -> String {
    match (&tenant.namespace, &tenant.pod) {
        (Some(namespace), Some(pod)) => printable(&format!("{namespace}/{pod}")),
        (None, Some(pod)) => printable(pod),
        (Some(namespace), None) if tenant.claim.is_some() => {
            let claim = tenant.claim.as_deref().unwrap_or_default();
            printable(&format!("resource claim {namespace}/{claim}"))
        }
        (_, None) => match (&tenant.unnamed_pod, tenant.processes.as_slice()) {
            (Some(uid), _) => printable(&format!("pod not reported by the kubelet: {uid}")),
            (None, []) => "not a pod".to_owned(),
            (None, [pid]) => format!("not a pod: pid {pid}"),
            (None, [pid, more @ ..]) => format!("not a pod: pid {pid} and {} more", more.len()),
        },
    }
}

/// Names a unit: `1g.10gb gi 7/0`, `the whole device`.
pub(super) fn unit_name(unit: &UnitUsage) -> String {
    match (&unit.profile, unit.partition()) {
        (Some(profile), Some((gpu, compute))) => {
            printable(&format!("{profile} gi {gpu}/{compute}"))
        }
        (None, Some((gpu, compute))) => format!("gi {gpu}/{compute}"),
        (_, None) => "the whole device".to_owned(),
    }
}

/// Describes the held part: `1g.10gb gi 7/0, replicas 0, 2`, `whole device`.
fn place(unit: &UnitUsage, tenant: &Tenant) -> String {
    let what = unit_name(unit);
    let what = what.strip_prefix("the ").unwrap_or(&what);
    let mut numbers: Vec<u32> = tenant.ids.iter().filter_map(ShareId::number).collect();
    numbers.sort_unstable();
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    printable(&match numbers.as_slice() {
        [] if tenant.ids.is_empty() => format!("{what}, not allocated"),
        [] => what.to_owned(),
        [one] => format!("{what}, replica {one}"),
        several => format!("{what}, replicas {}", several.join(", ")),
    })
}

fn share(unit: &UnitUsage, tenant: &Tenant) -> Option<MemoryShare> {
    let allocated = u64::try_from(tenant.ids.len()).unwrap_or(u64::MAX).max(1);
    let all = unit.fair_share?.get().saturating_mul(allocated);
    let used = tenant.memory?.get();
    (all > 0).then(|| MemoryShare {
        used: used.min(all),
        all,
        words: format!("of {}", format_memory(Mebibytes::new(all))),
    })
}

/// Row of memory that is not attributed to any holder, if there is any.
fn unattributed_row(unit: &UnitUsage) -> Option<HolderRow> {
    let used = unit.unattributed.filter(|used| used.get() > 0)?;
    Some(HolderRow {
        who: "not attributed".to_owned(),
        container: String::new(),
        place: place(unit, &Tenant::default()).replace(", not allocated", ""),
        memory: format_memory(used),
        bar: None,
        busy: String::new(),
        over: false,
    })
}

fn memory_warnings(unit: &UnitUsage) -> Vec<String> {
    let what = unit.profile.as_deref().map(printable);
    let what = what.unwrap_or_else(|| "the device".to_owned());
    let mut alarms = Vec::new();
    if unit.is_nearly_exhausted {
        alarms.push(format!(
            "The memory of {what} is almost exhausted: further memory allocations will fail."
        ));
    }
    if let Some(seconds) = unit.exhausted_in {
        let left = format_age(Duration::from_secs(seconds));
        alarms.push(format!(
            "At the current rate, the memory of {what} is exhausted in about {left}."
        ));
    }
    alarms
}

/// Adds the number of replicas or the holders, and the utilization of a partition, to each region of `picture`.
pub(super) fn mark_usage(picture: &mut SliceDiagram, usage: &DeviceUsage) {
    for region in &mut picture.regions {
        let (own, is_free) = (region.instance, region.class == "is-free");
        let units = usage.units.iter().filter(|unit| {
            let instance = unit.gpu_instance;
            own == instance && (instance.is_some() || !is_free)
        });
        // Compute instances report the utilization of their GPU instance.
        let utilization = units.clone().find_map(|unit| unit.utilization);
        region.lines.extend(units.flat_map(holder_lines));
        region.lines.extend(utilization.map(|Percent(percent)| format!("utilization {percent} %")));
    }
}

fn holder_lines(unit: &UnitUsage) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(replicas) = unit.replicas {
        let held: usize = unit.tenants.iter().map(|tenant| tenant.ids.len()).sum();
        lines.push(format!("{replicas} replicas, {held} allocated"));
        if replicas <= MAX_SLOTS {
            // The slots show the holders.
            return lines;
        }
    }
    let mut names: Vec<String> = unit
        .tenants
        .iter()
        .filter_map(|tenant| {
            let pod = printable(tenant.pod.as_deref()?);
            Some(if tenant.is_over_share { format!("{pod} over fair share") } else { pod })
        })
        .collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    lines.append(&mut names);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Usage of the device at this PCI address.
pub(super) fn device_usage(usage: Option<&Usage>, pci: PciAddress) -> Option<&DeviceUsage> {
    let mut devices = usage?.devices.iter();
    devices.find(|device| device.pci == pci)
}

#[cfg(test)]
mod tests {
    use octavo_model::reading::MemoryUse;

    use super::*;

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    fn tenant(pod: &str, replicas: &[u32], memory: u64, is_over: bool) -> Tenant {
        Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some(pod.to_owned()),
            container: Some("main".to_owned()),
            ids: replicas.iter().map(|one| ShareId::replica(GPU, *one)).collect(),
            memory: Some(Mebibytes::new(memory)),
            utilization: Some(Percent(40)),
            is_over_share: is_over,
            ..Tenant::default()
        }
    }

    fn unit() -> UnitUsage {
        UnitUsage {
            uuid: GPU.to_owned(),
            gpu_instance: None,
            compute_instance: None,
            profile: None,
            resource: None,
            replicas: Some(4),
            fair_share: Some(Mebibytes::new(20_480)),
            memory: Some(MemoryUse {
                total: Mebibytes::new(81_920),
                used: Mebibytes::new(80_700),
                reserved: Mebibytes::new(600),
            }),
            tenants: vec![
                tenant("greedy\u{202e}", &[2], 40_960, true),
                tenant("big", &[0, 1], 30_720, false),
            ],
            utilization: None,
            unattributed: Some(Mebibytes::new(512)),
            exhausted_in: Some(180),
            is_nearly_exhausted: true,
        }
    }

    fn device(unit: UnitUsage) -> DeviceUsage {
        DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }
    }

    #[test]
    fn idle_pod_with_a_share_uses_no_memory() {
        let mut unit = unit();
        unit.tenants = vec![tenant("idle", &[0], 0, false), tenant("new", &[1], 0, false)];
        unit.tenants[0].processes = vec![4711];
        let users = UsageTable::of(&device(unit)).unwrap();
        let rows = users.rows.iter().take(2);
        let shown: Vec<_> = rows.map(|row| (row.memory.as_str(), row.bar.is_some())).collect();
        assert_eq!(shown, [("0 MiB", true), ("no process", false)]);
    }

    #[test]
    fn every_holder_and_unattributed_memory_is_a_row() {
        let users = UsageTable::of(&device(unit())).unwrap();
        let shown: Vec<String> = users
            .rows
            .iter()
            .map(|row| {
                let share = row.bar.as_ref();
                let share = share.map(|one| format!("{}/{} {}", one.used, one.all, one.words));
                let share = share.unwrap_or_default();
                format!(
                    "{}|{}|{}|{share}|{}|{}",
                    row.who, row.place, row.memory, row.busy, row.over
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "team-a/greedy\u{fffd}|whole device, replica 2|40 GiB|20480/20480 of 20 GiB|40 %|true",
                "team-a/big|whole device, replicas 0, 1|30 GiB|30720/40960 of 40 GiB|40 %|false",
                "not attributed|whole device|512 MiB|||false",
            ]
        );
        assert_eq!(
            users.alarms,
            [
                "The memory of the device is almost exhausted: further memory allocations will fail.",
                "At the current rate, the memory of the device is exhausted in about 3 min.",
            ]
        );
    }

    #[test]
    fn diagram_names_holders_unless_the_slots_do() {
        assert_eq!(holder_lines(&unit()), ["4 replicas, 3 allocated"]);
        let many = UnitUsage { replicas: Some(48), ..unit() };
        let lines = ["48 replicas, 3 allocated", "greedy\u{fffd} over fair share", "big"];
        assert_eq!(holder_lines(&many), lines);
        let exclusive = UnitUsage { replicas: None, ..unit() };
        assert_eq!(holder_lines(&exclusive), ["greedy\u{fffd} over fair share", "big"]);
    }

    #[test]
    fn pod_unknown_to_kubelet_is_labeled_as_pod() {
        let unknown = Tenant { processes: vec![4711], ..Tenant::default() };
        let uid = "7d1c5a3e-1111-2222-3333-444455556666".to_owned();
        let unnamed = unknown.clone().with_uid(Some(uid));
        assert_eq!(
            [name(&unnamed), name(&unknown)],
            ["pod not reported by the kubelet: 7d1c5a3e", "not a pod: pid 4711"]
        );
    }

    #[test]
    fn unallocated_device_has_no_usage_table() {
        let mut idle = unit();
        idle.tenants.clear();
        (idle.unattributed, idle.exhausted_in) = (Some(Mebibytes::new(0)), None);
        idle.memory = None;
        idle.is_nearly_exhausted = false;
        assert!(UsageTable::of(&device(idle)).is_none());
    }

    #[test]
    fn every_sharing_state_has_an_icon_and_unknown_states_keep_their_word() {
        for (state, icon) in [
            (Reason::SharingInForce.as_str(), "ok"),
            (Reason::ClaimsServed.as_str(), "ok"),
            (Reason::ClaimsNotServed.as_str(), "bad"),
            (Reason::SharingPending.as_str(), "stale"),
            (Reason::SharingHeld.as_str(), "warn"),
            (Reason::SharingNotInForce.as_str(), "bad"),
            (Reason::SharingRefused.as_str(), "bad"),
            (Reason::DevicePluginConflict.as_str(), "bad"),
            ("dozing", "note"),
        ] {
            let badge = sharing_badge(&Reported::parse(state));
            assert_eq!(badge.icon, icon, "{state}");
            assert!(!badge.word.contains("in-force"), "{}", badge.word);
        }
    }
}
