//! Nodes taken together by what is in them.

use crate::domain::id::TypeName;

/// What all devices of a node are. Ordered as lists show it: types by name, then what is no one type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Of this type, all of them.
    Of(TypeName),
    /// Of several types; those that nobody knows are one of them.
    Mixed,
    /// Nobody knows.
    Unknown,
    /// There is none.
    Nothing,
}

impl Group {
    /// Of a node with devices of these types, each named once; `None` is a type that nobody knows.
    pub fn of<'a>(types: impl IntoIterator<Item = Option<&'a TypeName>>) -> Self {
        let mut types = types.into_iter();
        match (types.next(), types.next()) {
            (None, _) => Self::Nothing,
            (Some(_), Some(_)) => Self::Mixed,
            (Some(Some(one)), None) => Self::Of(one.clone()),
            (Some(None), None) => Self::Unknown,
        }
    }

    /// For a person.
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
