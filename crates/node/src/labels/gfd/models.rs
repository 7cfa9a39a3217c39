//! `nvidia.com/gpu.*` for whole GPUs. These keys can describe one model only.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::id::GpuUuid;
use octavo_model::inventory::{Device, Mig};
use octavo_model::quantity::{ComputeCapability, Mebibytes};
use octavo_model::resource::ResourceName;

use super::Gpu;
use super::sharing::Sharing;
use crate::labels::note::LabelsBuilder;
use crate::labels::{Note, Omission};
use crate::sharing::Offers;

/// The GPUs of one model.
#[derive(Debug, Default)]
struct Model<'a> {
    whole: Vec<Gpu<'a>>,
    partitioned: Vec<Gpu<'a>>,
    /// GPUs whose MIG mode the driver does not report.
    mode_unknown: Vec<Gpu<'a>>,
}

/// Assumed mode of GPUs whose MIG mode is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssumedMode {
    Whole,
    Partitioned,
}

impl<'a> Model<'a> {
    fn all(&self) -> impl Iterator<Item = &Gpu<'a>> {
        self.whole.iter().chain(&self.partitioned).chain(&self.mode_unknown)
    }

    /// Returns an attribute of the model's representative: the last whole GPU, or else the last one. If the
    /// representative is uncertain, returns the attribute only if all GPUs agree.
    fn representative_attribute<T: PartialEq>(
        &self,
        what: impl Fn(&Device) -> Option<T>,
    ) -> Option<T> {
        let certain = self.whole.last().or_else(|| self.partitioned.last());
        let first = certain.or_else(|| self.mode_unknown.first())?;
        let value = what(first.device);
        let agreed = || self.all().all(|gpu| what(gpu.device) == value);
        (self.mode_unknown.is_empty() || agreed()).then_some(value).flatten()
    }

    fn count(&self) -> usize {
        self.all().count()
    }

    fn memory(&self) -> Option<Mebibytes> {
        self.representative_attribute(|device| device.memory)
    }

    /// Returns true if a whole GPU is available.
    fn has_whole(&self, assume: AssumedMode) -> bool {
        !self.whole.is_empty() || (assume == AssumedMode::Whole && !self.mode_unknown.is_empty())
    }
}

/// Adds the labels of the chosen model.
///
/// With several models, one with a GPU outside MIG mode wins, as in the original: `nvidia.com/gpu` offers these GPUs.
/// Ties, which the original leaves to chance, go to the largest memory, then to the larger count, then to the name that
/// sorts first.
///
/// If the MIG mode of some GPUs is unknown, a model is chosen only if it wins in either mode. Otherwise the keys are
/// omitted.
pub(super) fn add(draft: &mut LabelsBuilder, gpus: &[Gpu], offers: Option<&Offers>) {
    let mut models: BTreeMap<&str, Model> = BTreeMap::new();
    for gpu in gpus {
        let model = models.entry(gpu.model).or_default();
        match &gpu.device.mig {
            Mig::Unknown => model.mode_unknown.push(*gpu),
            mig if mig.is_enabled() => model.partitioned.push(*gpu),
            Mig::NotCapable | Mig::Capable(_) => model.whole.push(*gpu),
        }
    }
    let rank = |name: &str, model: &Model, assume| {
        let whole = model.has_whole(assume);
        (whole, model.memory(), model.count(), Reverse(name.to_owned()))
    };
    // Worst case: the model's own GPUs of unknown mode are partitioned, and those of all other models are whole.
    let winner = models.iter().find(|(name, model)| {
        let own = rank(name, model, AssumedMode::Partitioned);
        let mut others = models.iter().filter(|(other, _)| other != name);
        others.all(|(other, model)| rank(other, model, AssumedMode::Whole) < own)
    });
    let Some((name, model)) = winner else {
        draft.omit("nvidia.com/gpu.*", Omission::PartitionsUnknown);
        return;
    };
    if models.len() > 1 {
        draft.note(Note::ModelChosen {
            model: (*name).to_owned(),
            others: models
                .keys()
                .filter(|other| *other != name)
                .map(|other| (*other).to_owned())
                .collect(),
        });
    }
    add_model(draft, name, model, offers);
}

fn add_model(draft: &mut LabelsBuilder, name: &str, model: &Model, offers: Option<&Offers>) {
    // As in the original, only whole GPUs determine sharing.
    let whole = model.whole.iter().filter_map(|gpu| gpu.device.uuid.as_ref());
    let whole = whole.map(GpuUuid::as_str);
    let sharing = Sharing::from_offers(offers, &ResourceName::gpu(), whole);
    draft.put_parts("nvidia.com/gpu.product", name, sharing.suffix());
    draft.put("nvidia.com/gpu.count", &model.count());
    // Without a whole GPU, none is offered under this resource.
    let sure = model.has_whole(AssumedMode::Partitioned);
    let replicas = "nvidia.com/gpu.replicas";
    sharing.put(draft, "nvidia.com/gpu");
    if sure != model.has_whole(AssumedMode::Whole) {
        draft.omit(replicas, Omission::PartitionsUnknown);
    } else if !sure {
        draft.put(replicas, &0);
    }
    match model.memory().filter(|memory| memory.get() > 0) {
        Some(memory) => draft.put("nvidia.com/gpu.memory", &memory.get()),
        None => draft.omit("nvidia.com/gpu.memory", Omission::MemoryUnknown),
    }
    match model.representative_attribute(|device| device.compute_capability) {
        Some(capability) => {
            draft.put("nvidia.com/gpu.family", family(capability));
            draft.put("nvidia.com/gpu.compute.major", &capability.major);
            draft.put("nvidia.com/gpu.compute.minor", &capability.minor);
        }
        None => draft.omit("nvidia.com/gpu.compute.*", Omission::ComputeCapabilityUnknown),
    }
}

/// Returns the family by compute capability; `undefined` if the original's table does not list it.
fn family(capability: ComputeCapability) -> &'static str {
    match (capability.major, capability.minor) {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0..=4) => "volta",
        (7, _) => "turing",
        (8, 0..=8) => "ampere",
        (8, _) => "ada-lovelace",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        (13, _) => "rubin",
        _ => "undefined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_the_compute_capability() {
        for (major, minor, expected) in [
            (3, 7, "kepler"),
            (4, 0, "undefined"),
            (5, 2, "maxwell"),
            (6, 1, "pascal"),
            (7, 0, "volta"),
            (7, 2, "volta"),
            (7, 5, "turing"),
            (8, 0, "ampere"),
            (8, 6, "ampere"),
            (8, 7, "ampere"),
            (8, 9, "ada-lovelace"),
            (9, 0, "hopper"),
            (10, 0, "blackwell"),
            (10, 3, "blackwell"),
            (11, 0, "undefined"),
            (12, 0, "blackwell"),
            (13, 0, "rubin"),
            (14, 0, "undefined"),
        ] {
            assert_eq!(family(ComputeCapability { major, minor }), expected, "{major}.{minor}");
        }
    }
}
