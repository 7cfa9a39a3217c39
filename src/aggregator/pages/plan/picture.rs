//! Memory slices of a device before and after a plan.

use crate::aggregator::pages::slices::{Picture, Region, SLICES};
use crate::aggregator::pages::words::printable;
use crate::domain::inventory::{Device, MigMode, MigState};
use crate::domain::plan::words::{self, Words};
use crate::domain::plan::{Change, Fate, PlannedInstance, Verdict};
use crate::domain::slices::words::{ids, place};

/// Marks what happens to each existing instance.
pub(super) fn marked(picture: Picture, device: &Device, verdict: &Verdict) -> Picture {
    let instances = device
        .mig
        .state()
        .map(|state| state.gpu_instances.as_slice());
    let fate = |region: &Region| {
        let instance = instances?
            .iter()
            .find(|one| Some(one.id) == region.instance)?;
        Some(verdict.fate(instance))
    };
    let regions = picture.regions.into_iter().map(|region| {
        let (class, word) = match fate(&region) {
            None | Some(Fate::Stays) => return region,
            Some(Fate::Goes) => ("is-going", "goes"),
            Some(Fate::Divided) => ("is-divided", "is divided anew"),
            Some(Fate::InTheWay) => ("is-odd", "in the way"),
        };
        let lines = region.lines.into_iter().chain([word.to_owned()]);
        Region {
            lines: lines.collect(),
            class,
            ..region
        }
    });
    Picture {
        regions: regions.collect(),
        ..picture
    }
}

/// Diagram of the planned instances.
pub(super) fn then(state: &MigState, change: &Change, words: &Words<'_>) -> Picture {
    let slices = state.catalog.memory_slices();
    let mode = change.mode.as_ref().map_or(state.current, |mode| mode.to);
    let regions = match mode {
        MigMode::Disabled => vec![Region::planned(
            "is-new",
            (0, slices),
            "one whole GPU".to_owned(),
            Vec::new(),
        )],
        MigMode::Enabled => laid_out(state, change, slices, words),
    };
    Picture {
        what: SLICES,
        caption: format!("Then: MIG {}", words::on_off(mode)),
        count: (mode == MigMode::Enabled)
            .then(|| format!("room for {} more placements", change.room)),
        slices,
        regions,
        hidden: Vec::new(),
    }
}

fn laid_out(state: &MigState, change: &Change, slices: u32, words: &Words<'_>) -> Vec<Region> {
    let free = |start: u32| Region::planned("is-free", (start, 1), "free".to_owned(), Vec::new());
    let (mut regions, mut next) = (Vec::new(), 0);
    for planned in &change.after {
        let (start, end) = (planned.placement.start, planned.placement.end());
        // Impossible placements, such as overlapping instances, are not drawn.
        if start < next || end > slices {
            continue;
        }
        regions.extend((next..start).map(free));
        regions.push(after(planned, state, words));
        next = end;
    }
    regions.extend((next..slices).map(free));
    regions
}

fn after(planned: &PlannedInstance, state: &MigState, words: &Words<'_>) -> Region {
    let kept = planned
        .kept
        .and_then(|id| state.gpu_instances.iter().find(|one| one.id == id));
    let (class, line) = match kept {
        None => ("is-new", new(planned, words)),
        Some(instance) if planned.divides(instance) => ("is-divided", split_of(planned)),
        Some(instance) => ("is-idle", format!("{}, stays", ids(instance))),
    };
    let place = (planned.placement.start, planned.placement.size);
    Region::planned(
        class,
        place,
        printable(&words.profile(planned.profile_id)),
        vec![line],
    )
}

fn new(planned: &PlannedInstance, words: &Words<'_>) -> String {
    let compute: Vec<u32> = planned.compute.iter().map(|one| one.slices).collect();
    if words.is_whole(planned.profile_id, &compute) {
        "new".to_owned()
    } else {
        format!("new, {}", words::split(&compute))
    }
}

fn split_of(planned: &PlannedInstance) -> String {
    let compute: Vec<u32> = planned.compute.iter().map(|one| one.slices).collect();
    format!("stays, now {}", words::split(&compute))
}

impl Region {
    fn planned(
        class: &'static str,
        (start, slices): (u32, u32),
        name: String,
        lines: Vec<String>,
    ) -> Self {
        Self {
            class,
            slices,
            name,
            lines,
            place: place(start, slices),
            instance: None,
            marks: Vec::new(),
        }
    }
}
