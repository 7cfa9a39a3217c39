//! Contents of allocation responses: environment variables, device files and CDI names for a container.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use octavo_model::device_file::DeviceFiles;
use octavo_model::inventory::Device;
use octavo_model::resource::ShareId;
use octavo_node::sharing::Unit;
use octavo_node::sharing::injection::{self, InjectionError, InjectionMethod, PERMISSIONS};
use octavo_toolkit::error::chain;
use thiserror::Error as ThisError;

use crate::proto::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec};

/// An error of the machine, with its own message.
pub type MachineError = Box<dyn Error + Send + Sync>;

/// Machine access needed for a response.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Updates the observed devices and all allocatable units, including those that only running pods still use.
    fn update(&self, devices: &[Device], units: &[Unit]);

    /// Returns the current files of the driver's devices.
    fn files(&self) -> Result<DeviceFiles, MachineError>;

    /// Ensures that container runtimes find these units in our CDI specification, beside all allocatable ones. They do
    /// when this returns. Other units without a file are omitted.
    fn ensure_cdi_spec(&self, units: &[Unit], files: &DeviceFiles) -> Result<(), MachineError>;
}

/// Produces the contents of allocation responses.
#[derive(Debug)]
pub struct DeviceResponder {
    methods: BTreeSet<InjectionMethod>,
    machine: Box<dyn Machine>,
    allocatable: Mutex<Vec<Unit>>,
}

/// Error that prevents an allocation. The kubelet reports it in the pod's status.
#[derive(Debug, ThisError)]
pub enum DeliveryError {
    /// The driver's device files are unknown.
    #[error("cannot determine the device files of the driver: {}", chain(.0.as_ref()))]
    Files(MachineError),
    /// A unit has no file.
    #[error(transparent)]
    Unit(#[from] InjectionError),
    /// The unit is not or no longer allocatable.
    #[error("{0} belongs to no allocatable device or partition")]
    Unknown(ShareId),
    /// Container runtimes would not find the device.
    #[error("cannot write the CDI specification for container runtimes: {}", chain(.0.as_ref()))]
    Cdi(MachineError),
}

impl DeviceResponder {
    /// Creates a delivery with these methods, on this machine.
    pub fn new(
        methods: impl IntoIterator<Item = InjectionMethod>,
        machine: Box<dyn Machine>,
    ) -> Self {
        Self { methods: methods.into_iter().collect(), machine, allocatable: Mutex::default() }
    }

    /// Updates the allocatable units; call it after every hardware observation. If CDI is enabled, writes the
    /// specification if it differs: a container that is restarted looks up its devices without a new allocation.
    pub fn offer(&self, devices: &[Device], units: &[Unit]) -> Result<(), DeliveryError> {
        self.machine.update(devices, units);
        let mut offered = self.allocatable.lock().unwrap_or_else(PoisonError::into_inner);
        *offered = units.to_vec();
        drop(offered);
        if !self.methods.contains(&InjectionMethod::Cdi) {
            return Ok(());
        }
        let files = self.machine.files().map_err(DeliveryError::Files)?;
        let described = self.machine.ensure_cdi_spec(&[], &files);
        described.map_err(DeliveryError::Cdi)
    }

    /// Returns the response for these device IDs. Several replicas of one unit resolve to that unit once.
    pub fn response_for_ids(
        &self,
        ids: &[ShareId],
    ) -> Result<ContainerAllocateResponse, DeliveryError> {
        let units: Result<Vec<Unit>, DeliveryError> = {
            let offered = self.allocatable.lock().unwrap_or_else(PoisonError::into_inner);
            let unit = |id: &ShareId| offered.iter().find(|unit| unit.uuid == id.uuid()).cloned();
            let unit = |id: &ShareId| unit(id).ok_or_else(|| DeliveryError::Unknown(id.clone()));
            ids.iter().map(unit).collect()
        };
        self.answer(&units?)
    }

    /// Returns the response for these units. Reads a few small files, and writes one if a unit is not yet in the CDI
    /// specification.
    pub fn answer(&self, units: &[Unit]) -> Result<ContainerAllocateResponse, DeliveryError> {
        let needs = |method| self.methods.contains(&method);
        let files = if needs(InjectionMethod::Cdi) || needs(InjectionMethod::DeviceFiles) {
            self.machine.files().map_err(DeliveryError::Files)?
        } else {
            DeviceFiles::default()
        };
        let response = injection::inject(units, &self.methods, &files)?;
        if needs(InjectionMethod::Cdi) {
            // Write the specification before returning the name, because a runtime may look it up immediately.
            let described = self.machine.ensure_cdi_spec(units, &files);
            described.map_err(DeliveryError::Cdi)?;
        }
        let variables = response.variables.into_iter();
        let files = response.files.into_iter().map(|file| DeviceSpec {
            container_path: file.path.clone(),
            host_path: file.path,
            permissions: PERMISSIONS.to_owned(),
        });
        let cdi = response.cdi.into_iter().map(|name| CdiDevice { name });
        Ok(ContainerAllocateResponse {
            envs: variables.map(|(key, value)| (key.to_owned(), value)).collect(),
            devices: files.collect(),
            cdi_devices: cdi.collect(),
            ..ContainerAllocateResponse::default()
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use octavo_model::device_file::{DeviceFile, DeviceNumber};
    use octavo_model::id::PciAddress;

    use super::*;

    /// A machine that records its calls.
    #[derive(Debug, Default)]
    pub(in super::super) struct RecordingMachine {
        calls: Arc<Mutex<Vec<String>>>,
        no_files: bool,
        no_cdi: bool,
    }

    impl Machine for RecordingMachine {
        fn update(&self, _devices: &[Device], units: &[Unit]) {
            let mut calls = self.calls.lock().unwrap();
            calls.push(format!("see {}", units.len()));
        }

        fn files(&self) -> Result<DeviceFiles, MachineError> {
            self.calls.lock().unwrap().push("files".to_owned());
            if self.no_files {
                return Err("the driver is gone".into());
            }
            let number = DeviceNumber { major: 195, minor: 0 };
            let file = DeviceFile { path: "/dev/nvidia0".to_owned(), number };
            Ok(DeviceFiles { devices: [(pci(), file)].into(), ..DeviceFiles::default() })
        }

        fn ensure_cdi_spec(
            &self,
            units: &[Unit],
            _files: &DeviceFiles,
        ) -> Result<(), MachineError> {
            let uuids: Vec<&str> = units.iter().map(|unit| unit.uuid.as_str()).collect();
            self.calls.lock().unwrap().push(uuids.join("+"));
            if self.no_cdi {
                return Err(Box::new(io::Error::from(io::ErrorKind::StorageFull)));
            }
            Ok(())
        }
    }

    fn pci() -> PciAddress {
        PciAddress::new(0, 7, 0, 0).unwrap()
    }

    fn unit(uuid: &str) -> Unit {
        Unit {
            uuid: uuid.to_owned(),
            pci: pci(),
            partition: None,
            replicas: None,
            memory: None,
            memory_per_replica: None,
            numa_node: None,
        }
    }

    #[test]
    fn only_required_machine_data_is_read() {
        for (methods, calls, cdi, files) in [
            (&[InjectionMethod::Environment][..], &[][..], 0, 0),
            (&[InjectionMethod::DeviceFiles], &["files"], 0, 1),
            (&[InjectionMethod::Cdi, InjectionMethod::Environment], &["files", "GPU-a"], 1, 0),
        ] {
            let machine = RecordingMachine::default();
            let recorded = Arc::clone(&machine.calls);
            let responder = DeviceResponder::new(methods.iter().copied(), Box::new(machine));
            let answer = responder.answer(&[unit("GPU-a")]).unwrap();
            assert_eq!(*recorded.lock().unwrap(), calls, "{methods:?}");
            assert_eq!(answer.cdi_devices.len(), cdi, "{methods:?}");
            assert_eq!(answer.devices.len(), files, "{methods:?}");
            assert!(answer.mounts.is_empty() && answer.annotations.is_empty());
        }
    }

    #[test]
    fn units_are_in_cdi_spec_before_allocation() {
        for (method, calls) in [
            (InjectionMethod::Cdi, &["see 1", "files", ""][..]),
            (InjectionMethod::Environment, &["see 1"]),
        ] {
            let machine = RecordingMachine::default();
            let recorded = Arc::clone(&machine.calls);
            let responder = DeviceResponder::new([method], Box::new(machine));
            let offered = responder.offer(&[], &[unit("GPU-a")]);
            offered.unwrap();
            assert_eq!(*recorded.lock().unwrap(), calls, "{method:?}");
        }
    }

    #[test]
    fn replicas_resolve_to_their_unit_and_unknown_ids_are_refused() {
        let responder = DeviceResponder::new(
            [InjectionMethod::Environment],
            Box::new(RecordingMachine::default()),
        );
        responder.offer(&[], &[unit("GPU-a"), unit("GPU-b")]).unwrap();
        let ids =
            [ShareId::replica("GPU-b", 1), ShareId::replica("GPU-b", 0), ShareId::whole("GPU-a")];
        let answer = responder.response_for_ids(&ids).unwrap();
        assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], "GPU-b,GPU-a");
        let error = responder.response_for_ids(&[ShareId::whole("GPU-c")]).unwrap_err();
        assert!(matches!(error, DeliveryError::Unknown(_)), "{error}");
    }

    #[test]
    fn cdi_name_requires_written_spec() {
        let machine = RecordingMachine { no_cdi: true, ..RecordingMachine::default() };
        let responder = DeviceResponder::new(
            [InjectionMethod::Cdi, InjectionMethod::Environment],
            Box::new(machine),
        );
        let error = responder.answer(&[unit("GPU-a")]).unwrap_err();
        assert!(error.to_string().contains("container runtimes: no storage space"), "{error}");
    }

    #[test]
    fn missing_device_files_refuse_the_allocation() {
        let machine = RecordingMachine { no_files: true, ..RecordingMachine::default() };
        let responder = DeviceResponder::new(
            [InjectionMethod::DeviceFiles, InjectionMethod::Environment],
            Box::new(machine),
        );
        let error = responder.answer(&[unit("GPU-a")]).unwrap_err();
        assert!(error.to_string().contains("the driver is gone"), "{error}");
    }
}
