//! Layout lookup by name. A node can use the layouts of the file and layouts generated for its devices, such as
//! `all-balanced`. A layout in the file hides a generated layout of the same name.

use thiserror::Error;

use super::Current;
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Dialect, Layout, Layouts, Resolved, RuleError, generate, resolve};

/// Names of the available layouts, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Layouts of the file.
    pub file: Vec<String>,
    /// Layouts generated for the node's devices and not hidden by the file.
    pub made: Vec<String>,
}

impl Names {
    /// Lists the first few names.
    fn told(&self) -> String {
        const SHOWN: usize = 8;
        let all: Vec<&str> = self
            .file
            .iter()
            .chain(&self.made)
            .map(String::as_str)
            .collect();
        let shown: Vec<&str> = all.iter().take(SHOWN).copied().collect();
        match all.len().saturating_sub(SHOWN) {
            _ if all.is_empty() => {
                "there is none at all: no file has one, and none can be made for its devices"
                    .to_owned()
            }
            0 => format!("there are {}", shown.join(", ")),
            more => format!("there are {} and {more} more", shown.join(", ")),
        }
    }
}

/// Why a layout name cannot be used on a node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// No layout has this name.
    #[error("there is no layout {name:?} for this node; {}", .known.told())]
    NoSuchLayout {
        /// The requested name.
        name: String,
        /// The available names.
        known: Names,
    },
    /// The layout file is invalid, so the layout may exist in it.
    #[error("{0}")]
    Unusable(String),
    /// The layout does not fit this node.
    #[error("layout {name:?} does not suit this node: {}", joined(.errors))]
    Rules {
        /// The layout.
        name: String,
        /// All violated rules; never empty.
        errors: Vec<RuleError>,
    },
}

impl Current {
    /// Names of the layouts available on a node with this inventory.
    pub fn names(&self, inventory: &Inventory) -> Names {
        let of = |layouts: &Layouts| -> Vec<String> {
            let layouts = layouts.layouts.iter();
            layouts.map(|layout| layout.name.clone()).collect()
        };
        let file = self.layouts.as_deref().map(of).unwrap_or_default();
        let mut made = of(&made(inventory));
        made.retain(|name| !file.contains(name));
        Names { file, made }
    }

    /// Resolves the layout `name` for a node with this inventory. Layouts are generated only if the file has none of
    /// this name, because generating them takes longer.
    pub fn meant(&self, name: &str, inventory: &Inventory) -> Result<Resolved, ChoiceError> {
        if let (None, Some(notice)) = (&self.layouts, &self.notice) {
            return Err(ChoiceError::Unusable(notice.clone()));
        }
        let file = self.layouts.as_deref();
        if let Some((file, layout)) = file.and_then(|file| Some((file, file.by_name(name)?))) {
            return resolved(layout, file.dialect, inventory);
        }
        let made = made(inventory);
        match made.by_name(name) {
            Some(layout) => resolved(layout, made.dialect, inventory),
            None => Err(ChoiceError::NoSuchLayout {
                name: name.to_owned(),
                known: self.names(inventory),
            }),
        }
    }
}

fn made(inventory: &Inventory) -> Layouts {
    generate(inventory, Dialect::Octavo)
}

fn resolved(
    layout: &Layout,
    dialect: Dialect,
    inventory: &Inventory,
) -> Result<Resolved, ChoiceError> {
    resolve(layout, dialect, inventory).map_err(|errors| ChoiceError::Rules {
        name: layout.name.clone(),
        errors,
    })
}

fn joined(errors: &[RuleError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_names_are_told_and_how_many_more_there_are() {
        let names = |count: usize| Names {
            file: vec!["serving".to_owned()],
            made: (1..count).map(|number| format!("made-{number}")).collect(),
        };
        assert_eq!(names(3).told(), "there are serving, made-1, made-2");
        let told = names(11).told();
        assert!(told.ends_with("made-6, made-7 and 3 more"), "{told}");
        let none = Names::default().told();
        assert!(none.starts_with("there is none at all"), "{none}");
    }
}
