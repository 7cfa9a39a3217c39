//! CDI specifications of prepared claims: one file per claim in the directory that container runtimes read.
//!
//! The directory is empty after a boot, so a specification is compared with the desired one at every Prepare.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

use octavo_dra::DraDevice;
use octavo_dra::DraDeviceKind;
use octavo_dra::claims::is_instance;
use octavo_engine::durable::{self, DurableError};
use octavo_files::cdi::{self, CLAIM_KIND, CdiError};
use octavo_hardware::device_files::{self, DeviceFilesError};
use octavo_model::claim::ClaimUid;
use octavo_model::inventory::Inventory;
use octavo_node::sharing::{Partition, Unit};
use octavo_toolkit::files;
use thiserror::Error;

use crate::sharing::machine::{HostPaths, driver_edits};

/// Container runtimes may run as any user.
const MODE: u32 = 0o644;
/// Maximum size; a longer file is replaced.
const MAX_SPEC_BYTES: u64 = 1 << 20;

/// The CDI specifications of claims on this machine.
#[derive(Debug)]
pub struct ClaimSpecs {
    paths: HostPaths,
}

/// Reason why the specification of a claim cannot be written.
#[derive(Debug, Error)]
pub enum ClaimSpecError {
    /// The instance or GPU is gone.
    #[error("{0} no longer exists")]
    Gone(String),
    /// The device numbers cannot be read.
    #[error("cannot read the device files")]
    Files(#[from] DeviceFilesError),
    /// A device file is missing.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The directory cannot be used.
    #[error("cannot use the directory of CDI specifications {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] DurableError),
}

impl ClaimSpecs {
    /// Uses these paths. Writes nothing yet.
    pub fn new(paths: HostPaths) -> Self {
        Self { paths }
    }

    /// Writes the specification of a claim for the devices in `inventory`. Returns the qualified CDI name of each device,
    /// in the same order.
    pub fn write(
        &self,
        uid: &ClaimUid,
        devices: &[&DraDevice],
        inventory: &Inventory,
    ) -> Result<Vec<String>, ClaimSpecError> {
        let dir = &self.paths.cdi;
        let directory = |source| ClaimSpecError::Directory { path: dir.clone(), source };
        fs::create_dir_all(dir).map_err(directory)?;
        let minors = inventory.devices.iter();
        let minors: BTreeMap<_, _> =
            minors.filter_map(|device| Some((device.pci, device.minor?))).collect();
        let device_files = device_files::read(&self.paths.proc, &self.paths.dev, &minors)?;
        let units = devices.iter().map(|device| {
            let unit = unit(device, inventory);
            let unit = unit.ok_or_else(|| ClaimSpecError::Gone(device.name().to_string()))?;
            Ok((format!("{uid}-{}", device.name()), unit))
        });
        let units: Vec<(String, Unit)> = units.collect::<Result<_, ClaimSpecError>>()?;
        let driver = driver_edits(dir).map_err(directory)?;
        let text = cdi::write_claim_spec(&units, &device_files, driver.as_ref())?;
        let path = self.path(uid);
        if files::text(&path, MAX_SPEC_BYTES).ok().as_deref() != Some(text.as_str()) {
            durable::replace(&path, &self.draft(uid), text.as_bytes(), MODE)?;
        }
        Ok(units.into_iter().map(|(name, _)| format!("{CLAIM_KIND}={name}")).collect())
    }

    /// Removes the specification of a claim, if there is one, and the draft of an agent that was killed.
    pub fn remove(&self, uid: &ClaimUid) -> Result<(), DurableError> {
        let paths = [self.path(uid), self.draft(uid)];
        paths.iter().filter(|path| path.exists()).try_for_each(|path| durable::remove(path))
    }

    /// Path of a draft of the specification, which container runtimes ignore.
    fn draft(&self, uid: &ClaimUid) -> PathBuf {
        self.paths.cdi.join(format!(".{uid}.draft"))
    }

    /// Path of the specification of a claim. CDI recommends the kind as a prefix.
    fn path(&self, uid: &ClaimUid) -> PathBuf {
        self.paths.cdi.join(format!("octavo.dev-claim_{uid}.json"))
    }
}

/// Returns the unit of a device; `None` if it does not exist.
fn unit(device: &DraDevice, inventory: &Inventory) -> Option<Unit> {
    let gpu = inventory.device(device.pci)?;
    let unit = |uuid: String, partition| Unit {
        uuid,
        pci: gpu.pci,
        partition,
        replicas: None,
        memory: None,
        memory_per_replica: None,
        numa_node: gpu.numa_node,
    };
    let DraDeviceKind::Partition { profile, .. } = &device.what else {
        return Some(unit(gpu.uuid.as_ref()?.to_string(), None));
    };
    let mut parts = gpu.mig.compute_instances();
    let (instance, compute) = parts.find(|(one, _)| is_instance(device, gpu.pci, one))?;
    let partition = Partition {
        gpu_instance: instance.id,
        compute_instance: compute.id,
        profile: profile.clone(),
    };
    let uuid = compute.uuid.as_ref().map_or_else(|| device.name().to_string(), ToString::to_string);
    Some(unit(uuid, Some(partition)))
}
