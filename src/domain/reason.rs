//! Why something stands as it does, in words that are the same wherever they are read: status, annotation, labels, events,
//! metrics, history and log. No other file spells them.
//!
//! People filter and alert by these words, so one that exists is never changed. A new reason is a variant, its row in `rows.rs`
//! and a place in [`Reason::ALL`]; `docs/reasons.md` is written from here (`make golden`).

mod page;
mod rows;

pub use page::page;
use rows::Row;

/// Why something stands as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The layout is in force.
    Applied,
    /// It will be, or waits for what must come first.
    Pending,
    /// It is being put in force.
    Applying,
    /// Another program is at work on the device.
    Yielded,
    /// Somebody changed the device after the layout was in force.
    Drifted,
    /// Somebody or something is in the way.
    Blocked,
    /// It did not work, and is as it was before.
    RolledBack,
    /// All is done but a reset.
    NeedsReset,
    /// The hardware cannot.
    Infeasible,
    /// It did not work, or the layout means nothing here.
    Failed,
    /// The layout's file or the state directory has something wrong with it.
    LayoutNotice,
    /// There is no driver.
    NoDriver,
    /// The driver went.
    NvmlLost,
    /// The driver hangs.
    NvmlStalled,
    /// The driver answers again.
    DriverBack,
    /// Nothing was heard of the node.
    Stale,
    /// Others write keys of ours.
    KeysLeftToOthers,
    /// GPU Operator's operands are paused.
    OperandsPaused,
    /// They run again.
    OperandsRestored,
    /// They run again, and the device is still in use.
    OperandsInVain,
    /// NVIDIA's device plugin was made to start again.
    DevicePluginRefreshed,
    /// Kubelet offers the new partitions.
    PartitionsOffered,
    /// It does not.
    PartitionsNotOffered,
    /// Pods in the way of a layout are evicted.
    DrainBegan,
    /// Nothing is to be evicted any more.
    DrainEnded,
    /// Its time is over, and pods are still in the way.
    DrainGaveUp,
    /// Nothing is evicted.
    DrainRefused,
    /// Devices are given out as the layout says.
    SharingInForce,
    /// They will be.
    SharingPending,
    /// Pods have what is to be given out otherwise.
    SharingHeld,
    /// They are not.
    SharingNotInForce,
    /// Nobody can give them out so.
    SharingRefused,
    /// Another program offers the same resource.
    DevicePluginConflict,
    /// A device or partition is not given out any more.
    DeviceUnhealthy,
    /// It is again.
    DeviceHealthy,
    /// A container uses more than its share.
    MemoryOverShare,
    /// It does not any more.
    MemoryWithinShare,
    /// A shared device has hardly any memory left.
    MemoryNearlyExhausted,
}

/// Whether somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is as it should be.
    Normal,
    /// It is not.
    Warning,
}

impl Kind {
    /// As Kubernetes writes it in an event. Source: Kubernetes, `core/v1`, Event, `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Reason {
    /// All there are, in the order in which people read of them.
    pub const ALL: [Self; 38] = [
        Self::Applied,
        Self::Pending,
        Self::Applying,
        Self::Yielded,
        Self::Drifted,
        Self::Blocked,
        Self::RolledBack,
        Self::NeedsReset,
        Self::Infeasible,
        Self::Failed,
        Self::LayoutNotice,
        Self::NoDriver,
        Self::NvmlLost,
        Self::NvmlStalled,
        Self::DriverBack,
        Self::Stale,
        Self::KeysLeftToOthers,
        Self::OperandsPaused,
        Self::OperandsRestored,
        Self::OperandsInVain,
        Self::DevicePluginRefreshed,
        Self::PartitionsOffered,
        Self::PartitionsNotOffered,
        Self::DrainBegan,
        Self::DrainEnded,
        Self::DrainGaveUp,
        Self::DrainRefused,
        Self::SharingInForce,
        Self::SharingPending,
        Self::SharingHeld,
        Self::SharingNotInForce,
        Self::SharingRefused,
        Self::DevicePluginConflict,
        Self::DeviceUnhealthy,
        Self::DeviceHealthy,
        Self::MemoryOverShare,
        Self::MemoryWithinShare,
        Self::MemoryNearlyExhausted,
    ];

    /// The word: in status, annotation, labels, metrics, history, and in the log as `reason=word`.
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// The reason of the event that tells it; `None` where none does.
    pub const fn event(self) -> Option<&'static str> {
        self.row().event
    }

    /// Whether somebody should look.
    pub const fn kind(self) -> Kind {
        self.row().kind
    }

    /// What it means, in a sentence.
    pub const fn meaning(self) -> &'static str {
        self.row().meaning
    }

    /// What a person does about it, in a sentence.
    pub const fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// The one with this word; `None` for a word that is none of ours, such as a later agent's.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// Whether this is its word.
    pub fn is(self, word: &str) -> bool {
        self.word() == word
    }

    const fn row(self) -> &'static Row {
        match self {
            Self::Applied => &rows::APPLIED,
            Self::Pending => &rows::PENDING,
            Self::Applying => &rows::APPLYING,
            Self::Yielded => &rows::YIELDED,
            Self::Drifted => &rows::DRIFTED,
            Self::Blocked => &rows::BLOCKED,
            Self::RolledBack => &rows::ROLLED_BACK,
            Self::NeedsReset => &rows::NEEDS_RESET,
            Self::Infeasible => &rows::INFEASIBLE,
            Self::Failed => &rows::FAILED,
            Self::LayoutNotice => &rows::LAYOUT_NOTICE,
            Self::NoDriver => &rows::NO_DRIVER,
            Self::NvmlLost => &rows::NVML_LOST,
            Self::NvmlStalled => &rows::NVML_STALLED,
            Self::DriverBack => &rows::DRIVER_BACK,
            Self::Stale => &rows::STALE,
            Self::KeysLeftToOthers => &rows::KEYS_LEFT_TO_OTHERS,
            Self::OperandsPaused => &rows::OPERANDS_PAUSED,
            Self::OperandsRestored => &rows::OPERANDS_RESTORED,
            Self::OperandsInVain => &rows::OPERANDS_IN_VAIN,
            Self::DevicePluginRefreshed => &rows::DEVICE_PLUGIN_REFRESHED,
            Self::PartitionsOffered => &rows::PARTITIONS_OFFERED,
            Self::PartitionsNotOffered => &rows::PARTITIONS_NOT_OFFERED,
            Self::DrainBegan => &rows::DRAIN_BEGAN,
            Self::DrainEnded => &rows::DRAIN_ENDED,
            Self::DrainGaveUp => &rows::DRAIN_GAVE_UP,
            Self::DrainRefused => &rows::DRAIN_REFUSED,
            Self::SharingInForce => &rows::sharing::SHARING_IN_FORCE,
            Self::SharingPending => &rows::sharing::SHARING_PENDING,
            Self::SharingHeld => &rows::sharing::SHARING_HELD,
            Self::SharingNotInForce => &rows::sharing::SHARING_NOT_IN_FORCE,
            Self::SharingRefused => &rows::sharing::SHARING_REFUSED,
            Self::DevicePluginConflict => &rows::sharing::DEVICE_PLUGIN_CONFLICT,
            Self::DeviceUnhealthy => &rows::sharing::DEVICE_UNHEALTHY,
            Self::DeviceHealthy => &rows::sharing::DEVICE_HEALTHY,
            Self::MemoryOverShare => &rows::sharing::MEMORY_OVER_SHARE,
            Self::MemoryWithinShare => &rows::sharing::MEMORY_WITHIN_SHARE,
            Self::MemoryNearlyExhausted => &rows::sharing::MEMORY_NEARLY_EXHAUSTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_word_of_its_own_by_which_it_is_found() {
        let words: BTreeSet<&str> = Reason::ALL.into_iter().map(Reason::word).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.word()), Some(reason));
        }
        assert_eq!(Reason::of("nonsense"), None);
    }

    #[test]
    fn words_are_kebab_case_events_are_camel_case_and_each_has_two_sentences() {
        for reason in Reason::ALL {
            let word = reason.word();
            let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(word.chars().all(kebab) && !word.is_empty(), "{word}");
            if let Some(event) = reason.event() {
                assert!(
                    event.starts_with(|c: char| c.is_ascii_uppercase()),
                    "{event}"
                );
                assert!(event.chars().all(|c| c.is_ascii_alphabetic()), "{event}");
                // Source: Kubernetes, `core/v1`, Event, `reason`.
                assert!(event.len() <= 128, "{event}");
            }
            for sentence in [reason.meaning(), reason.remedy()] {
                assert!(
                    sentence.ends_with('.') && !sentence.contains('|'),
                    "{sentence}"
                );
                assert!(
                    !sentence.contains('\n') && !sentence.contains("  "),
                    "{sentence}"
                );
            }
        }
    }
}
