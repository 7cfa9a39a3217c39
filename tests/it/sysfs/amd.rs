//! Machines with AMD's devices: what `octavo inspect` says of them, and what it says when files are missing or make no sense.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use octavo::domain::inventory::{Condition, Device, Inventory};
use octavo::hw::Settings;

use super::tree::{machine, plant};
use crate::golden::golden;
use crate::machine::start;

const MIB: u64 = 1 << 20;
const DEVICES: &str = "bus/pci/devices";
const NODES: &str = "class/kfd/kfd/topology/nodes";

/// Eight MI300X in one hive, each with as many partitions and as much memory for each as the modes make of it. Ids, unit counts, gfx, hive
/// and how partitions are numbered as in the test data of AMD's device plugin (CPX); chips' ids and memory in use are made up.
fn mi300x(compute: &str, memory: &str, parts: u64, each_mib: u64) -> String {
    let mut tree = vec!["module/amdgpu/version = 6.12.12\\n".to_owned()];
    let cpu =
        "cpu_cores_count 96\\nsimd_count 0\\nvendor_id 0\\nlocation_id 0\\ndrm_render_minor 0\\n";
    for number in [0, 1] {
        tree.push(format!("{NODES}/{number}/properties = {cpu}"));
    }
    for (device, bus) in (0_u64..).zip([0x05_u64, 0x27, 0x47, 0x65, 0x85, 0xa7, 0xc7, 0xe5]) {
        let numa = device / 4;
        let chip = 0x2250_e4c0_17a5_b001 + device;
        let at = format!("{DEVICES}/0000:{bus:02x}:00.0");
        tree.push(format!("{at}/driver -> ../../../../bus/pci/drivers/amdgpu"));
        for (file, value) in [
            ("vendor", "0x1002".to_owned()),
            ("device", "0x74a1".to_owned()),
            ("class", "0x120000".to_owned()),
            ("numa_node", numa.to_string()),
            ("product_name", "AMD Instinct MI300X OAM".to_owned()),
            ("unique_id", format!("{chip:016x}")),
            ("mem_info_vram_total", (196_592 * MIB).to_string()),
            ("mem_info_vram_used", ((283 + device) * MIB).to_string()),
            ("current_compute_partition", compute.to_owned()),
            (
                "available_compute_partition",
                "SPX, DPX, QPX, CPX".to_owned(),
            ),
            ("current_memory_partition", memory.to_owned()),
            ("available_memory_partition", "NPS1, NPS4".to_owned()),
        ] {
            tree.push(format!("{at}/{file} = {value}\\n"));
        }
        for part in 0..parts {
            let node = 2 + device * parts + part;
            let (simds, minor) = (1216 / parts, 128 + device * 8 + part);
            let location = (bus << 8) + part;
            let properties = format!(
                "cpu_cores_count 0\\nsimd_count {simds}\\nsimd_per_cu 4\\ngfx_target_version 90402\\nvendor_id 4098\\ndevice_id 29857\\n\
                 location_id {location}\\ndomain 0\\ndrm_render_minor {minor}\\nhive_id 15188982192727901047\\nunique_id {chip}\\n"
            );
            let size = each_mib * MIB;
            tree.push(format!("{NODES}/{node}/properties = {properties}"));
            tree.push(format!(
                "{NODES}/{node}/mem_banks/0/properties = heap_type 1\\nsize_in_bytes {size}\\n"
            ));
        }
    }
    // The driver has DRM nodes for as many partitions as there may ever be, whether there are any or not.
    for number in 0..64 {
        let minor = 129 + number / 7 * 8 + number % 7;
        tree.push(format!(
            "devices/platform/amdgpu_xcp_{number}/drm/renderD{minor}/"
        ));
    }
    tree.join("\n")
}

fn planted(tree: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    plant(folder.path(), tree);
    folder
}

/// What the shipped program prints of the machine whose sysfs this is.
fn inspect(root: &Path, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["inspect", "--driver-root", "/nowhere", "--sys-root"])
        .arg(root)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn reviewed(name: &str, root: &Path) {
    let few = inspect(root, &[]);
    for line in few.lines() {
        assert!(line.len() <= 80, "{line}");
    }
    golden(&format!("sysfs/{name}.txt"), &few);
    golden(
        &format!("sysfs/{name}-wide.txt"),
        &inspect(root, &["-o", "wide"]),
    );
}

#[test]
fn two_bridged_cards_are_one_hive() {
    reviewed("mi210x2", machine("mi210x2").path());
}

#[test]
fn a_virtual_function_has_a_type_without_any_name() {
    reviewed("mi300x-vf", machine("mi300x-vf").path());
}

#[test]
fn a_device_that_is_passed_through_is_shown_as_that() {
    reviewed("mi300x-vfio", machine("mi300x-vfio").path());
}

#[test]
fn nonsense_of_one_device_is_said_of_that_one_and_of_no_other() {
    reviewed("amd-garbage", machine("amd-garbage").path());
}

#[test]
fn whole_devices_have_one_part_each_whatever_drm_nodes_there_are() {
    reviewed(
        "mi300x-spx",
        planted(&mi300x("SPX", "NPS1", 1, 196_592)).path(),
    );
}

#[test]
fn partitioned_devices_are_one_device_each_with_eight_parts() {
    reviewed(
        "mi300x-cpx-nps4",
        planted(&mi300x("CPX", "NPS4", 8, 49_148)).path(),
    );
}

/// One reading by a fresh start.
async fn observe(root: &Path) -> Inventory {
    let settings = settings(root);
    Inventory::clone(&*start(&settings).observe().await)
}

fn settings(root: &Path) -> Settings {
    Settings {
        driver_roots: vec![root.join("no driver")],
        sys_root: root.to_owned(),
        ..Settings::default()
    }
}

#[tokio::test]
async fn a_partitioning_is_seen_at_the_next_look_of_the_same_program() {
    let root = planted(&mi300x("SPX", "NPS1", 1, 196_592));
    let handle = start(&settings(root.path()));
    let parts = |inventory: &Inventory| -> Vec<(String, usize)> {
        let told = inventory
            .devices
            .iter()
            .filter_map(|device| device.amd.as_ref());
        let mode = |mode: &Option<octavo::domain::inventory::Mode>| mode.clone().unwrap().current;
        told.map(|amd| (mode(&amd.compute), amd.partitions.len()))
            .collect()
    };
    assert_eq!(
        parts(&*handle.observe().await),
        vec![("SPX".to_owned(), 1); 8]
    );
    for gone in [NODES, DEVICES] {
        fs::remove_dir_all(root.path().join(gone)).unwrap();
    }
    plant(root.path(), &mi300x("CPX", "NPS4", 8, 49_148));
    assert_eq!(
        parts(&*handle.observe().await),
        vec![("CPX".to_owned(), 8); 8]
    );
}

/// What happens to a path.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Missing,
    Folder,
    /// 64 MiB of nothing.
    Huge,
    NoUtf8,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Missing, Self::Folder, Self::Huge, Self::NoUtf8];

    /// To whatever is there.
    fn befall(self, path: &Path) {
        let is_folder = fs::symlink_metadata(path).unwrap().is_dir();
        if is_folder {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        match self {
            Self::Missing => {}
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Huge => File::create(path).unwrap().set_len(64 * MIB).unwrap(),
            Self::NoUtf8 => fs::write(path, [b'9', 0xff, 0xfe, b'\n', 0xc3]).unwrap(),
        }
    }
}

/// Everything below a folder, relative to it.
fn paths(root: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            paths(root, &path, found);
        }
        found.insert(path);
    }
}

/// Whether the path is of this device and of no other, or is another's.
fn concerns(path: &Path, device: &Device, node: u32) -> bool {
    let text = path.to_str().unwrap();
    let own = [
        format!("{DEVICES}/{}", device.pci),
        format!("{NODES}/{node}"),
    ];
    let others = [DEVICES, NODES]
        .iter()
        .any(|folder| path.starts_with(folder) && path != Path::new(folder));
    !others
        || own
            .iter()
            .any(|own| text == own || text.starts_with(&format!("{own}/")))
}

#[tokio::test]
async fn one_path_that_fails_costs_what_it_says_and_nothing_else() {
    let whole = machine("mi210x2");
    let clean = observe(whole.path()).await;
    assert_eq!(clean.devices.len(), 2);
    assert!(
        clean
            .devices
            .iter()
            .all(|device| device.problems.is_empty()),
        "{clean:?}"
    );
    let mut all = BTreeSet::new();
    paths(whole.path(), Path::new(""), &mut all);
    assert!(all.len() > 40, "{all:?}");
    for path in &all {
        for fault in Fault::ALL {
            let root = machine("mi210x2");
            fault.befall(&root.path().join(path));
            let found = observe(root.path()).await;
            for (device, node) in clean.devices.iter().zip([3, 2]) {
                let seen = found.devices.iter().find(|other| other.pci == device.pci);
                if !concerns(path, device, node) {
                    assert_eq!(seen, Some(device), "{fault:?} {path:?}");
                }
                for problem in seen.into_iter().flat_map(|device| &device.problems) {
                    assert!(problem.error.len() < 300, "{fault:?} {path:?}: {problem:?}");
                    assert!(
                        !problem.error.contains(char::is_control),
                        "{fault:?} {path:?}: {problem:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_may_not_be_read_is_no_number_and_is_named() {
    let root = machine("mi210x2");
    let at = root.path().join(DEVICES).join("0000:03:00.0");
    Fault::Folder.befall(&at.join("mem_info_vram_used"));
    Fault::NoUtf8.befall(&at.join("serial_number"));
    Fault::Folder.befall(&root.path().join(NODES).join("3/properties"));
    let found = observe(root.path()).await;
    let device = &found.devices[0];
    let amd = device.amd.as_ref().unwrap();
    assert_eq!(
        (amd.memory_used, &amd.serial, amd.partitions.len()),
        (None, &None, 0)
    );
    assert_eq!(device.condition, Condition::Working);
    let named: Vec<&str> = device
        .problems
        .iter()
        .map(|problem| problem.what.as_str())
        .collect();
    assert_eq!(
        named,
        ["serial_number", "mem_info_vram_used", "KFD's topology"]
    );
}

#[tokio::test]
async fn a_machine_of_too_many_nodes_and_names_without_end_is_read_in_bounds() {
    let root = machine("mi210x2");
    let nodes = root.path().join(NODES);
    for number in 4..3000 {
        fs::create_dir(nodes.join(number.to_string())).unwrap();
    }
    fs::create_dir(nodes.join(std::ffi::OsStr::from_bytes(b"7\xff"))).unwrap();
    let clean = observe(machine("mi210x2").path()).await.devices;
    assert_eq!(observe(root.path()).await.devices, clean);
}
