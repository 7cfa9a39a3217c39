//! Validation of accelerators from inside a pod: one unit of a resource is allocated, and its container reports the
//! accelerators that it sees.
//!
//! ```text
//! container.rs    accelerators that a container sees
//! expectation.rs  expected properties of one unit of a resource
//! checks.rs       comparison of both
//! ```

mod checks;
mod container;
mod expectation;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use self::checks::check_container;
pub use self::container::{ContainerReport, VisibleUnit, is_accelerator_file};
pub use self::expectation::Expectation;
use crate::doctor::CheckResult;

/// Step of a validation, in order. Names are only ever added, because scripts refer to them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ValidationStep {
    /// The node offers units of the resource, and one of them is free.
    FreeUnits,
    /// The scheduler bound the pod to the node.
    Scheduled,
    /// The container ran and reported the accelerators that it sees.
    Started,
    /// The container has the device files of one unit.
    DeviceFiles,
    /// The unit has a type that the Node lists.
    Type,
    /// The unit has the memory that the Node lists.
    Memory,
    /// The container sees the allocated unit and no other one.
    Isolation,
}

impl ValidationStep {
    /// Name in tables and documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepResult {
    /// The step.
    pub step: ValidationStep,
    /// Its result.
    pub verdict: CheckResult,
    /// Observed values. Parts come from drivers and the API server and can contain any character.
    pub evidence: String,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl StepResult {
    /// Creates the result of a step without a problem.
    pub fn ok(step: ValidationStep, evidence: String) -> Self {
        Self { step, verdict: CheckResult::Ok, evidence, remedy: None }
    }

    /// Creates the result of a step that could not compare anything.
    pub fn unknown(step: ValidationStep, evidence: String) -> Self {
        Self { step, verdict: CheckResult::Unknown, evidence, remedy: None }
    }

    /// Creates the result of a failed step.
    pub fn failing(step: ValidationStep, evidence: String, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { step, verdict: CheckResult::Failing, evidence, remedy }
    }

    /// Creates the result of a step that does not apply, so that nothing is validated.
    pub fn skipped(step: ValidationStep, evidence: String) -> Self {
        Self { step, verdict: CheckResult::NotApplicable, evidence, remedy: None }
    }
}

/// Outcome of the validation of one resource on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// No step failed.
    Passed,
    /// A step failed.
    Failed,
    /// No unit was free, so no pod was created.
    Skipped,
}

impl Outcome {
    /// Returns the outcome of these steps.
    pub fn of_steps(steps: &[StepResult]) -> Self {
        let has = |verdict| steps.iter().any(|step| step.verdict == verdict);
        if has(CheckResult::Failing) {
            Self::Failed
        } else if has(CheckResult::NotApplicable) {
            Self::Skipped
        } else {
            Self::Passed
        }
    }

    /// Name in tables and documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Validation of one resource on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// The node.
    pub node: String,
    /// The extended resource; `None` if the node offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Outcome of all steps.
    pub outcome: Outcome,
    /// Results, in the order of the steps.
    pub steps: Vec<StepResult>,
}

impl Validation {
    /// Creates a validation with the outcome of its steps.
    pub fn new(node: &str, resource: Option<&str>, mut steps: Vec<StepResult>) -> Self {
        steps.sort_by_key(|step| step.step);
        Self {
            node: node.to_owned(),
            resource: resource.map(str::to_owned),
            outcome: Outcome::of_steps(&steps),
            steps,
        }
    }
}

#[cfg(test)]
mod tests;
