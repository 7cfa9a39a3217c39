//! Allocations and usage of devices on the page of a node.

use octavo_model::inventory::{Device, Inventory};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::reason::Reason;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{
    DeviceProvider, Health, ResourceStatus, RetainedId, SharingStatus, UnitStatus,
};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use crate::machine::Machine;

const MEMORY: u64 = 81_920;

fn tenant(pod: &str, ids: Vec<ShareId>, memory: u64) -> Tenant {
    Tenant {
        namespace: Some("team-a".to_owned()),
        pod: Some(pod.to_owned()),
        container: Some("main".to_owned()),
        ids,
        memory: Some(Mebibytes::new(memory)),
        utilization: Some(Percent(45)),
        processes: vec![4711],
        ..Tenant::default()
    }
}

fn unit(uuid: &str, total: u64, used: u64) -> UnitUsage {
    UnitUsage {
        uuid: uuid.to_owned(),
        resource: Some(ResourceName::gpu()),
        memory: Some(MemoryUse {
            total: Mebibytes::new(total),
            used: Mebibytes::new(used),
            reserved: Mebibytes::new(640),
        }),
        tenants: Vec::new(),
        ..UnitUsage::default()
    }
}

fn device(device: &Device, at: usize, units: Vec<UnitUsage>) -> DeviceUsage {
    DeviceUsage {
        pci: device.pci,
        name: format!("GPU {at}"),
        memory: None,
        utilization: Some(Percent(60)),
        power_watts: None,
        temperature_celsius: None,
        units,
    }
}

/// Three pods share the last device, one exceeds its share; two pods share a partition of the first.
fn usage(machine: &Inventory) -> Usage {
    let last = machine.devices.last().unwrap();
    let uuid = last.uuid.as_ref().unwrap().as_str();
    let share = |number| ShareId::replica(uuid, number);
    let shared = UnitUsage {
        replicas: Some(3),
        fair_share: Some(Mebibytes::new(MEMORY / 3)),
        tenants: vec![
            Tenant { is_over_share: true, ..tenant("greedy-notebook", vec![share(2)], 47_104) },
            tenant("steady-notebook", vec![share(0)], 20_480),
        ],
        unattributed: Some(Mebibytes::new(512)),
        exhausted_in: Some(300),
        is_nearly_exhausted: true,
        ..unit(uuid, MEMORY, 80_800)
    };
    let first = &machine.devices[0];
    let instances = &first.mig.state().unwrap().gpu_instances;
    let (instance, compute) =
        instances.iter().find_map(|one| Some((one, one.compute_instances.first()?))).unwrap();
    let uuid = compute.uuid.as_ref().unwrap().as_str();
    let partition = UnitUsage {
        gpu_instance: Some(instance.id),
        compute_instance: Some(compute.id),
        profile: Some("3g.40gb".to_owned()),
        replicas: Some(2),
        fair_share: Some(Mebibytes::new(20_000)),
        tenants: vec![tenant("batch-7", vec![ShareId::replica(uuid, 1)], 10_240)],
        ..unit(uuid, 40_192, 10_240)
    };
    let at = machine.devices.len() - 1;
    Usage {
        devices: vec![device(first, 0, vec![partition]), device(last, at, vec![shared])],
        missing: vec![
            "processes are not attributed to pods: the agent does not see them".to_owned(),
        ],
        ..Usage::default()
    }
}

fn report(machine: &Inventory) -> SharingStatus {
    let last = machine.devices.last().unwrap();
    let uuid = last.uuid.as_ref().unwrap().as_str();
    SharingStatus {
        mode: DeviceProvider::Embedded.into(),
        state: Reason::SharingHeld.into(),
        message: Some("1 id stays as it was until its pod ends.".to_owned()),
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 3,
            allocatable: Some(2),
            units: vec![UnitStatus {
                uuid: uuid.to_owned(),
                replicas: Some(3),
                health: Health::Unhealthy {
                    reason: "Xid 79: the GPU has fallen off the bus".to_owned(),
                },
            }],
        }],
        retained: vec![RetainedId {
            id: ShareId::replica(uuid, 5),
            namespace: "team-b".to_owned(),
            pod: "old".to_owned(),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
        }],
        ..SharingStatus::default()
    }
}

const NOTEBOOKS: &str = "machine: notebooks
machine_type: a2-ultragpu-2g
gpus:
- {board: A100_80GB, count: 2}
processes:
- {pid: 4711, gpu: 0, memory_mib: 47104}
- {pid: 4712, gpu: 0, memory_mib: 20480}
- {pid: 4713, gpu: 1, memory_mib: 14336}
- {pid: 4714, gpu: 1, memory_mib: 9216}
- {pid: 4715, gpu: 1, memory_mib: 3072}
";

/// A node `notebooks` with two GPUs of three pods each, one of which exceeds its share.
pub(super) async fn give_notebooks(site: &Site) {
    let machine = Machine::new(NOTEBOOKS);
    let machine = machine.observe().await;
    let uuid = |device: &Device| device.uuid.as_ref().unwrap().as_str().to_owned();
    let uses = [
        &[("training-by-hand", 47_104, true), ("notebook-anna", 20_480, false)][..],
        &[
            ("notebook-ben", 14_336, false),
            ("notebook-carla", 9_216, false),
            ("ci-4711", 3_072, false),
        ],
    ];
    let devices = machine.devices.iter().zip(uses).enumerate();
    let devices = devices.map(|(at, (one, uses))| {
        let tenants = (0_u32..).zip(uses).map(|(number, (pod, memory, is_over))| Tenant {
            is_over_share: *is_over,
            ..tenant(pod, vec![ShareId::replica(&uuid(one), number)], *memory)
        });
        let sum: u64 = uses.iter().map(|(_, memory, _)| memory).sum();
        let shared = UnitUsage {
            replicas: Some(3),
            fair_share: Some(Mebibytes::new(MEMORY / 3)),
            tenants: tenants.collect(),
            ..unit(&uuid(one), MEMORY, sum)
        };
        device(one, at, vec![shared])
    });
    let usage = Usage { devices: devices.collect(), ..Usage::default() };
    let units = machine.devices.iter().map(|one| UnitStatus {
        uuid: uuid(one),
        replicas: Some(3),
        health: Health::Healthy,
    });
    let report = SharingStatus {
        mode: DeviceProvider::Embedded.into(),
        state: Reason::SharingInForce.into(),
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 6,
            allocatable: Some(6),
            units: units.collect(),
        }],
        ..SharingStatus::default()
    };
    site.put_sharing("notebooks", &machine, &report, &usage);
}

/// A node `shared` with shared devices.
pub(super) async fn give_shares(site: &Site) {
    let machine = inventory("hgx-a100").await;
    site.put_sharing("shared", &machine, &report(&machine), &usage(&machine));
}

const HOPPER: &str = "machine: hopper
gpus:
- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0}, {profile: 1g.10gb, start: 6}]}
";

/// A node `hopper` whose first partition is busy; the second does not report its utilization.
async fn put_partitions(site: &Site) {
    let machine = Machine::new(HOPPER).observe().await;
    let gpu = &machine.devices[0];
    let instances = &gpu.mig.state().unwrap().gpu_instances;
    let units = instances.iter().zip([Some(Percent(40)), None]).map(|(instance, utilization)| {
        let compute = &instance.compute_instances[0];
        let uuid = compute.uuid.as_ref().unwrap().as_str();
        let pod = format!("probe-{}", instance.id);
        UnitUsage {
            gpu_instance: Some(instance.id),
            compute_instance: Some(compute.id),
            profile: gpu.profile_of(instance, compute).map(|profile| profile.to_string()),
            utilization,
            tenants: vec![Tenant { utilization, ..tenant(&pod, vec![ShareId::whole(uuid)], 2048) }],
            ..unit(uuid, 40_192, 2048)
        }
    });
    let usage = DeviceUsage { utilization: None, ..device(gpu, 0, units.collect()) };
    let usage = Usage { devices: vec![usage], ..Usage::default() };
    let report = SharingStatus { resources: Vec::new(), retained: Vec::new(), ..report(&machine) };
    site.put_sharing("hopper", &machine, &report, &usage);
}

#[tokio::test]
async fn partitions_show_their_utilization_on_the_node_page_and_the_map() {
    let site = Site::empty();
    put_partitions(&site).await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/hopper").await;
        page.until_true("return document.querySelectorAll('.device .region').length > 2").await;
        let regions = page.texts(".device .region").await;
        let busy: Vec<&String> =
            regions.iter().filter(|text| text.contains("utilization")).collect();
        assert!(matches!(busy[..], [one] if one.contains("utilization 40 %")), "{regions:?}");
        let rows = page.texts(".device .users tbody tr").await;
        assert!(rows[0].ends_with("2 GiB 40 %"), "{rows:?}");
        assert!(rows[1].ends_with("2 GiB not reported"), "{rows:?}");
        // The driver reports no utilization of the whole GPU.
        let values = page.texts(".device .values dd").await;
        assert_eq!(values[0], "not reported");
        page.assert_clean().await;
        page.open("/map?by=utilization").await;
        page.until_true("return document.querySelectorAll('#map .mig .step-3').length === 1").await;
        assert_eq!(page.count("#map .mig .no-data").await, 1);
        let named = "#map a[aria-label$=', 2 partitions with utilization 40 %, not reported']";
        assert_eq!(page.count(named).await, 1);
        page.assert_clean().await;
        page.open("/map?view=table").await;
        page.until(".map-table tbody td:nth-of-type(4)", &["partitions 40 %, not reported"]).await;
    })
    .await;
}

#[tokio::test]
async fn device_tenants_and_exceeded_shares_are_shown() {
    let site = Site::empty();
    give_shares(&site).await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/shared").await;
        page.until("#sharing-now h2", &["Allocation to pods sharing-held"]).await;
        let reported = page.text("#sharing-now p").await;
        assert_eq!(reported, "Allocated by the built-in device plugin of the agent. 1 id stays as it was until its pod ends.");
        let resources = page.texts("#sharing-now tbody tr").await;
        assert_eq!(resources, ["nvidia.com/gpu 1 device or partition, 3 replicas each 3 2"]);
        let unfit = page.text("#sharing-now .notice").await;
        assert!(unfit.ends_with("is not allocatable: Xid 79: the GPU has fallen off the bus"), "{unfit}");
        page.click("#sharing-now summary").await;
        let item = page.text("#sharing-now li").await;
        assert!(item.starts_with("team-b/old (main) holds GPU-"), "{item}");
        let missing = page.text(".missing").await;
        assert!(missing.contains("the agent does not see them"), "{missing}");

        let whole = page.text(".device:last-child .region").await;
        assert!(whole.contains("3 replicas, 2 allocated"), "{whole}");
        let slots = page.texts(".device:last-child .slots .region").await;
        assert_eq!(
            slots,
            [
                "steady-notebook team-a 20 GiB replica 0",
                "free replica 1",
                "greedy-notebook team-a 46 GiB over fair share replica 2",
            ]
        );
        let values = page.texts(".device:last-child .values dd").await;
        assert_eq!(values[0], "60 %");
        assert_eq!(values[1], "not reported");
        let problems = page.texts("#health li").await;
        assert!(problems.iter().any(|one| one.contains("sharing-held")) || problems.len() == 1, "{problems:?}");
        let rows = page.texts(".device:last-child .users tbody tr").await;
        assert_eq!(
            rows,
            [
                "team-a/greedy-notebook main whole device, replica 2 46 GiB of 26.6 GiB over fair share 45 %",
                "team-a/steady-notebook main whole device, replica 0 20 GiB of 26.6 GiB 45 %",
                "not attributed whole device 512 MiB",
            ]
        );
        let alarms = page.texts(".device:last-child .notice").await;
        assert_eq!(alarms.len(), 2, "{alarms:?}");
        assert!(alarms[1].ends_with("is exhausted in about 5 min."), "{alarms:?}");
        let partition = page.text(".device:first-child .users tbody tr").await;
        assert!(partition.contains("replica 1 10 GiB of 19.5 GiB 45 %"), "{partition}");
        assert_eq!(page.count(".device:first-child .slots .region").await, 2);
        // The list shows that the node needs attention, and why.
        page.open("/nodes").await;
        page.until("#node-shared .at-state .badge", &["attention"]).await;
        page.until(
            "#node-shared .at-state .why",
            &["sharing-held: 1 id stays as it was until its pod ends."],
        )
        .await;
        page.assert_clean().await;
    })
    .await;
}
