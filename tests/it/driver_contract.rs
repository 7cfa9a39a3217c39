//! Readings of a driver by `octavo_hardware::nvml`, each fact compared with the simulated machine.

use nvml_sim::model::{self, Slot};
use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::inventory::{
    ComputeInstance, Condition, Device, Fabric, GpuInstance, Inventory, LinkRemote, Mig, MigMode,
    NvLink, NvmlState, Process, ProcessKind, RecoveryAction, RemappedRows,
};
use octavo_model::quantity::Mebibytes;

use crate::machine::Machine;

pub(crate) const H100S: &str = "machine: dgx\nmachine_type: DGXH100\nlinks: nvswitch\ngpus: [{board: H100_80GB_SXM, count: 8, numa: [0, 0, 0, 0, 1, 1, 1, 1]}]\n";

fn place(place: model::Placement) -> Placement {
    Placement { start: place.start, size: place.size }
}

fn profile(row: &model::GiProfile) -> GpuInstanceProfile {
    GpuInstanceProfile {
        id: row.id,
        index: row.index,
        name: row.name.parse().unwrap(),
        max_count: row.max_count,
        memory: Mebibytes::new(row.memory_mib),
        resources: InstanceResources {
            gpu_slices: row.slices,
            compute_slices: row.slices,
            multiprocessors: row.multiprocessors,
            copy_engines: row.engines.copy,
            decoders: row.engines.decoder,
            encoders: row.engines.encoder,
            jpeg_engines: row.engines.jpeg,
            ofa_engines: row.engines.ofa,
        },
        placements: row.placements.iter().copied().map(place).collect(),
        compute_profiles: Vec::new(),
    }
}

fn catalog(gpu: &model::Gpu) -> ProfileCatalog {
    ProfileCatalog::new(gpu.profiles.iter().map(profile).collect())
}

fn mode(on: bool) -> MigMode {
    if on { MigMode::Enabled } else { MigMode::Disabled }
}

/// The device in `slot`, found by its UUID.
fn device<'a>(inventory: &'a Inventory, gpu: &model::Gpu) -> &'a Device {
    let uuid = gpu.uuid.parse().unwrap();
    let found = inventory.devices.iter().find(|device| device.uuid.as_ref() == Some(&uuid));
    found.unwrap_or_else(|| panic!("no {} in {inventory:#?}", gpu.uuid))
}

#[tokio::test]
async fn every_board_is_read_with_its_catalog_entry() {
    let boards: Vec<String> =
        nvml_sim::board::Board::names().iter().map(|name| format!("{{board: {name}}}")).collect();
    let machine = Machine::new(&format!("machine: zoo\ngpus: [{}]\n", boards.join(", ")));
    let inventory = machine.observe().await;
    let world = machine.world();
    assert_eq!(inventory.devices.len(), boards.len());
    for gpu in &world.gpus {
        let device = device(&inventory, gpu);
        assert_eq!(device.problems, [], "{}", gpu.board);
        assert_eq!(device.condition, Condition::Working, "{}", gpu.board);
        assert_eq!(device.pci.to_string(), gpu.pci.sysfs(), "{}", gpu.board);
        assert_eq!(device.product_name.as_deref(), Some(gpu.name.as_str()));
        assert_eq!(device.minor, Some(gpu.minor));
        assert_eq!(device.index, Some(gpu.index));
        assert_eq!(device.memory, Some(Mebibytes::new(gpu.memory_mib)));
        assert_eq!(device.pci_ids.device, gpu.pci_ids.device);
        assert_eq!(device.pci_ids.class, Some(gpu.pci_ids.class));
        let capability = device.compute_capability.unwrap();
        assert_eq!((capability.major, capability.minor), gpu.compute_capability, "{}", gpu.board);
        match (&device.mig, &gpu.mig) {
            (Mig::Capable(state), Some(_)) => {
                assert_eq!(state.catalog, catalog(gpu), "{}", gpu.board);
            }
            (Mig::NotCapable, None) => {}
            other => panic!("{}: {other:?}", gpu.board),
        }
    }
}

#[tokio::test]
async fn whole_node_is_read() {
    let machine = Machine::new(H100S);
    let inventory = machine.observe().await;
    let NvmlState::Ready(driver) = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    let cuda = driver.cuda.map(|version| version.to_string());
    assert_eq!((driver.version.as_str(), cuda.as_deref()), ("580.95.05", Some("13.0")));
    assert_eq!(inventory.machine.product_name.as_deref(), Some("DGXH100"));
    let nodes: Vec<Option<u32>> = inventory.devices.iter().map(|d| d.numa_node).collect();
    assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
    let architectures: Vec<&str> = inventory
        .devices
        .iter()
        .filter_map(|device| Some(device.architecture.as_ref()?.as_str()))
        .collect();
    assert_eq!(architectures, ["hopper"; 8]);
}

#[tokio::test]
async fn geometry_is_read_with_every_instance() {
    let machine = Machine::new(
        "machine: mig\ngpus:\n- {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, start: 4}, {profile: 2g.20gb, compute: [1c.2g.20gb, 1c.2g.20gb]}, {profile: 1g.10gb, compute: []}]}\n- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 1g.20gb}, {profile: 1g.10gb, count: 3}]}\n- {board: H100_80GB_SXM, mig: enabled}\n- {board: A30_24GB}\n",
    );
    let inventory = machine.observe().await;
    let world = machine.world();
    for gpu in &world.gpus {
        let device = device(&inventory, gpu);
        assert_eq!(device.problems, []);
        let shown = device.mig.state().unwrap();
        let real = gpu.mig.as_ref().unwrap();
        assert_eq!((shown.current, shown.pending), (mode(real.current), mode(real.pending)));
        let instances: Vec<GpuInstance> =
            real.instances.iter().map(|gi| instance(gpu, gi)).collect();
        assert_eq!(shown.gpu_instances, instances, "{}", gpu.board);
        // The catalog of the second GPU of a board is that of the first one.
        let same =
            world.gpus.iter().filter(|other| other.board == gpu.board && other.index <= gpu.index);
        check_compute_profiles(&shown.catalog, gpu, same);
    }
}

/// The second GPU does not answer queries of placements, so its catalog is complete only if it is that of the first.
#[tokio::test]
async fn catalog_is_shared_by_identical_devices_in_the_same_mode() {
    let fault = "- {call: nvmlDeviceGetGpuInstancePossiblePlacements_v2, gpu: 1, return: TIMEOUT}";
    let unconfirmed =
        "- {call: nvmlDeviceGetGpuInstanceProfileInfo, gpu: 1, times: 1, return: TIMEOUT}";
    for (second, faults, is_shared) in [
        ("board: A100_40GB", fault.to_owned(), true),
        ("board: A100_40GB", format!("{fault}\n{unconfirmed}"), false),
        ("board: A100_40GB, mig: enabled", fault.to_owned(), false),
        ("board: A100_80GB", fault.to_owned(), false),
    ] {
        let machine =
            Machine::new(&format!("machine: two\ngpus: [{{board: A100_40GB}}, {{{second}}}]\n"));
        machine.faults(&format!("{faults}\n"));
        let inventory = machine.observe().await;
        let world = machine.world();
        let shown = device(&inventory, &world.gpus[1]);
        let is_complete = shown.mig.state().unwrap().catalog == catalog(&world.gpus[1]);
        assert_eq!((is_complete, shown.problems.is_empty()), (is_shared, is_shared), "{second}");
    }
}

fn instance(gpu: &model::Gpu, gi: &model::GpuInstance) -> GpuInstance {
    let compute = gi.compute.iter().map(|ci| {
        let attributes = gpu.attributes(model::MigDevice { gi, ci }).unwrap();
        ComputeInstance {
            id: ci.id,
            profile_id: ci.profile_id,
            placement: Some(place(ci.placement)),
            uuid: Some(ci.uuid.parse().unwrap()),
            memory: Some(Mebibytes::new(attributes.memory_mib)),
            resources: Some(InstanceResources {
                gpu_slices: attributes.gi_slices,
                compute_slices: attributes.ci_slices,
                multiprocessors: attributes.multiprocessors,
                copy_engines: attributes.engines.copy,
                decoders: attributes.engines.decoder,
                encoders: attributes.engines.encoder,
                jpeg_engines: attributes.engines.jpeg,
                ofa_engines: attributes.engines.ofa,
            }),
        }
    });
    GpuInstance {
        id: gi.id,
        profile_id: gi.profile_id,
        placement: place(gi.placement),
        compute_instances: compute.collect(),
    }
}

/// The compute profiles of a profile are known once an instance of it has been queried.
fn check_compute_profiles<'a>(
    shown: &ProfileCatalog,
    gpu: &model::Gpu,
    queried: impl Iterator<Item = &'a model::Gpu>,
) {
    let instances: Vec<&model::GpuInstance> =
        queried.flat_map(|gpu| &gpu.mig.as_ref().unwrap().instances).collect();
    for row in gpu.profiles.iter() {
        let seen = instances.iter().any(|gi| gi.profile_id == row.id);
        let real: Vec<ComputeInstanceProfile> = row
            .compute
            .iter()
            .filter(|_| seen)
            .map(|ci| ComputeInstanceProfile {
                id: ci.id,
                index: ci.id,
                slices: ci.slices,
                max_count: ci.max_count,
                multiprocessors: ci.multiprocessors,
            })
            .collect();
        let shown = &shown.by_id(row.id).unwrap().compute_profiles;
        assert_eq!(*shown, real, "{} {}", gpu.board, row.name);
    }
}

#[tokio::test]
async fn geometry_change_is_seen_by_next_reading() {
    let machine = Machine::new("machine: mig\ngpus: [{board: H100_80GB_SXM}]\n");
    let handle = machine.spawn();
    let mig =
        |inventory: &std::sync::Arc<Inventory>| inventory.devices[0].mig.state().unwrap().clone();
    assert_eq!(mig(&handle.observe().await).current, MigMode::Disabled);
    machine.change(|world| world.set_mig_mode(Slot(0), model::MigMode::Enabled));
    machine.change(|world| world.create_gi(Slot(0), 9, None));
    let shown = mig(&handle.observe().await);
    assert_eq!(shown.current, MigMode::Enabled);
    let world = machine.world();
    let real = &world.gpus[0].mig.as_ref().unwrap().instances;
    assert_eq!(shown.gpu_instances, [instance(&world.gpus[0], &real[0])]);
    machine.change(|world| world.destroy_gi(Slot(0), shown.gpu_instances[0].id));
    assert_eq!(mig(&handle.observe().await).gpu_instances, []);
}

#[tokio::test]
async fn processes_are_reported_with_their_instance() {
    let machine = Machine::new(
        "machine: busy\ngpus:\n- {board: T4}\n- {board: A100_80GB, mig: enabled, instances: [{profile: 7g.80gb}]}\nprocesses:\n- {pid: 4242, gpu: 0, memory_mib: 512}\n- {pid: 77, gpu: 0, memory_mib: 20, kind: graphics}\n- {pid: 99, gpu: 1, gi: 0, ci: 0, memory_mib: 1000}\n",
    );
    let inventory = machine.observe().await;
    let process = |pid, kind, instance: Option<u32>, memory| Process {
        pid,
        kind,
        gpu_instance: instance,
        compute_instance: instance,
        memory: Some(Mebibytes::new(memory)),
    };
    let shown: Vec<&[Process]> = inventory.devices.iter().map(|d| &*d.processes).collect();
    assert_eq!(
        shown,
        [
            &[
                process(77, ProcessKind::Graphics, None, 20),
                process(4242, ProcessKind::Compute, None, 512),
            ][..],
            &[process(99, ProcessKind::Compute, Some(0), 1000)],
        ]
    );
}

#[tokio::test]
async fn more_processes_than_the_first_buffer_holds_are_all_reported() {
    let processes: Vec<String> = (1..=200).map(|pid| format!("{{pid: {pid}, gpu: 0}}")).collect();
    let machine = Machine::new(&format!(
        "machine: crowd\ngpus: [{{board: T4}}]\nprocesses: [{}]\n",
        processes.join(", ")
    ));
    let inventory = machine.observe().await;
    let pids: Vec<u32> = inventory.devices[0].processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, (1..=200).collect::<Vec<u32>>());
}

#[tokio::test]
async fn links_are_reported_with_their_remote_ends() {
    for topology in ["nvswitch", "hidden-nvswitch", "nvlink-mesh", "nvlink-pairs", "none"] {
        let machine = Machine::new(&format!(
            "machine: links\nlinks: {topology}\ngpus: [{{board: A100_80GB, count: 4}}, {{board: T4}}]\n"
        ));
        let inventory = machine.observe().await;
        for gpu in &machine.world().gpus {
            let real: Vec<NvLink> = (0..)
                .zip(&gpu.links)
                .filter(|(_, link)| link.active)
                .map(|(number, link)| {
                    let pci = link.remote_pci.sysfs().parse().unwrap();
                    let remote = match link.remote {
                        model::RemoteKind::Gpu => LinkRemote::Device(pci),
                        model::RemoteKind::Switch => LinkRemote::Switch(pci),
                        model::RemoteKind::HiddenSwitch => LinkRemote::HiddenSwitch,
                    };
                    NvLink { link: number, remote }
                })
                .collect();
            assert_eq!(device(&inventory, gpu).links, real, "{topology}");
        }
    }
}

#[tokio::test]
async fn failed_link_query_is_repeated() {
    let machine = Machine::new(
        "machine: moody\nlinks: nvswitch\ngpus: [{board: A100_80GB}]\nfaults: [{call: nvmlDeviceGetNvLinkState, times: 3, return: TIMEOUT}]\n",
    );
    let handle = machine.spawn();
    let (first, second) = (handle.observe().await, handle.observe().await);
    let seen = |inventory: &Inventory| inventory.devices[0].links.len();
    assert_eq!((seen(&first), seen(&second)), (9, 12));
}

#[tokio::test]
async fn switch_is_identified_by_ids_if_driver_does_not_report_its_kind() {
    let machine = Machine::new("machine: old\nlinks: nvswitch\ngpus: [{board: A100_80GB}]\n")
        .without(&["nvmlDeviceGetNvLinkRemoteDeviceType"]);
    let inventory = machine.observe().await;
    let links = &inventory.devices[0].links;
    assert!(!links.is_empty());
    let switches = |link: &NvLink| matches!(link.remote, LinkRemote::Switch(_));
    assert!(links.iter().all(switches), "{links:?}");
}

#[tokio::test]
async fn fabric_membership_is_reported_only_if_it_spans_machines() {
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let machine = Machine::new(&format!(
        "machine: rack\nlinks: nvswitch\nfabric: {{cluster_uuid: {uuid}, clique: 7}}\ngpus: [{{board: GB200_186GB}}]\n"
    ));
    let fabric = Fabric { cluster_uuid: uuid.to_owned(), clique_id: 7 };
    assert_eq!(machine.observe().await.devices[0].fabric, Some(fabric));
    let alone = Machine::new(H100S).observe().await;
    assert!(alone.devices.iter().all(|device| device.fabric.is_none()));
}

#[tokio::test]
async fn health_is_reported_as_driver_reports_it() {
    let machine = Machine::new(
        "machine: ill\ngpus:\n- {board: A100_80GB, recovery_action: 4, remapped_rows: {correctable: 1, uncorrectable: 2, pending: true, failed: false}}\n- {board: T4, ecc: false}\n",
    );
    let inventory = machine.observe().await;
    let health: Vec<_> = inventory.devices.iter().map(|d| d.health).collect();
    assert_eq!((health[0].ecc_enabled, health[0].uncorrected_errors), (Some(true), Some(0)));
    assert_eq!(health[0].recovery_action, Some(RecoveryAction::DrainAndReset));
    assert_eq!(
        health[0].remapped_rows,
        Some(RemappedRows { correctable: 1, uncorrectable: 2, pending: true, failed: false })
    );
    assert_eq!(health[1].ecc_enabled, Some(false));
    assert_eq!(health[1].uncorrected_errors, None);
    assert_eq!(health[1].remapped_rows, None);
}
