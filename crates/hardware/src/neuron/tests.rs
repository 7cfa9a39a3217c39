//! Tests of the reader on directory trees like the driver's and on trees with any single path replaced.

mod newer;
mod sweep;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use octavo_model::inventory::{LogicalSource, NeuronState};

use super::*;

const GIB: u64 = 1 << 30;

/// A machine with devices of two cores each that are connected with each other.
struct Host(tempfile::TempDir);

impl Host {
    /// Creates a machine with these devices, all of their files, and this driver version.
    fn new(version: &str, numbers: &[u32]) -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.put("module/neuron/version", &format!("{version}\n"));
        for number in numbers {
            host.device(*number);
        }
        host
    }

    fn device(&self, number: u32) {
        let near = if number == 0 { "1\n" } else { "0\n" };
        for (file, text) in [
            ("core_count", "2"),
            ("connected_devices", near),
            ("info/serial_number", "9ff5434815c8bd80\n"),
            ("info/architecture/device_name", "Trainium1\n"),
            ("info/architecture/arch_type", "NDv2\n"),
            ("stats/hardware/mem_ecc_uncorrected", "0\n"),
            ("stats/hardware/mem_ecc_repairable_uncorrected", "0\n"),
            ("stats/hardware/sram_ecc_uncorrected", "0\n"),
            ("neuron_core0/info/architecture/arch_type", "NCv2\n"),
            ("neuron_core1/info/architecture/arch_type", "NCv2\n"),
            ("neuron_core0/stats/memory_usage/device_mem/total", "1073741824\n"),
            ("neuron_core0/stats/memory_usage/device_mem/present", "512\n"),
            ("neuron_core1/stats/memory_usage/device_mem/total", "1048575\n"),
        ] {
            self.put(&format!("{}/{file}", at(number)), text);
        }
        let class = self.path("class/neuron_device");
        fs::create_dir_all(&class).unwrap();
        let target = format!("../../{}", at(number));
        symlink(target, class.join(format!("neuron{number}"))).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn take(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    fn read(&self) -> Option<Neuron> {
        self.read_beside(&[])
    }

    fn read_beside(&self, functions: &[PciFunction]) -> Option<Neuron> {
        let sys = Sysfs::new(self.0.path().to_owned());
        NeuronReader::new(sys, self.path("opt/logical_nc_config")).read(functions)
    }

    fn read_device(&self, number: u32) -> NeuronDevice {
        let neuron = self.read().unwrap();
        let mut devices = neuron.devices.into_iter();
        devices.find(|device| device.number == number).unwrap()
    }
}

/// Returns the directory in which the driver creates a device.
fn at(number: u32) -> String {
    format!("devices/virtual/neuron_device/neuron{number}")
}

fn function(bus: u8, kernel_driver: Option<&str>) -> PciFunction {
    PciFunction {
        amd: None,
        address: octavo_model::id::PciAddress::new(0, bus, 0, 0).unwrap(),
        ids: PciIds {
            vendor: AMAZON,
            device: 0x7164,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: Some(0x08_8000),
        },
        numa_node: None,
        kernel_driver: kernel_driver.map(str::to_owned),
        vgpu: None,
    }
}

fn message(problems: &[ReadProblem]) -> Vec<String> {
    let line = |problem: &ReadProblem| format!("{}: {}", problem.source, problem.error);
    problems.iter().map(line).collect()
}

#[test]
fn all_values_of_a_device_are_read() {
    let device = Host::new("2.26.5.0", &[0, 1]).read_device(0);
    assert_eq!(
        device,
        NeuronDevice {
            number: 0,
            serial: Some("9ff5434815c8bd80".to_owned()),
            device_name: Some("Trainium1".to_owned()),
            core_architecture: Some("NCv2".to_owned()),
            cores: Some(2),
            connected: Some(vec![1]),
            // Partial mebibytes are rounded down.
            memory_used: Some(Mebibytes::new(1024)),
            errors: NeuronErrors {
                memory_uncorrected: Some(0),
                memory_repairable: Some(0),
                sram_uncorrected: Some(0),
                memory_corrected: None,
                sram_corrected: None,
            },
            power_percent: None,
            unhealthy: None,
            problems: vec![],
        }
    );
    assert_eq!(device.state(), NeuronState::Ok);
}

#[test]
fn missing_driver_differs_from_missing_devices() {
    let host = Host(tempfile::tempdir().unwrap());
    assert_eq!(host.read(), None);
    host.put("module/neuron/version", "2.26.5.0\n");
    let neuron = host.read_beside(&[function(0, None)]).unwrap();
    assert_eq!(neuron.driver_version.as_deref(), Some("2.26.5.0"));
    assert_eq!(neuron.devices, []);
    assert_eq!(
        message(&neuron.problems),
        ["number of devices: the driver reports 0, but 1 are on the PCI bus"]
    );
}

#[test]
fn devices_are_ordered_by_number() {
    let neuron = Host::new("2.26.5.0", &[10, 2, 0]).read().unwrap();
    let numbers: Vec<u32> = neuron.devices.iter().map(|device| device.number).collect();
    assert_eq!(numbers, [0, 2, 10]);
}

#[test]
fn device_count_is_compared_with_the_bus_except_passthrough() {
    let host = Host::new("2.26.5.0", &[0, 1]);
    for driver in ["vfio-pci", "pci-stub", "pciback", "nvgrace-gpu-vfio-pci"] {
        let passed = function(9, Some(driver));
        let two = [function(1, Some("neuron")), function(2, Some("neuron")), passed.clone()];
        assert_eq!(host.read_beside(&two).unwrap().problems, []);
        let one = [function(1, Some("neuron")), passed];
        assert_eq!(
            message(&host.read_beside(&one).unwrap().problems),
            ["number of devices: the driver reports 2, but 1 are on the PCI bus"]
        );
    }
}

#[test]
fn unreadable_files_are_problems_and_core_directories_are_counted() {
    // The tests may run as root, which can read any file. No user can read a directory in the place of a file.
    let host = Host::new("2.27.1.0", &[0]);
    for file in ["core_count", "connected_devices"] {
        host.take(&format!("{}/{file}", at(0)));
        fs::create_dir(host.path(&format!("{}/{file}", at(0)))).unwrap();
    }
    let device = host.read_device(0);
    assert_eq!((device.cores, &device.connected), (Some(2), &None));
    assert_eq!(device.memory_used, Some(Mebibytes::new(1024)));
    assert_eq!(
        message(&device.problems),
        ["core_count: it is not a regular file", "connected_devices: it is not a regular file"]
    );
}

#[test]
fn partial_memory_sum_is_absent() {
    let host = Host::new("2.26.5.0", &[0]);
    let total = |core| format!("{}/neuron_core{core}/stats/memory_usage/device_mem/total", at(0));
    host.take(&total(1));
    let device = host.read_device(0);
    assert_eq!(device.memory_used, None);
    assert_eq!(
        message(&device.problems),
        ["stats/memory_usage/device_mem/total: only 1 of 2 cores report it"]
    );
    host.put(&total(1), &u64::MAX.to_string());
    assert_eq!(host.read_device(0).memory_used, None);
    host.put(&total(1), &(3 * GIB).to_string());
    assert_eq!(host.read_device(0).memory_used, Some(Mebibytes::new(4096)));
}

#[test]
fn driver_health_is_reported() {
    let host = Host::new("2.30.0.0", &[0]);
    let health = format!("{}/stats/hardware/health_status/unhealthy_components", at(0));
    host.put(&health, "\n");
    assert_eq!(host.read_device(0).unhealthy, Some(vec![]));
    host.put(&health, "hbm,link_efa\n");
    let device = host.read_device(0);
    assert_eq!(device.state(), NeuronState::Failing);
    assert_eq!(device.unhealthy.unwrap(), ["hbm", "link_efa"]);
}

#[test]
fn logical_core_setting_is_read_for_supported_chips() {
    let host = Host::new("2.26.5.0", &[0]);
    let logical = |host: &Host| host.read().unwrap().logical.map(|it| (it.size, it.source));
    host.put("opt/logical_nc_config", "NEURON_LOGICAL_NC_CONFIG=2\n");
    assert_eq!(logical(&host), Some((1, LogicalSource::Default)));
    host.put(&format!("{}/{NAME}", at(0)), "Trainium2\n");
    assert_eq!(logical(&host), Some((2, LogicalSource::File)));
    host.put("opt/logical_nc_config", "NEURON_LOGICAL_NC_CONFIG=7\n");
    let neuron = host.read().unwrap();
    assert_eq!((neuron.logical, neuron.problems.len()), (None, 2));
}

/// Moves the device's files to other paths.
fn moved(host: &Host) {
    let root = host.path(&at(0));
    fs::create_dir_all(root.join("identity/v2")).unwrap();
    fs::rename(root.join("info/architecture/device_name"), root.join("identity/v2/device_name"))
        .unwrap();
    fs::rename(root.join("info/serial_number"), root.join("identity/serial_number")).unwrap();
    fs::create_dir_all(root.join("cores")).unwrap();
    for core in ["neuron_core0", "neuron_core1"] {
        fs::rename(root.join(core), root.join("cores").join(core)).unwrap();
        let stats = root.join("cores").join(core).join("stats");
        fs::rename(stats.join("memory_usage"), stats.join("memory")).unwrap();
    }
}

#[test]
fn files_of_unknown_release_are_searched_by_name() {
    let host = Host::new("2.31.7.0", &[0]);
    let before = host.read().unwrap();
    assert_eq!(before.driver_layout, DriverLayout::Known);
    moved(&host);
    let neuron = host.read().unwrap();
    assert_eq!(neuron.driver_layout, DriverLayout::Unknown);
    assert_eq!(neuron.devices, before.devices);
}

#[test]
fn known_release_is_not_searched() {
    let host = Host::new("2.26.5.0", &[0]);
    moved(&host);
    let neuron = host.read().unwrap();
    assert_eq!(neuron.driver_layout, DriverLayout::Known);
    let device = &neuron.devices[0];
    assert_eq!((&device.device_name, &device.serial), (&None, &None));
}

#[test]
fn ambiguous_file_name_is_ignored() {
    let host = Host::new("2.31.7.0", &[0]);
    moved(&host);
    host.put(&format!("{}/other/serial_number", at(0)), "aaaaaaaaaaaaaaaa\n");
    let device = host.read_device(0);
    assert_eq!(device.serial, None);
    assert_eq!(
        message(&device.problems),
        ["info/serial_number: it was found in 2 places, none of which is a known path"]
    );
    assert_eq!(device.device_name.as_deref(), Some("Trainium1"));
}

#[test]
fn search_depth_and_size_are_limited() {
    let host = Host::new("2.31.7.0", &[0]);
    let name = format!("{}/{NAME}", at(0));
    host.take(&name);
    host.put(&format!("{}/a/b/c/d/e/f/device_name", at(0)), "Trainium2\n");
    assert_eq!(host.read_device(0).device_name, None);
    host.put(&format!("{}/a/b/c/d/e/device_name", at(0)), "Trainium2\n");
    assert_eq!(host.read_device(0).device_name.as_deref(), Some("Trainium2"));
    for number in 0..5000 {
        host.put(&format!("{}/crowd/{number:04}", at(0)), "");
    }
    let device = host.read_device(0);
    assert_eq!((device.device_name, device.cores), (None, Some(2)));
}

#[test]
fn links_to_other_devices_are_not_followed() {
    let host = Host::new("2.31.7.0", &[0, 1]);
    host.take(&format!("{}/{NAME}", at(0)));
    symlink(host.path(&at(1)), host.path(&at(0)).join("sibling")).unwrap();
    assert_eq!(host.read_device(0).device_name, None);
}

#[test]
fn device_and_core_limits_are_enforced() {
    let host = Host::new("2.26.5.0", &(0..70).collect::<Vec<u32>>());
    for core in 2..12 {
        host.put(&format!("{}/neuron_core{core}/x", at(0)), "");
    }
    let neuron = host.read().unwrap();
    assert_eq!(neuron.devices.len(), 64);
    assert_eq!(
        message(&neuron.problems)[0],
        "neuron_device: neuron64 is ignored: device numbers from 64 on are not supported"
    );
    assert_eq!(
        message(&neuron.devices[0].problems)[0],
        "core_count: it reports 2, but there are 8 core directories"
    );
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
