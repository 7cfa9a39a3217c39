//! What a layout would change on a node, as a part of its page: a form, and below it the plan.
//!
//! The layout that is asked for stands in the page's address, so it can be sent to somebody, and the plan follows the node
//! as the rest of the page does.

use super::slices::{Picture, Region};
use super::words::{Badge, printable};
use crate::aggregator::dry_run::{DryRun, Names};
use crate::aggregator::layouts::Current;
use crate::domain::inventory::{Device, Inventory, MigMode, MigState};
use crate::domain::layout::{DeviceTarget, MigTarget};
use crate::domain::plan::words::{self, Words};
use crate::domain::plan::{
    Blocked, Cause, Change, DevicePlan, Fate, Infeasible, Outcome, PlannedInstance, Policy, Verdict,
};
use crate::domain::slices::words::{ids, place};

/// The form and, where a layout is asked for, the answer.
#[derive(Debug, Default)]
pub(super) struct WhatIf {
    pub(super) file: Vec<Choice>,
    pub(super) made: Vec<Choice>,
    /// Why the file's layouts may not be what the file says.
    pub(super) notice: Option<String>,
    pub(super) answer: Option<Answer>,
}

/// A layout that can be asked for.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) chosen: bool,
}

/// What a layout would do.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) layout: String,
    pub(super) badge: Badge,
    /// What it amounts to, or why there is no plan.
    pub(super) summary: String,
    pub(super) warnings: Vec<String>,
    pub(super) groups: Vec<Group>,
    /// Devices that the layout does not speak of.
    pub(super) untouched: Option<String>,
}

/// Devices to which the same happens.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) devices: Vec<String>,
    pub(super) story: Story,
}

/// What happens to a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Story {
    pub(super) kind: String,
    pub(super) badge: Badge,
    pub(super) summary: String,
    pub(super) now: Option<Picture>,
    pub(super) then: Option<Picture>,
    pub(super) steps: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) obstacles: Vec<Obstacle>,
}

/// Something in the way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) holders: Vec<String>,
    pub(super) advice: Vec<String>,
}

impl WhatIf {
    /// For a node that has this, and the layout `asked` for, if any.
    pub(super) fn of(current: &Current, inventory: &Inventory, asked: Option<&str>) -> Self {
        let Names { file, made } = current.names(inventory);
        let choices = |names: Vec<String>| -> Vec<Choice> {
            let choice = |name: String| Choice {
                chosen: asked == Some(name.as_str()),
                name,
            };
            names.into_iter().map(choice).collect()
        };
        Self {
            file: choices(file),
            made: choices(made),
            notice: current.notice.as_deref().map(printable),
            answer: asked.map(|asked| Answer::of(current, inventory, asked)),
        }
    }

    /// Whether there is anything to ask for.
    pub(super) fn is_possible(&self) -> bool {
        !self.file.is_empty() || !self.made.is_empty()
    }
}

impl Answer {
    fn of(current: &Current, inventory: &Inventory, asked: &str) -> Self {
        match current.dry_run(asked, inventory, &Policy::default()) {
            Ok(run) => Self::planned(inventory, asked, &run),
            Err(error) => Self {
                layout: printable(asked),
                badge: outcome(Outcome::Infeasible, "no plan"),
                summary: printable(&error.to_string()),
                warnings: Vec::new(),
                groups: Vec::new(),
                untouched: None,
            },
        }
    }

    fn planned(inventory: &Inventory, asked: &str, run: &DryRun) -> Self {
        let found = run.plan.outcome();
        let untouched: Vec<String> = inventory
            .devices
            .iter()
            .filter(|device| {
                run.targets
                    .devices
                    .iter()
                    .all(|target| target.pci != device.pci)
            })
            .map(|device| title(inventory, device))
            .collect();
        Self {
            layout: printable(asked),
            badge: outcome(found, said(found)),
            summary: match found {
                Outcome::Nothing => "The node has what this layout asks for.".to_owned(),
                Outcome::Changes => format!("{}.", capital(&words::tally(&run.plan.tally()))),
                Outcome::Blocked => "Somebody is in the way of at least one device.".to_owned(),
                Outcome::Infeasible => {
                    "At least one device can never have it, so nothing of it would be done."
                        .to_owned()
                }
            },
            warnings: run.warnings.iter().map(|text| printable(text)).collect(),
            groups: groups(inventory, run),
            untouched: (!untouched.is_empty()).then(|| untouched.join(", ")),
        }
    }
}

fn groups(inventory: &Inventory, run: &DryRun) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for plan in &run.plan.devices {
        let mut devices = inventory.devices.iter();
        let Some(device) = devices.find(|device| device.pci == plan.pci) else {
            continue;
        };
        let target = run
            .targets
            .devices
            .iter()
            .find(|target| target.pci == plan.pci);
        let story = Story::of(inventory, device, plan, target);
        let name = title(inventory, device);
        match groups.iter_mut().find(|group| group.story == story) {
            Some(group) => group.devices.push(name),
            None => groups.push(Group {
                devices: vec![name],
                story,
            }),
        }
    }
    groups
}

fn title(inventory: &Inventory, device: &Device) -> String {
    Words::new(inventory, device.pci).device(device.pci)
}

impl Story {
    fn of(
        inventory: &Inventory,
        device: &Device,
        plan: &DevicePlan,
        target: Option<&DeviceTarget>,
    ) -> Self {
        let words = Words::new(inventory, plan.pci);
        let verdict = &plan.verdict;
        let found = verdict.outcome();
        let mut story = Self {
            kind: device.identity.to_string(),
            badge: outcome(found, said(found)),
            summary: asked_for(target, &words),
            now: Picture::of(device).map(|picture| marked(picture, device, verdict)),
            then: None,
            steps: Vec::new(),
            notes: Vec::new(),
            obstacles: Vec::new(),
        };
        match verdict {
            Verdict::Unchanged => {}
            Verdict::Change(change) => story.changes(device, change, &words),
            Verdict::Blocked(blocked) => story.obstacles = obstacles(blocked, &words),
            Verdict::Infeasible(why) => story.obstacles = vec![impossible(why, &words)],
        }
        if let Some(sharing) = target.and_then(|target| target.time_slicing.as_ref()) {
            story.notes.push(format!(
                "Time-slicing with {} replicas is asked for. A plan is about partitions and leaves sharing as it is.",
                sharing.replicas
            ));
        }
        story
    }

    fn changes(&mut self, device: &Device, change: &Change, words: &Words<'_>) {
        let steps = change.steps.iter();
        self.steps = steps
            .map(|step| printable(&words.step(step, &change.after)))
            .collect();
        self.notes.push(match &change.mode {
            Some(mode) => format!("{}.", capital(&words.mode(mode))),
            None => "Nobody is disturbed.".to_owned(),
        });
        self.then = device.mig.state().map(|state| then(state, change, words));
    }
}

/// What is asked of a device, in a few words.
fn asked_for(target: Option<&DeviceTarget>, words: &Words<'_>) -> String {
    match target.and_then(|target| target.mig.as_ref()) {
        None => "its partitions are left as they are".to_owned(),
        Some(MigTarget::Disabled) => "MIG mode off".to_owned(),
        Some(MigTarget::Enabled(instances)) => printable(&words.list(instances)),
    }
}

fn obstacles(blocked: &Blocked, words: &Words<'_>) -> Vec<Obstacle> {
    let obstacle = |cause: &Cause| {
        let holders = match cause {
            Cause::InstanceInUse { holders, .. } | Cause::DeviceInUse { holders } => {
                holders.as_slice()
            }
            Cause::NotAllowed { .. } | Cause::Untold { .. } | Cause::Refused => &[],
        };
        let holders = holders
            .iter()
            .map(|holder| printable(&words::holder(&holder.who)));
        Obstacle {
            what: printable(&capital(&words.cause(cause))),
            holders: holders.collect(),
            advice: vec![capital(&words::unblock(cause))],
        }
    };
    blocked.causes.iter().map(obstacle).collect()
}

fn impossible(why: &Infeasible, words: &Words<'_>) -> Obstacle {
    let nearest = words.nearest(why).into_iter();
    Obstacle {
        what: printable(&capital(&words.rule(&why.rule))),
        holders: Vec::new(),
        advice: nearest
            .map(|offer| printable(&format!("Would fit: {offer}")))
            .collect(),
    }
}

/// The picture of what is there, with what becomes of each instance.
fn marked(picture: Picture, device: &Device, verdict: &Verdict) -> Picture {
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

/// The picture of what would be there.
fn then(state: &MigState, change: &Change, words: &Words<'_>) -> Picture {
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
        // What cannot be, such as two instances in one slice, is not drawn.
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
        }
    }
}

fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Nothing => "nothing to do",
        Outcome::Changes => "would change",
        Outcome::Blocked => "blocked",
        Outcome::Infeasible => "impossible",
    }
}

fn outcome(outcome: Outcome, word: &'static str) -> Badge {
    let (tone, icon) = match outcome {
        Outcome::Nothing => ("good", "ok"),
        Outcome::Changes => ("soft", "note"),
        Outcome::Blocked => ("warn", "warn"),
        Outcome::Infeasible => ("bad", "bad"),
    };
    Badge { tone, icon, word }
}

/// A sentence begins with a capital.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
