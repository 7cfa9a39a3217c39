//! The history of changes to a node's partitions, one JSON object per line in chronological order.

use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use serde::{Deserialize, Serialize};

/// A completed attempt to apply a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Start time, in RFC 3339.
    pub time: String,
    /// ID of the plan, also used in the log, the journal and the status.
    pub plan: String,
    /// Name of the layout.
    pub layout: String,
    /// Origin of the attempt: `agent` or `command`.
    pub by: String,
    /// Total duration in milliseconds, including the scans before and after.
    pub duration_ms: u64,
    /// Devices that were changed, or whose change failed.
    pub devices: Vec<DeviceAttempt>,
}

/// Result for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceAttempt {
    /// PCI address.
    pub pci: String,
    /// Result: `applied`, `blocked`, `infeasible`, `rolled-back`, `failed`, `needs-reset` or `yielded`.
    pub result: Reported<Reason>,
    /// Explanation, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Number of GPU instances destroyed.
    pub destroyed: u32,
    /// Number of GPU instances created.
    pub created: u32,
    /// Number of retried calls.
    #[serde(default)]
    pub retries: u32,
    /// Whether a rollback was attempted, successful or not.
    #[serde(default)]
    pub rolled_back: bool,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Part of the duration spent in driver calls, in milliseconds.
    pub hardware_ms: u64,
}

/// Serializes an attempt as a line, including the line feed.
pub fn line(attempt: &Attempt) -> String {
    // Serialization cannot fail: the type contains only strings, numbers, booleans and lists.
    let mut text = serde_json::to_string(attempt).unwrap_or_default();
    text.push('\n');
    text
}

/// Parses all attempts in `text`, oldest first. Skips lines that are incomplete or were written by a later version.
pub fn parse(text: &str) -> Vec<Attempt> {
    text.lines().filter_map(parse_line).collect()
}

/// Parses only the last valid attempt in `text`.
pub fn last(text: &str) -> Option<Attempt> {
    text.lines().rev().find_map(parse_line)
}

fn parse_line(line: &str) -> Option<Attempt> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_of_earlier_version_round_trips() {
        let text = include_str!("history/recorded.jsonl");
        let attempts = parse(text);
        let results = attempts.iter().flat_map(|attempt| &attempt.devices);
        let results: Vec<Option<Reason>> = results.map(|device| device.result.known()).collect();
        assert_eq!(results, [Some(Reason::Applied), Some(Reason::RolledBack)]);
        assert_eq!(attempts.iter().map(line).collect::<String>(), text);
        let later = text.replace("rolled-back", "resting");
        assert_eq!(parse(&later).iter().map(line).collect::<String>(), later);
    }
}
