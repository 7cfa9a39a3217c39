//! The picture of a device's memory slices: the terminal's, as data for a page.

use crate::aggregator::pages::words::printable;
use crate::domain::inventory::{Device, InstanceUse, MigState, Usage};
use crate::domain::slices::{Region as Stretch, Slices, words as say};

/// A picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// What its parts are.
    pub(super) what: &'static str,
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

/// What the parts of a MIG-capable device are.
pub(super) const SLICES: &str = "Memory slices";

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
    /// The GPU instance that is there now, by the driver's id.
    pub(super) instance: Option<u32>,
    /// Those who have it by turns.
    pub(super) marks: Vec<Mark>,
}

/// A replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nobody has it.
    Left,
    /// Somebody has it.
    Taken,
    /// Who has it uses more than their share.
    Over,
}

impl Mark {
    /// How it looks.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Taken => "taken",
            Self::Over => "over",
        }
    }
}

impl Picture {
    /// Of `device`; nothing for one that cannot be partitioned.
    pub(super) fn of(device: &Device) -> Option<Self> {
        let state = device.mig.state()?;
        let picture = Slices::of(device);
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
            Slices::Untold(why) => Some(nothing(format!("{mode}. {}", say::untold(why)))),
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
                    .map(|instance| printable(&say::covered(instance, state)))
                    .collect(),
                ..nothing(mode.to_owned())
            }),
        }
    }
}

impl Picture {
    /// Whether an instance is drawn.
    pub(super) fn has_instances(&self) -> bool {
        let one = |region: &Region| matches!(region.class, "is-idle" | "is-used" | "is-odd");
        self.count.is_some() && self.regions.iter().any(one)
    }
}

impl Region {
    /// The name in parts between which a narrow cell may break it: `1c.`, `3g.`, `40gb`, or `renderD`, `128`.
    pub(super) fn name_parts(&self) -> impl Iterator<Item = &str> {
        self.name.split_inclusive(['.', 'D'])
    }
}

fn whole(slices: u32, usage: Usage<'_>) -> Region {
    let class = match usage {
        Usage::Unknown => "is-odd",
        Usage::Known([]) => "is-open",
        Usage::Known(_) => "is-used",
    };
    Region {
        class,
        slices,
        name: "one whole GPU".to_owned(),
        lines: vec![say::whole(usage)],
        place: say::place(0, slices),
        instance: None,
        marks: Vec::new(),
    }
}

fn region(stretch: &Stretch<'_>, state: &MigState, usage: Usage<'_>) -> Region {
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
        place: say::place(stretch.start(), stretch.slices()),
        instance: id,
        marks: Vec::new(),
    }
}

fn class(how: &InstanceUse) -> &'static str {
    match how {
        InstanceUse::Unknown | InstanceUse::NoComputeInstance => "is-odd",
        InstanceUse::Idle => "is-idle",
        InstanceUse::InUse | InstanceUse::InUseBy(_) => "is-used",
    }
}
