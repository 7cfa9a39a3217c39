//! Differences between two label sets, restricted to labels that Octavo writes.
//!
//! A Node carries labels of many writers, such as the kubelet, the GPU operator and administrators. Only the families
//! that the compiler writes are compared. The inputs are plain strings instead of [`super::LabelSet`]s because one side
//! may come from a manually edited file.

use std::collections::BTreeMap;
use std::fmt;

use crate::domain::accelerators::TYPE_OVERRIDE;
use crate::domain::labels::Publication;
use crate::domain::node::LAYOUT;

/// A label that exists on one side only, or that has another value on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change<'a> {
    /// Label key.
    pub key: &'a str,
    /// The side that has this label.
    pub side: Side,
    /// Label value on that side.
    pub value: &'a str,
}

/// The side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The old set: the label would be removed.
    Before,
    /// The new set: the label would be added.
    After,
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.side {
            Side::Before => '-',
            Side::After => '+',
        };
        write!(f, "{sign}{}={}", self.key, self.value)
    }
}

/// Returns the changes from `before` to `after`, sorted by key, the old value of a label before its new one. NVIDIA's
/// labels are compared only if `nvidia` is [`Publication::Publish`].
pub fn diff<'a>(
    before: &BTreeMap<&'a str, &'a str>,
    after: &BTreeMap<&'a str, &'a str>,
    nvidia: Publication,
) -> Vec<Change<'a>> {
    let mut changes = one_sided(before, after, Side::Before);
    changes.extend(one_sided(after, before, Side::After));
    changes.retain(|change| is_compared(change.key, nvidia));
    changes.sort();
    changes
}

fn one_sided<'a>(
    these: &BTreeMap<&'a str, &'a str>,
    others: &BTreeMap<&'a str, &'a str>,
    side: Side,
) -> Vec<Change<'a>> {
    these
        .iter()
        .filter(|(key, value)| others.get(*key) != Some(value))
        .map(|(key, value)| Change { key, side, value })
        .collect()
}

/// Prefixes of the `nvidia.com` names that gpu-feature-discovery writes.
const NVIDIA_FAMILIES: [&str; 6] = ["cuda.", "gpu.", "mig-", "mig.", "mps.", "vgpu."];
/// Prefixes among [`NVIDIA_FAMILIES`] that the GPU operator and the MIG manager write.
const NVIDIA_OF_OTHERS: [&str; 3] = ["gpu.deploy.", "gpu.present", "mig.config"];

/// Octavo's keys that users write and the compiler never does.
const OF_PEOPLE: [&str; 2] = [LAYOUT, TYPE_OVERRIDE];

fn is_compared(key: &str, nvidia: Publication) -> bool {
    let Some((domain, name)) = key.split_once('/') else {
        return false;
    };
    let starts = |prefix: &&str| name.starts_with(*prefix);
    match domain {
        // `gfd.timestamp` is excluded: the start time of gpu-feature-discovery is unrelated to the hardware.
        "nvidia.com" => {
            nvidia == Publication::Publish
                && NVIDIA_FAMILIES.iter().any(starts)
                && !NVIDIA_OF_OTHERS.iter().any(starts)
        }
        _ if OF_PEOPLE.contains(&key) => false,
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
        diff(&before, &after, Publication::Publish)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_changed_value_is_its_old_line_and_then_its_new_one() {
        assert_eq!(
            lines(
                &[("octavo.dev/count", "8"), ("octavo.dev/type", "a")],
                &[
                    ("nvidia.com/gpu.count", "7"),
                    ("octavo.dev/count", "7"),
                    ("octavo.dev/type", "a")
                ],
            ),
            [
                "+nvidia.com/gpu.count=7",
                "-octavo.dev/count=8",
                "+octavo.dev/count=7"
            ]
        );
    }

    #[test]
    fn what_people_write_is_no_difference() {
        let of_people = [
            ("octavo.dev/layout", "a"),
            ("octavo.dev/type-override", "b"),
        ];
        assert_eq!(lines(&of_people, &[]), [""; 0]);
    }

    #[test]
    fn nvidias_labels_are_left_alone_when_they_are_another_writers() {
        let before = BTreeMap::from([("nvidia.com/gpu.count", "8"), ("octavo.dev/count", "8")]);
        let changes = diff(&before, &BTreeMap::new(), Publication::Withhold);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["-octavo.dev/count=8"]);
    }

    #[test]
    fn labels_of_other_owners_and_the_time_are_not_compared() {
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
                &[
                    ("type.octavo.dev/nvidia-a30", "1"),
                    ("nvidia.com/mig-1g.5gb.count", "7")
                ],
                &[]
            )
            .len(),
            2
        );
    }
}
