//! What was done to a node's partitions, one JSON object a line, in the order in which it was done.

use serde::{Deserialize, Serialize};

/// One apply that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began, by RFC 3339.
    pub time: String,
    /// The plan's id, which log, journal and status have too.
    pub plan: String,
    /// The layout's name.
    pub layout: String,
    /// Who did it: `agent` or `command`.
    pub by: String,
    /// From the first look to the last, in milliseconds.
    pub duration_ms: u64,
    /// The devices that were changed, or should have been.
    pub devices: Vec<DeviceAttempt>,
}

/// What became of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceAttempt {
    /// Its PCI address.
    pub pci: String,
    /// `applied`, `blocked`, `infeasible`, `rolled-back`, `failed`, `needs-reset`, `yielded`.
    pub result: String,
    /// Why, where there is something to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// GPU instances destroyed.
    pub destroyed: u32,
    /// GPU instances created.
    pub created: u32,
    /// Calls made again.
    #[serde(default)]
    pub retries: u32,
    /// Whether what it had was brought back, or tried to be.
    #[serde(default)]
    pub rolled_back: bool,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How much of that was spent in calls to the driver.
    pub hardware_ms: u64,
}

/// An attempt as a line, with its end.
pub fn line(attempt: &Attempt) -> String {
    // Texts and numbers: there is nothing that JSON does not have.
    let mut text = serde_json::to_string(attempt).unwrap_or_default();
    text.push('\n');
    text
}

/// All attempts in `text`, the oldest first. A line that was torn, or that a later version wrote, is passed over.
pub fn parse(text: &str) -> Vec<Attempt> {
    text.lines().filter_map(read).collect()
}

/// The last of these, without a look at those before it.
pub fn last(text: &str) -> Option<Attempt> {
    text.lines().rev().find_map(read)
}

fn read(line: &str) -> Option<Attempt> {
    serde_json::from_str(line).ok()
}
