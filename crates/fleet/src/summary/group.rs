//! Groups of nodes with the same device type.

use octavo_model::id::TypeName;

/// Device type of a node, for grouping. In display order: types by name, then nodes without a single type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeGroup {
    /// All devices are of this type.
    Type(TypeName),
    /// Devices of several types, counting unidentified devices as one.
    Mixed,
    /// All devices are unidentified.
    Unknown,
    /// No devices.
    NoAccelerator,
}

impl NodeGroup {
    /// Group of a node with devices of these distinct types; `None` stands for unidentified devices.
    pub fn from_types<'a>(types: impl IntoIterator<Item = Option<&'a TypeName>>) -> Self {
        let mut types = types.into_iter();
        match (types.next(), types.next()) {
            (None, _) => Self::NoAccelerator,
            (Some(_), Some(_)) => Self::Mixed,
            (Some(Some(one)), None) => Self::Type(one.clone()),
            (Some(None), None) => Self::Unknown,
        }
    }

    /// Display name.
    pub fn title(&self) -> &str {
        match self {
            Self::Type(name) => name.as_str(),
            Self::Mixed => "Mixed",
            Self::Unknown => "type unknown",
            Self::NoAccelerator => "no accelerator",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_grouped_by_its_single_type_and_other_groups_come_last() {
        let [a100, v100]: [TypeName; 2] =
            ["nvidia-a100-80gb", "nvidia-v100-16gb"].map(|name| name.parse().unwrap());
        let mut groups = [
            NodeGroup::from_types([]),
            NodeGroup::from_types([None]),
            NodeGroup::from_types([Some(&a100), Some(&v100)]),
            NodeGroup::from_types([Some(&v100), None]),
            NodeGroup::from_types([Some(&v100)]),
            NodeGroup::from_types([Some(&a100)]),
        ];
        groups.sort();
        assert_eq!(
            groups.each_ref().map(NodeGroup::title),
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
