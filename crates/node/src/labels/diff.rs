//! Differences between two label sets, restricted to labels that Octavo writes.
//!
//! A Node carries labels of many writers, such as the kubelet, the GPU operator and administrators. Only the families
//! that the compiler writes are compared. The inputs are plain strings instead of [`super::LabelSet`]s because one side
//! may come from a manually edited file.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::accelerators::TYPE_OVERRIDE;

use crate::labels::KeyPolicy;
use crate::node_object::LAYOUT_LABEL;

/// A label that exists on one side only, or that has another value on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelChange<'a> {
    /// Label key.
    pub key: &'a str,
    /// The side that has this label.
    pub side: DiffSide,
    /// Label value on that side.
    pub value: &'a str,
}

/// The side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiffSide {
    /// The old set: the label would be removed.
    Before,
    /// The new set: the label would be added.
    After,
}

impl fmt::Display for LabelChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.side {
            DiffSide::Before => '-',
            DiffSide::After => '+',
        };
        write!(f, "{sign}{}={}", self.key, self.value)
    }
}

/// Returns the changes from `before` to `after`, sorted by key, the old value of a label before its new one. NVIDIA's
/// labels are compared only if `nvidia` is [`KeyPolicy::Publish`].
pub fn diff<'a>(
    before: &BTreeMap<&'a str, &'a str>,
    after: &BTreeMap<&'a str, &'a str>,
    nvidia: KeyPolicy,
) -> Vec<LabelChange<'a>> {
    let mut changes = one_sided(before, after, DiffSide::Before);
    changes.extend(one_sided(after, before, DiffSide::After));
    changes.retain(|change| is_compared(change.key, nvidia));
    changes.sort();
    changes
}

fn one_sided<'a>(
    these: &BTreeMap<&'a str, &'a str>,
    others: &BTreeMap<&'a str, &'a str>,
    side: DiffSide,
) -> Vec<LabelChange<'a>> {
    these
        .iter()
        .filter(|(key, value)| others.get(*key) != Some(value))
        .map(|(key, value)| LabelChange { key, side, value })
        .collect()
}

/// Prefixes of the `nvidia.com` names that gpu-feature-discovery writes.
const NVIDIA_PREFIXES: [&str; 6] = ["cuda.", "gpu.", "mig-", "mig.", "mps.", "vgpu."];
/// Prefixes among [`NVIDIA_PREFIXES`] that the GPU operator and the MIG manager write.
const FOREIGN_NVIDIA_PREFIXES: [&str; 3] = ["gpu.deploy.", "gpu.present", "mig.config"];

/// Octavo's keys that users write and the compiler never does.
const USER_KEYS: [&str; 2] = [LAYOUT_LABEL, TYPE_OVERRIDE];

fn is_compared(key: &str, nvidia: KeyPolicy) -> bool {
    let Some((domain, name)) = key.split_once('/') else {
        return false;
    };
    let starts = |prefix: &&str| name.starts_with(*prefix);
    match domain {
        // `gfd.timestamp` is excluded: the start time of gpu-feature-discovery is unrelated to the hardware.
        "nvidia.com" => {
            nvidia == KeyPolicy::Publish
                && NVIDIA_PREFIXES.iter().any(starts)
                && !FOREIGN_NVIDIA_PREFIXES.iter().any(starts)
        }
        _ if USER_KEYS.contains(&key) => false,
        _ => domain == "octavo.dev" || domain.ends_with(".octavo.dev"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(
        before: &[(&'static str, &'static str)],
        after: &[(&'static str, &'static str)],
    ) -> Vec<String> {
        let before = before.iter().copied().collect();
        let after = after.iter().copied().collect();
        diff(&before, &after, KeyPolicy::Publish).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changed_value_yields_its_old_then_its_new_line() {
        assert_eq!(
            lines(
                &[("octavo.dev/count", "8"), ("octavo.dev/type", "a")],
                &[
                    ("nvidia.com/gpu.count", "7"),
                    ("octavo.dev/count", "7"),
                    ("octavo.dev/type", "a")
                ],
            ),
            ["+nvidia.com/gpu.count=7", "-octavo.dev/count=8", "+octavo.dev/count=7"]
        );
    }

    #[test]
    fn user_written_labels_are_ignored() {
        let of_people = [("octavo.dev/layout", "a"), ("octavo.dev/type-override", "b")];
        assert_eq!(lines(&of_people, &[]), [""; 0]);
    }

    #[test]
    fn nvidia_labels_are_ignored_when_withheld() {
        let before = BTreeMap::from([("nvidia.com/gpu.count", "8"), ("octavo.dev/count", "8")]);
        let changes = diff(&before, &BTreeMap::new(), KeyPolicy::Withhold);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["-octavo.dev/count=8"]);
    }

    #[test]
    fn labels_of_other_writers_and_the_timestamp_are_ignored() {
        for key in [
            "kubernetes.io/hostname",
            "mine",
            "nvidia.com/gpu.present",
            "nvidia.com/gpu.deploy.driver",
            "nvidia.com/mig.config.state",
            "nvidia.com/gfd.timestamp",
            "notoctavo.dev/x",
        ] {
            assert_eq!(lines(&[(key, "x")], &[]), Vec::<String>::new(), "{key}");
        }
        assert_eq!(
            lines(
                &[("type.octavo.dev/nvidia-a30", "1"), ("nvidia.com/mig-1g.5gb.count", "7")],
                &[]
            )
            .len(),
            2
        );
    }
}
