//! Layout lookup by name. A node can use the layouts of the file and layouts generated for its devices, such as
//! `all-balanced`. A layout in the file hides a generated layout of the same name. Layouts of exact instances are in neither.

use octavo_model::inventory::Inventory;
use octavo_model::text::first_names;
use octavo_node::node_object::is_demand_layout;
use octavo_planner::layout::{Dialect, Layouts, ResolvedLayout, RuleError, generate, resolve};
use thiserror::Error;

use super::LayoutFileSnapshot;

/// Names of the available layouts, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AvailableLayouts {
    /// Layouts of the file.
    pub file: Vec<String>,
    /// Layouts generated for the node's devices and not hidden by the file.
    pub made: Vec<String>,
}

impl AvailableLayouts {
    /// Lists the first few names.
    fn summary(&self) -> String {
        const SHOWN: usize = 8;
        let all: Vec<&str> = self.file.iter().chain(&self.made).map(String::as_str).collect();
        if all.is_empty() {
            return "there are no layouts: no file contains one, and none can be generated for its devices"
                .to_owned();
        }
        format!("available layouts: {}", first_names(&all, SHOWN))
    }
}

/// Why a layout name cannot be used on a node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutLookupError {
    /// No layout has this name.
    #[error("this node has no layout {name:?}; {}", .known.summary())]
    NoSuchLayout {
        /// The requested name.
        name: String,
        /// The available names.
        known: AvailableLayouts,
    },
    /// The name is reserved for layouts of exact instances, which no file contains.
    #[error(
        "the prefix of the layout name {0:?} is reserved: the annotation octavo.dev/instances of a Node lists the exact \
         instances of this layout, and only the agent of that node plans it"
    )]
    ExactInstances(String),
    /// The layout file is invalid, so the layout may exist in it.
    #[error("{0}")]
    Unusable(String),
    /// The layout does not fit this node.
    #[error("layout {name:?} does not fit this node: {}", join_errors(.errors))]
    DoesNotFit {
        /// The layout.
        name: String,
        /// All violated rules; never empty.
        errors: Vec<RuleError>,
    },
}

impl LayoutFileSnapshot {
    /// Names of the layouts available on a node with this inventory.
    pub fn names(&self, inventory: &Inventory) -> AvailableLayouts {
        self.names_with(&generate_layouts(inventory))
    }

    /// Names of the layouts of the file and of those `generated` for a node.
    fn names_with(&self, generated: &Layouts) -> AvailableLayouts {
        let of = |layouts: &Layouts| -> Vec<String> {
            let names = layouts.layouts.iter().map(|layout| layout.name.clone());
            names.filter(|name| !is_demand_layout(name)).collect()
        };
        let file = self.layouts.as_deref().map(of).unwrap_or_default();
        let mut made = of(generated);
        made.retain(|name| !file.contains(name));
        AvailableLayouts { file, made }
    }

    /// Resolves the layout `name` for a node with this inventory. Layouts are generated only if the file has none of
    /// this name, because generating them takes longer.
    pub fn resolve(
        &self,
        name: &str,
        inventory: &Inventory,
    ) -> Result<ResolvedLayout, LayoutLookupError> {
        if is_demand_layout(name) {
            return Err(LayoutLookupError::ExactInstances(name.to_owned()));
        }
        if let (None, Some(notice)) = (&self.layouts, &self.notice) {
            return Err(LayoutLookupError::Unusable(notice.clone()));
        }
        let file = self.layouts.as_deref().filter(|file| file.by_name(name).is_some());
        let generated = if file.is_none() { Some(generate_layouts(inventory)) } else { None };
        let layouts = file.or(generated.as_ref());
        let found = layouts.and_then(|layouts| Some((layouts.by_name(name)?, layouts.dialect)));
        let Some((layout, dialect)) = found else {
            let known = generated
                .as_ref()
                .map_or_else(|| self.names(inventory), |made| self.names_with(made));
            return Err(LayoutLookupError::NoSuchLayout { name: name.to_owned(), known });
        };
        resolve(layout, dialect, inventory)
            .map_err(|errors| LayoutLookupError::DoesNotFit { name: name.to_owned(), errors })
    }
}

fn generate_layouts(inventory: &Inventory) -> Layouts {
    generate(inventory, Dialect::Octavo)
}

fn join_errors(errors: &[RuleError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_first_names_and_counts_the_rest() {
        let names = |count: usize| AvailableLayouts {
            file: vec!["serving".to_owned()],
            made: (1..count).map(|number| format!("made-{number}")).collect(),
        };
        assert_eq!(names(3).summary(), "available layouts: serving, made-1, made-2");
        let summary = names(11).summary();
        assert!(summary.ends_with("made-6, made-7 and 3 more"), "{summary}");
        let none = AvailableLayouts::default().summary();
        assert!(none.starts_with("there are no layouts"), "{none}");
    }

    #[test]
    fn layout_of_the_file_with_the_reserved_prefix_is_never_used() {
        let name = "demand-0123456789";
        let text = format!(
            "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  {name}: [{{devices: rest, mig: disabled}}]\n  \
             serving: [{{devices: rest, mig: disabled}}]\n"
        );
        let layouts = LayoutFileSnapshot::parse(&text).unwrap();
        let inventory = Inventory::default();
        let without_devices = layouts.resolve("serving", &inventory);
        assert!(matches!(without_devices, Err(LayoutLookupError::DoesNotFit { .. })));
        let error = layouts.resolve(name, &inventory).unwrap_err();
        assert_eq!(error, LayoutLookupError::ExactInstances(name.to_owned()));
        assert_eq!(layouts.names(&inventory).file, ["serving"]);
    }
}
