//! Diagram of a device's memory slices: the terminal's, as data for a page.

use octavo_model::inventory::{Device, DeviceProcesses, InstanceUse, MigState};
use octavo_model::slices::{Region as Stretch, Slices, words as say};

use crate::badges::printable;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SliceDiagram {
    /// Name of its parts.
    pub(super) what: &'static str,
    /// Mode, and why the diagram is empty if it is.
    pub(super) caption: String,
    /// Number of free slices, if known.
    pub(super) count: Option<String>,
    /// Total number of slices; 0 for an empty diagram.
    pub(super) slices: u32,
    /// Regions from left to right.
    pub(super) regions: Vec<Region>,
    /// Instances that no region shows.
    pub(super) hidden: Vec<String>,
}

/// Name of the parts of a MIG-capable device.
pub(super) const SLICES: &str = "Memory slices";

/// Run of adjacent slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// CSS class: `is-free`, `is-open`, `is-idle`, `is-used`, `is-odd`.
    pub(super) class: &'static str,
    /// Number of slices.
    pub(super) slices: u32,
    /// Profile, `free`, or `one whole GPU`.
    pub(super) name: String,
    /// Additional lines of text.
    pub(super) lines: Vec<String>,
    /// Position, as text.
    pub(super) place: String,
    /// ID of the current GPU instance.
    pub(super) instance: Option<u32>,
}

impl SliceDiagram {
    /// Builds the diagram of `device`; `None` for a device that cannot be partitioned.
    pub(super) fn of(device: &Device) -> Option<Self> {
        let state = device.mig.state()?;
        let picture = Slices::from_device(device);
        let free = picture.free();
        let mode = say::mode(state);
        let nothing = |caption: String| Self {
            what: SLICES,
            caption,
            count: None,
            slices: 0,
            regions: Vec::new(),
            hidden: Vec::new(),
        };
        match picture {
            Slices::NotPartitionable => None,
            Slices::Undrawable(why) => Some(nothing(format!("{mode}. {}", say::undrawable(why)))),
            Slices::Whole { slices } => Some(Self {
                slices,
                regions: vec![whole(slices, device.usage())],
                ..nothing(mode.to_owned())
            }),
            Slices::Partitioned { slices, regions, hidden } => Some(Self {
                count: free.map(|free| format!("{free} of {slices} slices free")),
                slices,
                regions: regions
                    .iter()
                    .map(|stretch| region(stretch, state, device.usage()))
                    .collect(),
                hidden: hidden
                    .into_iter()
                    .map(|instance| printable(&say::hidden_instance(instance, state)))
                    .collect(),
                ..nothing(mode.to_owned())
            }),
        }
    }
}

impl SliceDiagram {
    /// Returns whether the diagram shows an instance.
    pub(super) fn has_instances(&self) -> bool {
        let one = |region: &Region| matches!(region.class, "is-idle" | "is-used" | "is-odd");
        self.count.is_some() && self.regions.iter().any(one)
    }
}

impl Region {
    /// Region of a planned layout.
    pub(super) fn planned(
        class: &'static str,
        (start, slices): (u32, u32),
        name: String,
        lines: Vec<String>,
    ) -> Self {
        let place = say::slice_range(start, slices);
        Self { class, slices, name, lines, place, instance: None }
    }

    /// One free slice of a planned layout.
    pub(super) fn free(start: u32) -> Self {
        Self::planned("is-free", (start, 1), "free".to_owned(), Vec::new())
    }

    /// Splits the name where a narrow cell may break it: `1c.`, `3g.`, `40gb`, or `renderD`, `128`.
    pub(super) fn name_parts(&self) -> impl Iterator<Item = &str> {
        self.name.split_inclusive(['.', 'D'])
    }
}

fn whole(slices: u32, usage: DeviceProcesses<'_>) -> Region {
    let class = match usage {
        DeviceProcesses::Unknown => "is-odd",
        DeviceProcesses::Known([]) => "is-open",
        DeviceProcesses::Known(_) => "is-used",
    };
    Region {
        class,
        slices,
        name: "one whole GPU".to_owned(),
        lines: vec![say::whole_gpu_usage(usage)],
        place: say::slice_range(0, slices),
        instance: None,
    }
}

fn region(stretch: &Stretch<'_>, state: &MigState, usage: DeviceProcesses<'_>) -> Region {
    let (class, name, lines, id) = match stretch {
        Stretch::Free { .. } => ("is-free", "free".to_owned(), Vec::new(), None),
        Stretch::Instance { instance, .. } => {
            let how = usage.of(instance, state);
            let name = printable(&state.profile_name(instance));
            let lines = vec![say::ids(instance), say::used(&how)];
            (class(&how), name, lines, Some(instance.id))
        }
    };
    Region {
        class,
        slices: stretch.slices(),
        name,
        lines,
        place: say::slice_range(stretch.start(), stretch.slices()),
        instance: id,
    }
}

fn class(how: &InstanceUse) -> &'static str {
    match how {
        InstanceUse::Unknown | InstanceUse::NoComputeInstance => "is-odd",
        InstanceUse::Idle => "is-idle",
        InstanceUse::InUse | InstanceUse::InUseBy(_) => "is-used",
    }
}
