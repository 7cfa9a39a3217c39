//! The description of a machine, as a person writes it.

use std::path::Path;

use thiserror::Error;

use crate::fault::Rule;
use crate::model::World;

/// A scenario that was read and understood.
#[derive(Debug, Clone)]
pub struct Scenario {}

/// Why a scenario cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// Not yet.
    #[error("scenarios cannot be read yet")]
    Unfinished,
}

impl Scenario {
    /// Reads a file.
    pub fn read(_path: &Path) -> Result<Self, ScenarioError> {
        Err(ScenarioError::Unfinished)
    }

    /// The machine it describes.
    pub fn world(&self) -> Result<World, ScenarioError> {
        Err(ScenarioError::Unfinished)
    }

    /// Its faults.
    pub fn faults(&self) -> Result<Vec<Rule>, ScenarioError> {
        Ok(Vec::new())
    }
}
