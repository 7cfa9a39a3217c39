//! Texts for targets that a device can never support.

use super::PlanFormatter;
use crate::plan::{HardwareRule, Infeasible};

impl PlanFormatter<'_> {
    /// Describes a violated hardware rule.
    pub fn rule(&self, rule: &HardwareRule) -> String {
        match rule {
            HardwareRule::NotMigCapable => "this GPU cannot be partitioned".to_owned(),
            HardwareRule::NoSuchProfile { profile_id } => {
                format!("this GPU does not offer {}", self.profile(*profile_id))
            }
            HardwareRule::TooMany { profile_id, requested, most } => format!(
                "{requested}x {} is requested, but at most {most} fit",
                self.profile(*profile_id)
            ),
            HardwareRule::GpuSlices { requested, most } => {
                format!(
                    "the instances need {requested} GPU slices in total, but the GPU has {most}"
                )
            }
            HardwareRule::MemorySlices { requested, most } => {
                format!(
                    "the instances need {requested} memory slices in total, but the GPU has {most}"
                )
            }
            HardwareRule::Exclusive { profile_id, other } if profile_id == other => format!(
                "{} needs engines that the GPU has only once: only one such instance is possible",
                self.profile(*profile_id)
            ),
            HardwareRule::Exclusive { profile_id, other } => format!(
                "{} and {} need the same engines, which the GPU has only once",
                self.profile(*profile_id),
                self.profile(*other)
            ),
            HardwareRule::NoArrangement => {
                "there are enough slices, but the possible placements of these profiles \
             overlap"
                    .to_owned()
            }
            HardwareRule::ComputeSplit { profile_id, compute } => {
                format!("{} cannot be split {}", self.profile(*profile_id), super::split(compute))
            }
        }
    }

    /// Describes the violated rule and the alternatives.
    pub fn infeasible(&self, infeasible: &Infeasible) -> String {
        let rule = self.rule(&infeasible.rule);
        match self.alternatives(infeasible).as_slice() {
            [] => rule,
            some => format!("{rule}; would fit: {}", some.join(", or ")),
        }
    }

    /// Returns the alternatives, closest first: `1x 3g.40gb, 2x 2g.20gb`.
    pub fn alternatives(&self, infeasible: &Infeasible) -> Vec<String> {
        infeasible.alternatives.iter().map(|instances| self.list(instances)).collect()
    }
}
