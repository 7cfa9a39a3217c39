//! Pods that may be evicted for exact instances of a Node.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use thiserror::Error;

/// Value of the annotation `octavo.dev/evict`: `demand-5d71bd3fae,2026-11-29T19:00:00Z,UID,UID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionPermission {
    /// Layout for which the pods may be evicted.
    pub layout: String,
    /// End of the permission.
    pub until: Timestamp,
    /// UIDs of the pods.
    pub uids: Vec<String>,
}

/// The annotation has another form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the value is not a layout, a time and the UIDs of pods, separated by commas")]
pub struct EvictionPermissionError;

impl fmt::Display for EvictionPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.layout, self.until, self.uids.join(","))
    }
}

impl FromStr for EvictionPermission {
    type Err = EvictionPermissionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',').map(str::trim);
        let (layout, until) = parts.next().zip(parts.next()).ok_or(EvictionPermissionError)?;
        let until = until.parse().map_err(|_error| EvictionPermissionError)?;
        let uids: Vec<String> = parts.map(str::to_owned).collect();
        if layout.is_empty() || uids.is_empty() || uids.iter().any(String::is_empty) {
            return Err(EvictionPermissionError);
        }
        Ok(Self { layout: layout.to_owned(), until, uids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_is_written_and_read_in_one_text() {
        let text = "demand-5d71bd3fae,2026-11-29T19:00:00Z,a,b";
        let permission: EvictionPermission = text.parse().unwrap();
        assert_eq!((permission.to_string().as_str(), permission.uids.len()), (text, 2));
        for invalid in [
            "",
            "demand-1",
            "demand-1,a,b",
            "demand-1,2026-11-29T19:00:00Z",
            "a,2026-11-29T19:00:00Z,,b",
        ] {
            invalid.parse::<EvictionPermission>().unwrap_err();
        }
    }
}
