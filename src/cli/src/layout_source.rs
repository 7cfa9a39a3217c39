//! A parsed layouts file, or the layouts that were generated for a node.

use octavo_files::layouts::{LayoutWarning, parse};
use octavo_model::inventory::Inventory;
use octavo_model::similar_names;
use octavo_planner::layout::{Dialect, Layout, Layouts, generate};

use super::diagnostics::{Severity, SourceText};
use super::{CliError, input};
use crate::settings::Input;

/// Layouts and their source.
#[derive(Debug)]
pub(super) struct LayoutSource {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) layouts: Layouts,
    warnings: Vec<LayoutWarning>,
}

/// Formatted errors of a file.
#[derive(Debug)]
pub(super) struct LayoutFileErrors {
    pub(super) text: String,
    pub(super) count: usize,
}

impl LayoutSource {
    /// Reads and parses the file. An invalid file is rejected with its errors.
    pub(super) fn read(input: &Input) -> Result<Self, CliError> {
        Self::parse(input)?.map_err(|errors| CliError::rejected(errors.text))
    }

    /// Reads and parses the file; returns the errors of an invalid one.
    pub(super) fn parse(input: &Input) -> Result<Result<Self, LayoutFileErrors>, CliError> {
        let text = input::text(input, "layouts")?;
        let name = input::place(input);
        Ok(match parse(&text) {
            Ok(parsed) => {
                Ok(Self { name, text, layouts: parsed.layouts, warnings: parsed.warnings })
            }
            Err(errors) => {
                let source = SourceText { name: &name, text: &text };
                let text =
                    source.errors(errors.iter().map(|error| (error.position(), error.to_string())));
                Err(LayoutFileErrors { text, count: errors.len() })
            }
        })
    }

    /// Generates the layouts that are possible on all GPUs of a node.
    pub(super) fn generated(inventory: &Inventory) -> Self {
        Self {
            name: match inventory.nvml.error() {
                Some(error) if inventory.is_nvml_relevant() => {
                    format!("the layouts generated for this node ({error})")
                }
                Some(_) | None => "the layouts generated for this node".to_owned(),
            },
            text: String::new(),
            layouts: generate(inventory, Dialect::Octavo),
            warnings: Vec::new(),
        }
    }

    /// Returns the layout with this name.
    pub(super) fn layout(&self, name: &str) -> Result<&Layout, CliError> {
        self.layouts.by_name(name).ok_or_else(|| {
            let names = self.layouts.layouts.iter().map(|layout| layout.name.as_str());
            let known = similar_names::rank_by_similarity(name, names).into_iter();
            let known = known.map(|(_, name)| name.to_owned());
            CliError::NoSuchLayout {
                name: name.to_owned(),
                place: self.name.clone(),
                known: known.collect(),
            }
        })
    }

    /// Returns the text, for quotes in messages.
    pub(super) fn page(&self) -> SourceText<'_> {
        SourceText { name: &self.name, text: &self.text }
    }

    /// Returns the formatted warnings about the file.
    pub(super) fn warnings(&self) -> Vec<String> {
        let page = self.page();
        let warnings = self.warnings.iter().map(|warning| {
            let message = warning.to_string();
            page.at(Severity::Warning, warning.position(), &message)
        });
        warnings.collect()
    }
}
