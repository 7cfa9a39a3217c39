//! The last effective sharing of devices: while their partitioning is changed they remain shared as before, also
//! across a restart of the agent.
//!
//! It is stored in the state directory as a layouts file with one layout per device, named for its UUID: a card that
//! replaces another one does not inherit its sharing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use octavo_engine::durable;
use octavo_files::layouts;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    DeviceTarget, Dialect, Layout, Layouts, Rule, Selector, TargetScope, Targets, TimeSlicing,
};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::files::{self, ReadError};
use tracing::warn;

use super::super::Observation;
use super::devices::{has_failed, is_blocked, is_in_force};

/// File name in the state directory.
const FILE_NAME: &str = "shared";
const DRAFT_NAME: &str = "shared.draft";
const MODE: u32 = 0o600;
/// Maximum size; a node with sixteen devices needs some ten kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Desired sharing of the devices.
pub(super) struct DesiredSharing {
    pub(super) targets: Targets,
    /// Devices whose partitioning is not as desired yet: they keep their previous sharing.
    pub(super) waiting: Vec<PciAddress>,
    /// The subset of `waiting` whose previous sharing is not known: none of their units are newly offered.
    pub(super) unknown: BTreeSet<PciAddress>,
}

/// Sharing of each device when its partitioning was last as desired.
#[derive(Debug)]
pub(super) struct PreviousSharing {
    current: BTreeMap<PciAddress, Option<TimeSlicing>>,
    /// The state directory; `None` without one.
    state_dir: Option<PathBuf>,
    /// The same by UUID, including that of an earlier agent; `None` while another agent may own the state directory.
    stored: Option<BTreeMap<String, TimeSlicing>>,
}

impl PreviousSharing {
    /// Creates the record. The file of an earlier agent is read once this process owns the directory.
    pub(super) fn new(state_dir: Option<PathBuf>) -> Self {
        Self { current: BTreeMap::new(), state_dir, stored: None }
    }

    /// Returns the desired sharing. Devices whose partitioning is not as desired keep their previous sharing, because
    /// both are one change. After a start only the stored record knows it, and it counts if the change cannot proceed
    /// by itself: units allocated now would block a change that is about to begin. No units of any other such device
    /// are newly offered before their change is made or has failed.
    pub(super) fn desired(
        &mut self,
        observation: Observation<'_>,
        is_ours: bool,
    ) -> DesiredSharing {
        let mut all = DesiredSharing {
            targets: Targets::default(),
            waiting: Vec::new(),
            unknown: BTreeSet::new(),
        };
        if is_ours && self.stored.is_none() {
            self.stored = Some(self.read());
        }
        let status = observation.status;
        let targets = status.and_then(|status| status.targets.as_deref());
        let Some((status, targets)) = status.zip(targets) else {
            if status.is_some_and(is_unusable) {
                all.targets = self.stored_targets(observation.inventory);
            }
            return all;
        };
        all.targets = targets.clone();
        for target in &mut all.targets.devices {
            if is_in_force(target, status) {
                self.current.insert(target.pci, target.time_slicing.clone());
                continue;
            }
            let has_ended = has_failed(target, status);
            if !self.current.contains_key(&target.pci)
                && (has_ended || is_blocked(target, status))
                && let Some(stored) = self.stored_sharing(observation.inventory, target.pci)
            {
                self.current.insert(target.pci, Some(stored));
            }
            let had = self.current.get(&target.pci).cloned();
            if had.is_none() && !has_ended {
                all.unknown.insert(target.pci);
            }
            target.time_slicing = had.flatten();
            all.waiting.push(target.pci);
        }
        self.store(observation.inventory);
        all
    }

    /// Returns targets with each device's previous sharing.
    fn stored_targets(&self, inventory: &Inventory) -> Targets {
        let devices = inventory.devices.iter().filter_map(|device| {
            Some(DeviceTarget {
                pci: device.pci,
                rule: SourcePosition::default(),
                mig: None,
                time_slicing: Some(self.stored_sharing(inventory, device.pci)?),
                scope: TargetScope::Layout,
            })
        });
        Targets { devices: devices.collect(), ..Targets::default() }
    }

    fn stored_sharing(&self, inventory: &Inventory, pci: PciAddress) -> Option<TimeSlicing> {
        self.stored.as_ref()?.get(&uuid(inventory, pci)?).cloned()
    }

    /// Stores changes.
    fn store(&mut self, inventory: &Inventory) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let mut now = stored.clone();
        for (pci, had) in &self.current {
            if let Some(uuid) = uuid(inventory, *pci) {
                now.insert(uuid, plain(had.as_ref()));
            }
        }
        if now == *stored {
            return;
        }
        // Cards that were removed are dropped from the record when there is something to write.
        let is_there = |uuid: &String| {
            let mut devices = inventory.devices.iter();
            devices.any(|device| device.uuid.as_ref().is_some_and(|one| one.as_str() == uuid))
        };
        now.retain(|uuid, _| is_there(uuid));
        *stored = now;
        if let Err(reason) = self.write() {
            // The previous content is outdated. Removing it may fail as well if nothing can be written.
            let _or_it_is_old = self.path().map(|path| durable::remove(&path));
            warn!(error = %reason, "cannot store the sharing state for the next agent");
        }
    }

    fn write(&self) -> Result<(), String> {
        let (Some(dir), Some(stored)) = (&self.state_dir, &self.stored) else {
            return Ok(());
        };
        let layout = |(uuid, sharing): (&String, &TimeSlicing)| Layout {
            name: uuid.clone(),
            position: SourcePosition::default(),
            rules: vec![Rule {
                position: SourcePosition::default(),
                devices: Selector::All,
                mig: None,
                time_slicing: Some(sharing.clone()),
                claims: false,
            }],
        };
        let all =
            Layouts { dialect: Dialect::Octavo, layouts: stored.iter().map(layout).collect() };
        let text = layouts::write(&all, Dialect::Octavo).map_err(|error| error.to_string())?;
        let (path, draft) = (dir.join(FILE_NAME), dir.join(DRAFT_NAME));
        durable::replace(&path, &draft, text.as_bytes(), MODE)
            .map_err(|error| format!("{error}: {}", error.source))
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.state_dir.as_ref()?.join(FILE_NAME))
    }

    /// Reads the record of an earlier agent; empty if it cannot be read.
    fn read(&self) -> BTreeMap<String, TimeSlicing> {
        let Some(path) = self.path() else {
            return BTreeMap::new();
        };
        let text = match files::text(&path, MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(ReadError::Missing(_)) => return BTreeMap::new(),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read the stored sharing state");
                return BTreeMap::new();
            }
        };
        match layouts::parse(&text) {
            Ok(parsed) => {
                let all = parsed.layouts.layouts.into_iter();
                all.filter_map(|layout| {
                    let rule = layout.rules.into_iter().next()?;
                    Some((layout.name, rule.time_slicing?.without_positions()))
                })
                .collect()
            }
            Err(errors) => {
                let first = errors.first().map(ToString::to_string);
                let first = first.unwrap_or_default();
                warn!(path = %path.display(), error = %first, "cannot parse the stored sharing state");
                BTreeMap::new()
            }
        }
    }
}

/// Returns whether the selected layout could not be resolved since this agent started, for example because the layouts
/// file is invalid.
pub(super) fn is_unusable(status: &NodeLayoutStatus) -> bool {
    let is_failed = status.state == Some(Reason::Failed.into());
    status.layout.is_some() && status.targets.is_none() && is_failed
}

fn uuid(inventory: &Inventory, pci: PciAddress) -> Option<String> {
    let mut devices = inventory.devices.iter();
    let device = devices.find(|device| device.pci == pci)?;
    Some(device.uuid.as_ref()?.as_str().to_owned())
}

/// Normalizes sharing for storage: an empty sharing is the same as none.
fn plain(had: Option<&TimeSlicing>) -> TimeSlicing {
    match had {
        Some(had) if had.is_sharing() => had.clone().without_positions(),
        Some(_) | None => {
            TimeSlicing { position: SourcePosition::default(), shares: Vec::new(), slice: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use octavo_model::inventory::{Device, Machine, NvmlState, PciIds};
    use octavo_planner::layout::Share;

    use super::*;

    fn inventory(uuids: &[&str]) -> Inventory {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0x10de,
            subsystem_device: 0,
            class: None,
        };
        let device = |(bus, uuid): (u8, &&str)| {
            let mut device = Device::new(pci(bus), ids);
            device.uuid = Some(uuid.parse().unwrap());
            device
        };
        Inventory {
            neuron: None,
            devices: (1..).zip(uuids).map(device).collect(),
            nvml: NvmlState::Loading,
            machine: Machine::default(),
        }
    }

    fn pci(bus: u8) -> PciAddress {
        PciAddress::new(0, bus, 0, 0).unwrap()
    }

    fn by(replicas: u32) -> TimeSlicing {
        TimeSlicing {
            position: SourcePosition::default(),
            shares: vec![Share::everything(replicas)],
            slice: None,
        }
    }

    const A: &str = "GPU-0a0a0a0a-0000-0000-0000-000000000001";
    const B: &str = "GPU-0b0b0b0b-0000-0000-0000-000000000002";

    #[test]
    fn stored_sharing_is_matched_by_uuid_not_by_address() {
        let directory = tempfile::tempdir().unwrap();
        let mut past = PreviousSharing::new(Some(directory.path().to_owned()));
        past.stored = Some(past.read());
        past.current = [(pci(1), Some(by(3))), (pci(2), None)].into();
        past.store(&inventory(&[A, B]));
        let mut next = PreviousSharing::new(Some(directory.path().to_owned()));
        next.stored = Some(next.read());
        let there = inventory(&[B, A]);
        assert_eq!(next.stored_sharing(&there, pci(2)), Some(by(3)));
        let alone = next.stored_sharing(&there, pci(1)).unwrap();
        assert!(!alone.is_sharing());
        assert_eq!(next.stored_sharing(&inventory(&[]), pci(1)), None);
    }

    #[test]
    fn i12_invalid_file_is_ignored_and_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE_NAME), "layouts: [").unwrap();
        let mut past = PreviousSharing::new(Some(directory.path().to_owned()));
        assert_eq!(past.read(), BTreeMap::new());
        past.stored = Some(BTreeMap::new());
        past.current = [(pci(1), Some(by(2)))].into();
        past.store(&inventory(&[A]));
        assert_eq!(past.read(), [(A.to_owned(), by(2))].into());
    }

    #[test]
    fn failed_write_removes_the_outdated_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut past = PreviousSharing::new(Some(directory.path().to_owned()));
        past.stored = Some(BTreeMap::new());
        past.current = [(pci(1), Some(by(2)))].into();
        past.store(&inventory(&[A]));
        // Fails like a full disk, and unlike a mode also for root.
        fs::create_dir(directory.path().join(DRAFT_NAME)).unwrap();
        past.current = [(pci(1), Some(by(4)))].into();
        past.store(&inventory(&[A]));
        assert_eq!(past.read(), BTreeMap::new());
    }
}
