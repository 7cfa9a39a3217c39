//! What `hw::nvml` makes of a driver, each fact checked against what the simulated machine really is.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use nvml_sim::model::{self, Slot};
use octavo::domain::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo::domain::inventory::{
    ComputeInstance, Condition, Device, Fabric, GpuInstance, Inventory, LinkRemote, Mig, MigMode,
    NvLink, NvmlState, Problem, Process, ProcessKind, RecoveryAction, RemappedRows,
};
use octavo::domain::quantity::Mebibytes;

use crate::machine::{Machine, follow, start};

const H100S: &str = "machine: dgx\nmachine_type: DGXH100\nlinks: nvswitch\ngpus: [{board: H100_80GB_SXM, count: 8, numa: [0, 0, 0, 0, 1, 1, 1, 1]}]\n";

fn place(place: model::Placement) -> Placement {
    Placement {
        start: place.start,
        size: place.size,
    }
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
    if on {
        MigMode::Enabled
    } else {
        MigMode::Disabled
    }
}

fn is_ready(state: &NvmlState) -> bool {
    matches!(state, NvmlState::Ready(_))
}

/// The device that the machine has in `slot`, found by its UUID.
fn device<'a>(inventory: &'a Inventory, gpu: &model::Gpu) -> &'a Device {
    let uuid = gpu.uuid.parse().unwrap();
    let found = inventory
        .devices
        .iter()
        .find(|device| device.uuid.as_ref() == Some(&uuid));
    found.unwrap_or_else(|| panic!("no {} in {inventory:#?}", gpu.uuid))
}

#[tokio::test]
async fn every_board_is_read_with_its_catalogue() {
    let boards: Vec<String> = nvml_sim::board::Board::names()
        .iter()
        .map(|name| format!("{{board: {name}}}"))
        .collect();
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
        assert_eq!(
            (capability.major, capability.minor),
            gpu.compute_capability,
            "{}",
            gpu.board
        );
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
async fn the_whole_node_is_read() {
    let machine = Machine::new(H100S);
    let inventory = machine.observe().await;
    let NvmlState::Ready(driver) = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    let cuda = driver.cuda.map(|version| version.to_string());
    assert_eq!(
        (driver.version.as_str(), cuda.as_deref()),
        ("580.95.05", Some("13.0"))
    );
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
async fn the_geometry_is_read_with_every_instance() {
    let machine = Machine::new(
        "machine: mig\ngpus:\n- {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, start: 4}, {profile: 2g.20gb, compute: [1c.2g.20gb, 1c.2g.20gb]}, {profile: 1g.10gb, compute: []}]}\n- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 1g.20gb}, {profile: 1g.10gb, count: 3}]}\n- {board: H100_80GB_SXM, mig: enabled}\n- {board: A30_24GB}\n",
    );
    let inventory = machine.observe().await;
    let world = machine.world();
    for gpu in &world.gpus {
        let device = device(&inventory, gpu);
        assert_eq!(device.problems, []);
        let told = device.mig.state().unwrap();
        let real = gpu.mig.as_ref().unwrap();
        assert_eq!(
            (told.current, told.pending),
            (mode(real.current), mode(real.pending))
        );
        let instances: Vec<GpuInstance> =
            real.instances.iter().map(|gi| instance(gpu, gi)).collect();
        assert_eq!(told.gpu_instances, instances, "{}", gpu.board);
        check_compute_profiles(&told.catalog, gpu);
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

/// A profile's own profiles are known as soon as one instance of it was there to be asked.
fn check_compute_profiles(told: &ProfileCatalog, gpu: &model::Gpu) {
    let instances = &gpu.mig.as_ref().unwrap().instances;
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
        let told = &told.by_id(row.id).unwrap().compute_profiles;
        assert_eq!(*told, real, "{} {}", gpu.board, row.name);
    }
}

#[tokio::test]
async fn a_change_of_geometry_is_seen_by_the_next_reading() {
    let machine = Machine::new("machine: mig\ngpus: [{board: H100_80GB_SXM}]\n");
    let handle = machine.spawn();
    let mig = |inventory: &std::sync::Arc<Inventory>| inventory.devices[0].mig.state().unwrap().clone();
    assert_eq!(mig(&handle.observe().await).current, MigMode::Disabled);
    machine.change(|world| world.set_mig_mode(Slot(0), model::MigMode::Enabled));
    machine.change(|world| world.create_gi(Slot(0), 9, None));
    let told = mig(&handle.observe().await);
    assert_eq!(told.current, MigMode::Enabled);
    let world = machine.world();
    let real = &world.gpus[0].mig.as_ref().unwrap().instances;
    assert_eq!(told.gpu_instances, [instance(&world.gpus[0], &real[0])]);
    machine.change(|world| world.destroy_gi(Slot(0), told.gpu_instances[0].id));
    assert_eq!(mig(&handle.observe().await).gpu_instances, []);
}

#[tokio::test]
async fn processes_are_told_with_their_instance() {
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
    let told: Vec<&[Process]> = inventory.devices.iter().map(|d| &*d.processes).collect();
    assert_eq!(
        told,
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
async fn more_processes_than_there_was_room_for_are_all_told() {
    let processes: Vec<String> = (1..=200)
        .map(|pid| format!("{{pid: {pid}, gpu: 0}}"))
        .collect();
    let machine = Machine::new(&format!(
        "machine: crowd\ngpus: [{{board: T4}}]\nprocesses: [{}]\n",
        processes.join(", ")
    ));
    let inventory = machine.observe().await;
    let pids: Vec<u32> = inventory.devices[0]
        .processes
        .iter()
        .map(|process| process.pid)
        .collect();
    assert_eq!(pids, (1..=200).collect::<Vec<u32>>());
}

#[tokio::test]
async fn links_are_told_with_their_far_ends() {
    for topology in ["nvswitch", "nvlink-mesh", "nvlink-pairs", "none"] {
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
                    };
                    NvLink {
                        link: number,
                        remote,
                    }
                })
                .collect();
            assert_eq!(device(&inventory, gpu).links, real, "{topology}");
        }
    }
}

#[tokio::test]
async fn a_switch_is_known_by_its_ids_where_the_driver_does_not_say_the_kind() {
    let machine = Machine::new("machine: old\nlinks: nvswitch\ngpus: [{board: A100_80GB}]\n")
        .without(&["nvmlDeviceGetNvLinkRemoteDeviceType"]);
    let inventory = machine.observe().await;
    let links = &inventory.devices[0].links;
    assert!(!links.is_empty());
    let switches = |link: &NvLink| matches!(link.remote, LinkRemote::Switch(_));
    assert!(links.iter().all(switches), "{links:?}");
}

#[tokio::test]
async fn membership_of_a_fabric_is_told_once_it_spans_machines() {
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let machine = Machine::new(&format!(
        "machine: rack\nlinks: nvswitch\nfabric: {{cluster_uuid: {uuid}, clique: 7}}\ngpus: [{{board: GB200_186GB}}]\n"
    ));
    let fabric = Fabric {
        cluster_uuid: uuid.to_owned(),
        clique_id: 7,
    };
    assert_eq!(machine.observe().await.devices[0].fabric, Some(fabric));
    let alone = Machine::new(H100S).observe().await;
    assert!(alone.devices.iter().all(|device| device.fabric.is_none()));
}

#[tokio::test]
async fn health_is_told_as_the_driver_says_it() {
    let machine = Machine::new(
        "machine: ill\ngpus:\n- {board: A100_80GB, recovery_action: 4, remapped_rows: {correctable: 1, uncorrectable: 2, pending: true, failed: false}}\n- {board: T4, ecc: false}\n",
    );
    let inventory = machine.observe().await;
    let health: Vec<_> = inventory.devices.iter().map(|d| d.health).collect();
    assert_eq!(
        (health[0].ecc_enabled, health[0].uncorrected_errors),
        (Some(true), Some(0))
    );
    assert_eq!(
        health[0].recovery_action,
        Some(RecoveryAction::DrainAndReset)
    );
    assert_eq!(
        health[0].remapped_rows,
        Some(RemappedRows {
            correctable: 1,
            uncorrectable: 2,
            pending: true,
            failed: false
        })
    );
    assert_eq!(health[1].ecc_enabled, Some(false));
    assert_eq!(health[1].uncorrected_errors, None);
    assert_eq!(health[1].remapped_rows, None);
}

#[tokio::test]
async fn a_lost_gpu_is_one_failing_device() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    let before = handle.observe().await;
    machine.change(|world| world.lose_gpu(Slot(3)));
    let after = handle.observe().await;
    assert!(is_ready(&after.nvml));
    assert_eq!(after.devices.len(), 8);
    for (at, (before, after)) in before.devices.iter().zip(&after.devices).enumerate() {
        if at != 3 {
            assert_eq!(before, after);
            continue;
        }
        let Condition::Failing { reason } = &after.condition else {
            panic!("{:?}", after.condition);
        };
        assert!(reason.contains("GPU is lost (15)"), "{reason}");
        assert_eq!((&after.uuid, after.pci), (&before.uuid, before.pci));
        assert_eq!(after.product_name, before.product_name);
    }
}

#[tokio::test]
async fn a_gpu_that_was_lost_before_the_start_is_listed_too() {
    let machine = Machine::new(H100S);
    machine.change(|world| world.lose_gpu(Slot(3)));
    let inventory = machine.observe().await;
    let failing: Vec<usize> = (0..)
        .zip(&inventory.devices)
        .filter(|(_, device)| matches!(device.condition, Condition::Failing { .. }))
        .map(|(at, _)| at)
        .collect();
    assert_eq!((inventory.devices.len(), failing), (8, vec![3]));
}

#[tokio::test]
async fn what_an_older_library_lacks_is_absent_and_nothing_else() {
    let machine = Machine::new(H100S).without(&[
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetArchitecture",
        "nvmlEventSetCreate",
        "nvmlSystemGetCudaDriverVersion_v2",
    ]);
    let inventory = machine.observe().await;
    let NvmlState::Ready(driver) = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    assert_eq!(driver.cuda, None);
    for device in &inventory.devices {
        assert_eq!(device.condition, Condition::Working);
        assert_eq!(device.problems, []);
        assert_eq!(device.mig, Mig::NotCapable);
        assert_eq!(device.health.remapped_rows, None);
        assert!(device.uuid.is_some());
        assert!(!device.links.is_empty());
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let machine = Machine::new(
        "machine: pod\ngpus: [{board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}]\nfaults: [{call: nvmlDeviceGetGpuInstances, return: NO_PERMISSION}]\n",
    );
    let inventory = machine.observe().await;
    let device = &inventory.devices[0];
    assert_eq!(device.mig.state().unwrap().gpu_instances, []);
    assert_eq!(
        device.problems,
        [Problem {
            what: "nvmlDeviceGetGpuInstances".to_owned(),
            error:
                "no permission (4): needs root and, in a container, NVIDIA_MIG_MONITOR_DEVICES=all"
                    .to_owned(),
        }]
    );
}

#[tokio::test]
async fn a_file_that_is_not_nvml_is_named_with_what_it_lacks() {
    let reason = |inventory: Inventory| match inventory.nvml {
        NvmlState::Absent { reason } => reason,
        other => panic!("{other:?}"),
    };
    let machine = Machine::new("machine: odd\n").without(&["nvmlShutdown"]);
    let path = machine.library().display().to_string();
    assert_eq!(
        reason(machine.observe().await),
        format!("{path} is not an NVML library: it lacks nvmlShutdown")
    );
    fs::write(machine.library(), "no library at all").unwrap();
    let told = reason(machine.observe().await);
    assert!(told.starts_with(&format!("cannot load {path}: ")), "{told}");
    fs::remove_file(machine.library()).unwrap();
    assert_eq!(
        reason(machine.observe().await),
        format!(
            "no NVML library libnvidia-ml.so.1 (looked in {})",
            machine.path().display()
        )
    );
}

#[tokio::test]
async fn without_a_driver_the_bus_shows_what_is_there() {
    let machine = Machine::new(&format!("{H100S}driver_loaded: false\n"));
    let handle = machine.spawn();
    let mut hints = handle.hints();
    let inventory = handle.observe().await;
    let NvmlState::Absent { reason } = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    assert!(
        reason.ends_with("nvmlInit_v2: driver not loaded (9)"),
        "{reason}"
    );
    assert_eq!(inventory.devices.len(), 8);
    let only = |device: &Device| matches!(device.condition, Condition::PciOnly { .. });
    assert!(inventory.devices.iter().all(only));

    machine.change(|world| {
        world.load_driver();
        Ok(())
    });
    let late = follow(&handle, &mut hints, is_ready).await;
    assert_eq!(late.devices.len(), 8);
    assert!(!late.devices.iter().any(only));
}

#[tokio::test]
async fn a_replaced_driver_is_read_from_the_new_library() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    let mut hints = handle.hints();
    follow(&handle, &mut hints, is_ready).await;
    machine.change(|world| world.reload_driver(Some("590.44.01")));
    let lost = handle.observe().await;
    let NvmlState::Lost { reason } = &lost.nvml else {
        panic!("{:?}", lost.nvml);
    };
    assert!(
        reason.ends_with("driver and library version mismatch (18)"),
        "{reason}"
    );
    assert_eq!(lost.devices.len(), 8);
    let again = follow(&handle, &mut hints, is_ready).await;
    let NvmlState::Ready(driver) = &again.nvml else {
        panic!("{:?}", again.nvml);
    };
    assert_eq!(driver.version.as_str(), "590.44.01");
}

#[tokio::test]
async fn a_hanging_call_is_named_and_the_last_reading_stays() {
    let machine = Machine::new(H100S);
    let mut settings = machine.settings();
    settings.call_deadline = Duration::from_millis(500);
    let handle = start(&settings);
    let mut hints = handle.hints();
    let before = follow(&handle, &mut hints, is_ready).await;
    machine.faults("- {call: nvmlDeviceGetEccMode, gpu: 5, hang: forever}\n");
    let during = handle.observe().await;
    assert_eq!(
        during.nvml,
        NvmlState::Stalled {
            call: "nvmlDeviceGetEccMode".to_owned()
        }
    );
    let problems: Vec<usize> = during.devices.iter().map(|d| d.problems.len()).collect();
    assert_eq!(problems, [0, 0, 0, 0, 0, 1, 0, 0]);
    machine.faults("[]");
    let after = follow(&handle, &mut hints, is_ready).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn an_xid_is_a_hint() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    follow(&handle, &mut handle.hints(), is_ready).await;
    let mut hints = handle.hints();
    machine.change(|world| world.xid(Slot(2), 79, None));
    hints.changed().await;
}

/// Asks the simulator's log, which only its environment switches on: a process of its own reads the devices twice.
#[test]
fn a_reading_asks_nothing_twice() {
    let machine = Machine::new(H100S);
    let calls = |readings: &str| {
        let log = machine.path().join(format!("calls-{readings}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "driver_contract::reads_when_asked_to"])
            .env("NVML_SIM_LOG", &log)
            .env("OCTAVO_TEST_LIBRARY", machine.library())
            .env("OCTAVO_TEST_READINGS", readings)
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        logged(&fs::read_to_string(log).unwrap())
    };
    let once = calls("1");
    let twice = calls("2");
    for (call, count) in &once {
        // The wrapper asks for the version by itself when it starts NVML.
        let most = if call.starts_with("nvmlSystemGetDriverVersion") {
            2
        } else {
            1
        };
        assert!(*count <= most, "{call}: {count} times in one reading");
    }
    assert_eq!(once.get("nvmlInit_v2"), Some(&1));
    assert_eq!(twice.get("nvmlInit_v2"), Some(&1));
    for call in twice.keys().filter(|call| call.contains("ProfileInfo")) {
        assert_eq!(twice.get(call), Some(&1), "{call}");
    }
    let total = |calls: &BTreeMap<String, usize>| calls.values().sum::<usize>();
    let (first, second) = (total(&once), total(&twice) - total(&once));
    assert!(second * 2 < first, "{second} calls again after {first}");
    assert_eq!((first, second), (854, 209));
}

/// Calls with their inputs, and how often each was made. Waits for events are not part of a reading.
fn logged(log: &str) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for line in log.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let function = entry["function"].as_str().unwrap();
        if function == "nvmlEventSetWait_v2" {
            continue;
        }
        let arguments: Vec<&str> = entry["arguments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| argument.as_str().unwrap())
            .collect();
        let call = [&[function], arguments.as_slice()].concat().join(" ");
        *calls.entry(call).or_default() += 1;
    }
    calls
}

/// The process of [`a_reading_asks_nothing_twice`]; on its own it has no library to read.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test that starts this one has no other way to tell it"
)]
async fn reads_when_asked_to() {
    let (Ok(library), Ok(readings)) = (
        std::env::var("OCTAVO_TEST_LIBRARY"),
        std::env::var("OCTAVO_TEST_READINGS"),
    ) else {
        return;
    };
    let settings = octavo::hw::Settings {
        library: Some(library.into()),
        ..octavo::hw::Settings::default()
    };
    let handle = start(&settings);
    for _ in 0..readings.parse().unwrap() {
        assert!(is_ready(&handle.observe().await.nvml));
    }
}
