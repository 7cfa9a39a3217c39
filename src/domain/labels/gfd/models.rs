//! `nvidia.com/gpu.*` for whole GPUs. The keys have room for one model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Gpu;
use crate::domain::labels::draft::Draft;
use crate::domain::labels::{Note, Omission};
use crate::domain::quantity::{ComputeCapability, Mebibytes};

/// The GPUs of one model.
#[derive(Debug, Default)]
struct Model<'a> {
    whole: Vec<Gpu<'a>>,
    partitioned: Vec<Gpu<'a>>,
}

impl<'a> Model<'a> {
    /// The GPU that speaks for the model: the last whole one, or the last at all.
    fn speaker(&self) -> Option<Gpu<'a>> {
        self.whole
            .last()
            .or_else(|| self.partitioned.last())
            .copied()
    }

    fn count(&self) -> usize {
        self.whole.len() + self.partitioned.len()
    }

    fn memory(&self) -> Option<Mebibytes> {
        self.speaker()?.device.memory
    }
}

/// Adds the labels of the model that wins.
///
/// With several models, one that has a GPU outside MIG mode wins over one that has not, as in the original: these are the
/// GPUs that `nvidia.com/gpu` offers. Beyond that the original leaves it to chance, and here the largest memory wins, then
/// the larger number, then the name that sorts first.
pub(super) fn add(draft: &mut Draft, gpus: &[Gpu]) {
    let mut models: BTreeMap<&str, Model> = BTreeMap::new();
    for gpu in gpus {
        let model = models.entry(gpu.model).or_default();
        if gpu.device.mig.is_enabled() {
            model.partitioned.push(*gpu);
        } else {
            model.whole.push(*gpu);
        }
    }
    let winner = models.iter().max_by_key(|(name, model)| {
        (
            !model.whole.is_empty(),
            model.memory(),
            model.count(),
            Reverse(*name),
        )
    });
    let Some((name, model)) = winner else { return };
    if models.len() > 1 {
        draft.note(Note::Chosen {
            model: (*name).to_owned(),
            others: models
                .keys()
                .filter(|other| *other != name)
                .map(|other| (*other).to_owned())
                .collect(),
        });
    }
    add_model(draft, name, model);
}

fn add_model(draft: &mut Draft, name: &str, model: &Model) {
    draft.put("nvidia.com/gpu.product", name);
    draft.put("nvidia.com/gpu.count", &model.count());
    // No GPU to be had whole: none is offered as such.
    draft.put(
        "nvidia.com/gpu.replicas",
        &u8::from(!model.whole.is_empty()),
    );
    draft.put("nvidia.com/gpu.sharing-strategy", "none");
    match model.memory().filter(|memory| memory.get() > 0) {
        Some(memory) => draft.put("nvidia.com/gpu.memory", &memory.get()),
        None => draft.omit("nvidia.com/gpu.memory", Omission::MemoryUnknown),
    }
    let capability = model
        .speaker()
        .and_then(|gpu| gpu.device.compute_capability);
    match capability {
        Some(capability) => {
            draft.put("nvidia.com/gpu.family", family(capability));
            draft.put("nvidia.com/gpu.compute.major", &capability.major);
            draft.put("nvidia.com/gpu.compute.minor", &capability.minor);
        }
        None => draft.omit(
            "nvidia.com/gpu.compute.*",
            Omission::ComputeCapabilityUnknown,
        ),
    }
}

/// The family by compute capability. What is not in the original's table is `undefined`, as there.
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
            assert_eq!(
                family(ComputeCapability { major, minor }),
                expected,
                "{major}.{minor}"
            );
        }
    }
}
