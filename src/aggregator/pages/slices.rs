//! The picture of a device's memory slices: the terminal's, as data for a page.

use crate::aggregator::pages::words::{counted, printable};
use crate::domain::inventory::{Device, GpuInstance, InstanceUse, MigMode, MigState, Usage};
use crate::domain::slices::{Region as Stretch, Slices, Untold};

/// A picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// Mode, and why nothing is drawn where nothing is.
    pub(super) caption: String,
    /// How many slices are free, where that can be said.
    pub(super) count: Option<String>,
    /// How many there are; 0 where nothing can be drawn.
    pub(super) slices: u32,
    /// From left to right.
    pub(super) regions: Vec<Region>,
    /// What no region shows.
    pub(super) hidden: Vec<String>,
}

/// A stretch of slices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// How it looks: `is-free`, `is-open`, `is-idle`, `is-used`, `is-odd`.
    pub(super) class: &'static str,
    /// How many slices.
    pub(super) slices: u32,
    /// The profile, `free`, or `one whole GPU`.
    pub(super) name: String,
    /// What else is to be said.
    pub(super) lines: Vec<String>,
    /// Where it lies, in words.
    pub(super) place: String,
}

impl Picture {
    /// Of `device`; nothing for one that cannot be partitioned.
    pub(super) fn of(device: &Device) -> Option<Self> {
        let state = device.mig.state()?;
        let picture = Slices::of(device);
        let free = picture.free();
        let mode = mode(state);
        let nothing = |caption: String| Self {
            caption,
            count: None,
            slices: 0,
            regions: Vec::new(),
            hidden: Vec::new(),
        };
        match picture {
            Slices::NotPartitionable => None,
            Slices::Untold(why) => Some(nothing(format!("{mode}. {}", untold(why)))),
            Slices::Whole { slices } => Some(Self {
                slices,
                regions: vec![whole(slices, device.usage())],
                ..nothing(mode.to_owned())
            }),
            Slices::Partitioned {
                slices,
                regions,
                hidden,
            } => Some(Self {
                count: free.map(|free| format!("{free} of {slices} slices free")),
                slices,
                regions: regions
                    .iter()
                    .map(|stretch| region(stretch, state, device.usage()))
                    .collect(),
                hidden: hidden
                    .into_iter()
                    .map(|instance| covered(instance, state))
                    .collect(),
                ..nothing(mode.to_owned())
            }),
        }
    }
}

impl Region {
    /// The name in parts between which a narrow cell may break it.
    pub(super) fn name_parts(&self) -> impl Iterator<Item = &str> {
        self.name.split_inclusive('.')
    }
}

fn untold(why: Untold) -> String {
    match why {
        Untold::NoSlices => "The driver does not say which slices this GPU has.".to_owned(),
        Untold::TooMany(slices) => {
            format!("The driver claims {slices} slices, too many to draw.")
        }
        Untold::Geometry => "The driver does not tell the partitions.".to_owned(),
    }
}

fn mode(state: &MigState) -> &'static str {
    match (state.current, state.pending) {
        (MigMode::Disabled, MigMode::Disabled) => "MIG off",
        (MigMode::Disabled, MigMode::Enabled) => "MIG off, on after a reset",
        (MigMode::Enabled, MigMode::Enabled) => "MIG on",
        (MigMode::Enabled, MigMode::Disabled) => "MIG on, off after a reset",
    }
}

fn whole(slices: u32, usage: Usage<'_>) -> Region {
    let (class, line) = match usage {
        Usage::Unknown => ("is-odd", "use unknown".to_owned()),
        Usage::Known([]) => ("is-open", "idle".to_owned()),
        Usage::Known(processes) => {
            let count = counted(processes.len(), "process", "processes");
            ("is-used", format!("in use by {count}"))
        }
    };
    Region {
        class,
        slices,
        name: "one whole GPU".to_owned(),
        lines: vec![line],
        place: place(0, slices),
    }
}

fn region(stretch: &Stretch<'_>, state: &MigState, usage: Usage<'_>) -> Region {
    let (class, name, lines) = match stretch {
        Stretch::Free { .. } => ("is-free", "free".to_owned(), Vec::new()),
        Stretch::Instance { instance, .. } => {
            let (class, used) = used(&usage.of(instance));
            let name = printable(&state.profile_name(instance));
            (class, name, vec![ids(instance), used])
        }
    };
    Region {
        class,
        slices: stretch.slices(),
        name,
        lines,
        place: place(stretch.start(), stretch.slices()),
    }
}

/// `slice 3`, `slices 4-7`.
fn place(start: u32, slices: u32) -> String {
    match slices {
        0 | 1 => format!("slice {start}"),
        _ => format!(
            "slices {start}-{}",
            start.saturating_add(slices).saturating_sub(1)
        ),
    }
}

/// `gi 2/0`, `gi 2/-` without a compute instance, and `gi 2/0:1c,1:2c` when it is split.
fn ids(instance: &GpuInstance) -> String {
    let compute = match instance.compute_instances.as_slice() {
        [] => "-".to_owned(),
        [one] => one.id.to_string(),
        several => {
            let parts: Vec<String> = several
                .iter()
                .map(|compute| match compute.resources {
                    Some(resources) => format!("{}:{}c", compute.id, resources.compute_slices),
                    None => compute.id.to_string(),
                })
                .collect();
            parts.join(",")
        }
    };
    format!("gi {}/{compute}", instance.id)
}

fn used(how: &InstanceUse) -> (&'static str, String) {
    match how {
        InstanceUse::Unknown => ("is-odd", "use unknown".to_owned()),
        InstanceUse::NoComputeInstance => ("is-odd", "no ci".to_owned()),
        InstanceUse::Idle => ("is-idle", "idle".to_owned()),
        InstanceUse::InUse => ("is-used", "in use".to_owned()),
        InstanceUse::InUseBy(ids) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            ("is-used", format!("in use: ci {}", ids.join(",")))
        }
    }
}

/// The line for an instance that has no region.
fn covered(instance: &GpuInstance, state: &MigState) -> String {
    let name = printable(&state.profile_name(instance));
    format!(
        "gi {} ({name}) lies in {}, where another instance is",
        instance.id,
        place(instance.placement.start, instance.placement.size)
    )
}
