//! Reasons: stable identifiers of states, used alike in status, annotation, labels, events, metrics, history and log.
//! No other file spells them.
//!
//! Filters and alerts depend on these words, so an existing one never changes. A new reason needs a variant, its event and
//! severity, and its meaning and remedy in `description.rs`, which `docs/reference/reasons.md` is generated from.

#![expect(missing_docs, reason = "strum generates `into_str` without documentation")]

mod description;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

/// Reason for the state of a node or device.
#[derive(AsRefStr, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub enum Reason {
    /// The layout is applied.
    Applied,
    /// The layout will be applied, or waits for a precondition.
    Pending,
    /// The layout is being applied.
    Applying,
    /// Another program is changing the device.
    Yielded,
    /// Another program changed the device after the layout was applied.
    Drifted,
    /// A workload or another holder blocks the layout.
    Blocked,
    /// The change failed and was rolled back.
    RolledBack,
    /// Only a device reset is missing.
    NeedsReset,
    /// The hardware does not support the layout.
    Infeasible,
    /// The change and its rollback failed, or the layout does not apply to this node.
    Failed,
    /// A problem with the layout file or the state directory.
    LayoutNotice,
    /// No driver is installed.
    NoDriver,
    /// The driver disappeared.
    NvmlLost,
    /// A driver call does not return.
    NvmlStalled,
    /// The driver responds again.
    DriverBack,
    /// The aggregator receives no updates from the node.
    Stale,
    /// Another writer manages Octavo's keys.
    KeysLeftToOthers,
    /// GPU Operator's operands are paused.
    OperandsPaused,
    /// GPU Operator's operands run again.
    OperandsRestored,
    /// GPU Operator's operands run again, and the device is still in use by another process.
    #[strum(serialize = "operands-in-vain")]
    OperandsPauseIneffective,
    /// NVIDIA's device plugin was restarted.
    DevicePluginRefreshed,
    /// Kubelet offers the new partitions.
    PartitionsOffered,
    /// Kubelet does not offer the new partitions.
    PartitionsNotOffered,
    /// A drain started: pods that block a layout are evicted.
    DrainBegan,
    /// A drain ended: no further pods need eviction.
    DrainEnded,
    /// A drain reached its deadline while pods still block the layout.
    DrainGaveUp,
    /// A drain cannot evict the remaining pods.
    DrainRefused,
    /// The Node offers devices as the layout requests.
    SharingInForce,
    /// The Node will offer devices as the layout requests.
    SharingPending,
    /// Pods hold devices whose sharing is about to change.
    SharingHeld,
    /// The Node does not offer devices as the layout requests.
    SharingNotInForce,
    /// No available device plugin supports the requested sharing.
    SharingRefused,
    /// Another device plugin registered the same resource.
    DevicePluginConflict,
    /// The kubelet can prepare resource claims.
    ClaimsServed,
    /// The kubelet cannot prepare resource claims, or one of them.
    ClaimsNotServed,
    /// A device or partition is no longer allocated to pods.
    DeviceUnhealthy,
    /// A device or partition is allocated to pods again.
    DeviceHealthy,
    /// A container uses more than its share of memory.
    MemoryOverShare,
    /// A container is within its share of memory again.
    MemoryWithinShare,
    /// A shared device is almost out of memory.
    MemoryNearlyExhausted,
}

/// Severity of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
pub enum Severity {
    /// No attention required.
    Normal,
    /// Attention required.
    Warning,
}

impl Severity {
    /// Returns the type of a Kubernetes event. Source: Kubernetes, `core/v1`, Event, `type`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Reason {
    /// All reasons, in the order of the documentation.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the identifier used in status, annotation, labels, metrics, history, and in the log as `reason=as_str`.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns the reason of the corresponding Kubernetes event, if there is one.
    pub const fn event(self) -> Option<&'static str> {
        self.event_and_severity().0
    }

    /// Returns the severity.
    pub const fn kind(self) -> Severity {
        self.event_and_severity().1
    }

    /// Returns the reason with this identifier; `None` for an unknown one, such as that of a newer agent.
    pub fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }

    const fn event_and_severity(self) -> (Option<&'static str>, Severity) {
        match self {
            Self::Applied => (Some("LayoutApplied"), Severity::Normal),
            Self::Pending => (Some("LayoutPlanned"), Severity::Normal),
            Self::Applying => (Some("LayoutApplying"), Severity::Normal),
            Self::Yielded => (Some("LayoutYielded"), Severity::Warning),
            Self::Drifted => (Some("LayoutDrift"), Severity::Warning),
            Self::Blocked => (Some("LayoutBlocked"), Severity::Warning),
            Self::RolledBack => (Some("LayoutRolledBack"), Severity::Warning),
            Self::NeedsReset => (Some("LayoutNeedsReset"), Severity::Warning),
            Self::Infeasible => (Some("LayoutInfeasible"), Severity::Warning),
            Self::Failed => (Some("LayoutFailed"), Severity::Warning),
            Self::LayoutNotice => (Some("LayoutNotice"), Severity::Warning),
            Self::NoDriver | Self::Stale | Self::ClaimsNotServed => (None, Severity::Warning),
            Self::NvmlLost => (Some("DriverLost"), Severity::Warning),
            Self::NvmlStalled => (Some("DriverStalled"), Severity::Warning),
            Self::DriverBack => (Some("DriverBack"), Severity::Normal),
            Self::KeysLeftToOthers => (Some("KeysLeftToOthers"), Severity::Warning),
            Self::OperandsPaused => (Some("OperandsPaused"), Severity::Normal),
            Self::OperandsRestored => (Some("OperandsRestored"), Severity::Normal),
            Self::OperandsPauseIneffective => (Some("OperandsRestored"), Severity::Warning),
            Self::DevicePluginRefreshed => (Some("DevicePluginRefreshed"), Severity::Normal),
            Self::PartitionsOffered => (Some("PartitionsOffered"), Severity::Normal),
            Self::PartitionsNotOffered => (Some("PartitionsNotOffered"), Severity::Warning),
            Self::DrainBegan => (Some("DrainBegan"), Severity::Normal),
            Self::DrainEnded => (Some("DrainEnded"), Severity::Normal),
            Self::DrainGaveUp => (Some("DrainGaveUp"), Severity::Warning),
            Self::DrainRefused => (Some("DrainRefused"), Severity::Warning),
            Self::SharingInForce => (Some("SharingInForce"), Severity::Normal),
            Self::SharingPending | Self::ClaimsServed => (None, Severity::Normal),
            Self::SharingHeld => (Some("SharingHeld"), Severity::Warning),
            Self::SharingNotInForce => (Some("SharingNotInForce"), Severity::Warning),
            Self::SharingRefused => (Some("SharingRefused"), Severity::Warning),
            Self::DevicePluginConflict => (Some("DevicePluginConflict"), Severity::Warning),
            Self::DeviceUnhealthy => (Some("DeviceUnhealthy"), Severity::Warning),
            Self::DeviceHealthy => (Some("DeviceHealthy"), Severity::Normal),
            Self::MemoryOverShare => (Some("MemoryOverShare"), Severity::Warning),
            Self::MemoryWithinShare => (Some("MemoryWithinShare"), Severity::Normal),
            Self::MemoryNearlyExhausted => (Some("MemoryNearlyExhausted"), Severity::Warning),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_unique_parsable_word() {
        let words: BTreeSet<&str> = Reason::ALL.iter().copied().map(Reason::as_str).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for &reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::parse("nonsense"), None);
    }

    #[test]
    fn words_are_kebab_case_and_events_are_camel_case() {
        for &reason in Reason::ALL {
            let word = reason.as_str();
            let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(word.chars().all(kebab) && !word.is_empty(), "{word}");
            if let Some(event) = reason.event() {
                assert!(event.starts_with(|c: char| c.is_ascii_uppercase()), "{event}");
                assert!(event.chars().all(|c| c.is_ascii_alphabetic()), "{event}");
                // Source: Kubernetes, `core/v1`, Event, `reason`.
                assert!(event.len() <= 128, "{event}");
            }
        }
    }
}
