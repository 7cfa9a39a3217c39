//! Groups of nodes with the same device type.

use crate::domain::id::TypeName;

/// Device type of a node, for grouping. In display order: types by name, then nodes without a single type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// All devices are of this type.
    Of(TypeName),
    /// Devices of several types, counting unidentified devices as one.
    Mixed,
    /// All devices are unidentified.
    Unknown,
    /// No devices.
    Nothing,
}

impl Group {
    /// Group of a node with devices of these distinct types; `None` stands for unidentified devices.
    pub fn of<'a>(types: impl IntoIterator<Item = Option<&'a TypeName>>) -> Self {
        let mut types = types.into_iter();
        match (types.next(), types.next()) {
            (None, _) => Self::Nothing,
            (Some(_), Some(_)) => Self::Mixed,
            (Some(Some(one)), None) => Self::Of(one.clone()),
            (Some(None), None) => Self::Unknown,
        }
    }

    /// Display name.
    pub fn title(&self) -> &str {
        match self {
            Self::Of(name) => name.as_str(),
            Self::Mixed => "Mixed",
            Self::Unknown => "type unknown",
            Self::Nothing => "no accelerator",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_of_the_one_type_it_has_and_what_is_no_one_type_comes_last() {
        let [a100, v100]: [TypeName; 2] =
            ["nvidia-a100-80gb", "nvidia-v100-16gb"].map(|name| name.parse().unwrap());
        let mut groups = [
            Group::of([]),
            Group::of([None]),
            Group::of([Some(&a100), Some(&v100)]),
            Group::of([Some(&v100), None]),
            Group::of([Some(&v100)]),
            Group::of([Some(&a100)]),
        ];
        groups.sort();
        assert_eq!(
            groups.each_ref().map(Group::title),
            [
                "nvidia-a100-80gb",
                "nvidia-v100-16gb",
                "Mixed",
                "Mixed",
                "type unknown",
                "no accelerator"
            ]
        );
    }
}
