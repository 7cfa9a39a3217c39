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
            HardwareRule::TooMany {
                profile_id,
                asked,
                most,
            } => format!(
                "{asked}x {} is asked for, and there can be {most} at most",
                self.profile(*profile_id)
            ),
            HardwareRule::GpuSlices { asked, most } => {
                format!("the instances have {asked} GPU slices together, and the GPU has {most}")
            }
            HardwareRule::MemorySlices { asked, most } => {
                format!("the instances have {asked} memory slices together, and the GPU has {most}")
            }
            HardwareRule::Exclusive { profile_id, other } if profile_id == other => format!(
                "{} needs engines of which there is one set: there can be only one",
                self.profile(*profile_id)
            ),
            HardwareRule::Exclusive { profile_id, other } => format!(
                "{} and {} need the same engines, of which there is one set",
                self.profile(*profile_id),
                self.profile(*other)
            ),
            HardwareRule::NoArrangement => "there are slices enough, but the places where these \
                 profiles may lie cannot be arranged side by side"
                .to_owned(),
            HardwareRule::ComputeSplit {
                profile_id,
                compute,
            } => format!(
                "{} cannot be split {}",
                self.profile(*profile_id),
                super::split(compute)
            ),
        }
    }

    /// Describes the violated rule and the alternatives.
    pub fn infeasible(&self, infeasible: &Infeasible) -> String {
        let rule = self.rule(&infeasible.rule);
        match self.alternatives(infeasible).as_slice() {
            [] => rule,
            some => format!("{rule}; what would fit: {}", some.join(", or ")),
        }
    }

    /// Returns the alternatives, closest first: `1x 3g.40gb, 2x 2g.20gb`.
    pub fn alternatives(&self, infeasible: &Infeasible) -> Vec<String> {
        let offers = infeasible.alternatives.iter();
        offers.map(|offer| self.list(&offer.instances)).collect()
    }
}
