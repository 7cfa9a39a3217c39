//! Devices passed to a container for its allocated units: an environment variable, device files or CDI device names.
//!
//! The methods can be combined. If the container runtime supports CDI, the CDI specification overrides the variable,
//! and NVIDIA's runtime adds nothing because the specification sets the variable to `void`. Otherwise the variable
//! applies.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::device_file::{DeviceFile, DeviceFiles};
use octavo_model::id::PciAddress;
use thiserror::Error;

use super::offer::Unit;

/// Names the devices that NVIDIA's container runtime gives to a container. Source: NVIDIA Container Toolkit,
/// "Specialized configurations with Docker", also for [`NO_DEVICES`].
pub const VISIBLE_DEVICES_VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// Value equivalent to an unset variable, overriding the image: that runtime adds no devices.
pub const NO_DEVICES: &str = "void";
/// CDI kind of our devices.
pub const CDI_KIND: &str = "octavo.dev/gpu";
/// Read and write, without `mknod`: a container cannot create device files of its own.
pub const PERMISSIONS: &str = "rw";

/// Method of passing devices to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InjectionMethod {
    /// NVIDIA's runtime reads [`VISIBLE_DEVICES_VARIABLE`].
    Environment,
    /// The container runtime reads our CDI specification.
    Cdi,
    /// Kubelet passes the device files.
    DeviceFiles,
}

/// Everything passed to a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceInjection {
    /// Environment variables.
    pub variables: BTreeMap<&'static str, String>,
    /// Device files, each once; the common ones first.
    pub files: Vec<DeviceFile>,
    /// Qualified CDI device names.
    pub cdi: Vec<String>,
}

/// Error when a unit cannot be passed to a container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InjectionError {
    /// The minor number of its device file is unknown.
    #[error(
        "{uuid}: the driver does not report the number of /dev/nvidia<number> for the device {pci}, so the file \
         cannot be passed to a container"
    )]
    NoDevice {
        /// The unit.
        uuid: String,
        /// The device.
        pci: PciAddress,
    },
    /// The driver's tables have no capability for the partition.
    #[error(
        "{uuid}: the driver's table of capabilities has no entry for GPU instance {gpu_instance}, compute instance \
         {compute_instance} of {pci}, so its files cannot be passed to a container"
    )]
    NoCapability {
        /// The unit.
        uuid: String,
        /// The device.
        pci: PciAddress,
        /// The GPU instance.
        gpu_instance: u32,
        /// The compute instance within it.
        compute_instance: u32,
    },
}

/// The files of a unit, without the common ones.
pub fn unit_files(files: &DeviceFiles, unit: &Unit) -> Result<Vec<DeviceFile>, InjectionError> {
    let device = files.devices.get(&unit.pci);
    let device = device
        .ok_or_else(|| InjectionError::NoDevice { uuid: unit.uuid.clone(), pci: unit.pci })?;
    let mut found = vec![device.clone()];
    if let Some(part) = &unit.partition {
        for compute in [None, Some(part.compute_instance)] {
            let file =
                files.instances.get(&(unit.pci, part.gpu_instance, compute)).ok_or_else(|| {
                    InjectionError::NoCapability {
                        uuid: unit.uuid.clone(),
                        pci: unit.pci,
                        gpu_instance: part.gpu_instance,
                        compute_instance: part.compute_instance,
                    }
                })?;
            found.push(file.clone());
        }
    }
    Ok(found)
}

/// Name of the unit with this UUID in our CDI specification. UUIDs of partitions from old drivers contain a `/`,
/// which is not valid in a name.
pub fn cdi_name(uuid: &str) -> String {
    uuid.replace('/', "_")
}

/// Returns what a container receives for its allocated units. A unit allocated twice, by two replicas, is passed
/// once.
pub fn inject(
    units: &[Unit],
    ways: &BTreeSet<InjectionMethod>,
    files: &DeviceFiles,
) -> Result<DeviceInjection, InjectionError> {
    let mut seen = BTreeSet::new();
    let units = units.iter().filter(|unit| seen.insert(unit.uuid.as_str()));
    let units: Vec<&Unit> = units.collect();
    let uuids: Vec<&str> = units.iter().map(|unit| unit.uuid.as_str()).collect();
    let mut delivery = DeviceInjection::default();
    // Without the variable, the image's own value would apply, and most images set `all`.
    let visible = if ways.contains(&InjectionMethod::Environment) {
        uuids.join(",")
    } else {
        NO_DEVICES.to_owned()
    };
    delivery.variables.insert(VISIBLE_DEVICES_VARIABLE, visible);
    if ways.contains(&InjectionMethod::Cdi) {
        let names = uuids.iter().map(|uuid| format!("{CDI_KIND}={}", cdi_name(uuid)));
        delivery.cdi = names.collect();
    }
    if ways.contains(&InjectionMethod::DeviceFiles) {
        let mut all = files.common.clone();
        for unit in units {
            for file in unit_files(files, unit)? {
                if !all.contains(&file) {
                    all.push(file);
                }
            }
        }
        delivery.files = all;
    }
    Ok(delivery)
}

#[cfg(test)]
mod tests {
    use octavo_model::device_file::DeviceNumber;
    use proptest::prelude::*;

    use super::*;
    use crate::sharing::Partition;

    fn pci(bus: u8) -> PciAddress {
        PciAddress::new(0, bus, 0, 0).unwrap()
    }

    fn file(path: &str, major: u32, minor: u32) -> DeviceFile {
        DeviceFile { path: path.to_owned(), number: DeviceNumber { major, minor } }
    }

    fn unit(uuid: &str, bus: u8, partition: Option<(u32, u32)>) -> Unit {
        Unit {
            uuid: uuid.to_owned(),
            pci: pci(bus),
            partition: partition.map(|(gpu_instance, compute_instance)| Partition {
                gpu_instance,
                compute_instance,
                profile: "1g.10gb".parse().unwrap(),
            }),
            replicas: None,
            memory: None,
            memory_per_replica: None,
            numa_node: None,
        }
    }

    fn files() -> DeviceFiles {
        let cap = |minor: u32| file(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 235, minor);
        DeviceFiles {
            common: vec![file("/dev/nvidiactl", 195, 255), file("/dev/nvidia-uvm", 510, 0)],
            devices: (0..8)
                .map(|at| (pci(at), file(&format!("/dev/nvidia{at}"), 195, u32::from(at))))
                .collect(),
            instances: [((pci(1), 3, None), cap(30)), ((pci(1), 3, Some(0)), cap(31))].into(),
        }
    }

    fn paths(delivery: &DeviceInjection) -> Vec<&str> {
        delivery.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn variable_names_each_unit_once_for_any_number_of_replicas() {
        let units = [unit("GPU-b", 1, None), unit("GPU-a", 0, None)];
        let twice = [&units[..], &units[..]].concat();
        let injection =
            inject(&twice, &[InjectionMethod::Environment].into(), &DeviceFiles::default())
                .unwrap();
        assert_eq!(
            injection.variables,
            [(VISIBLE_DEVICES_VARIABLE, "GPU-b,GPU-a".to_owned())].into()
        );
        assert_eq!((injection.files, injection.cdi), (vec![], vec![]));
    }

    #[test]
    fn variable_is_void_for_other_injection_methods() {
        for way in [InjectionMethod::Cdi, InjectionMethod::DeviceFiles] {
            let injection = inject(&[unit("GPU-a", 0, None)], &[way].into(), &files()).unwrap();
            assert_eq!(injection.variables, [(VISIBLE_DEVICES_VARIABLE, "void".to_owned())].into());
        }
    }

    #[test]
    fn partition_needs_device_file_and_both_capabilities() {
        let units = [unit("MIG-a", 1, Some((3, 0))), unit("MIG-a", 1, Some((3, 0)))];
        let injection =
            inject(&units, &[InjectionMethod::DeviceFiles, InjectionMethod::Cdi].into(), &files())
                .unwrap();
        let expected = [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia1",
            "/dev/nvidia-caps/nvidia-cap30",
            "/dev/nvidia-caps/nvidia-cap31",
        ];
        assert_eq!(paths(&injection), expected);
        assert_eq!(injection.cdi, ["octavo.dev/gpu=MIG-a"]);
    }

    #[test]
    fn i12_unit_without_device_file_is_rejected() {
        let ways = [InjectionMethod::DeviceFiles].into();
        let unknown = inject(&[unit("GPU-a", 0, None), unit("GPU-z", 77, None)], &ways, &files());
        let error = unknown.unwrap_err().to_string();
        assert!(error.contains("GPU-z") && error.contains("0000:4d"), "{error}");
        let error = inject(&[unit("MIG-b", 1, Some((3, 1)))], &ways, &files()).unwrap_err();
        assert!(
            matches!(error, InjectionError::NoCapability { compute_instance: 1, .. }),
            "{error}"
        );
    }

    #[test]
    fn cdi_name_contains_only_valid_characters() {
        assert_eq!(cdi_name("MIG-GPU-a/1/0"), "MIG-GPU-a_1_0");
    }

    proptest! {
        #[test]
        fn container_gets_only_files_of_its_devices(buses in proptest::collection::vec(0_u8..8, 1..6)) {
            let units: Vec<Unit> = buses.iter().map(|bus| unit(&format!("GPU-{bus}"), *bus, None)).collect();
            let ways = [InjectionMethod::Environment, InjectionMethod::Cdi, InjectionMethod::DeviceFiles].into();
            let injection = inject(&units, &ways, &files()).unwrap();
            let of_devices = injection.files.iter().filter(|file| !files().common.contains(file));
            let minors: Vec<u32> = of_devices.map(|file| file.number.minor).collect();
            let mut expected: Vec<u8> = Vec::new();
            for bus in buses {
                if !expected.contains(&bus) {
                    expected.push(bus);
                }
            }
            prop_assert_eq!(minors, expected.iter().map(|bus| u32::from(*bus)).collect::<Vec<_>>());
            let names: Vec<String> = expected.iter().map(|bus| format!("octavo.dev/gpu=GPU-{bus}")).collect();
            prop_assert_eq!(injection.cdi, names);
        }
    }
}
