//! Eviction of pods that block a layout, as a policy requests it from the agents of its nodes.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use utoipa::ToSchema;

use crate::period::Period;

/// Eviction of pods that block the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDrain {
    /// Pods to evict, as with the option --drain of the agent.
    pub scope: DrainScope,
    /// Time limit of an attempt, as with the option --drain-deadline of the agent.
    #[serde(default = "default_timeout")]
    pub timeout: Period,
}

/// Pods to evict if some block a layout.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DrainScope {
    /// None.
    Never,
    /// The blocking pods.
    Affected,
    /// All evictable pods of the node.
    Node,
}

fn default_timeout() -> Period {
    Period::from_mins(10)
}

/// The value of the annotation `octavo.dev/drain`, such as `affected,10m`.
impl fmt::Display for PolicyDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.scope, self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drain_has_the_default_of_the_agent_and_is_written_in_one_text() {
        let read = |value| serde_json::from_value::<PolicyDrain>(value);
        let affected = read(json!({"scope": "affected"})).unwrap();
        assert_eq!(affected.to_string(), "affected,10m");
        let node = read(json!({"scope": "node", "timeout": "90m"})).unwrap();
        assert_eq!(node.to_string(), "node,1h30m");
        for invalid in
            [json!({}), json!({"scope": "all"}), json!({"scope": "node", "timeout": "5"})]
        {
            read(invalid).unwrap_err();
        }
    }
}
