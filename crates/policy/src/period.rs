//! Durations as Kubernetes formats them.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Duration of whole seconds in the notation of Kubernetes: `30m`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Period(Duration);

impl Period {
    /// A number of minutes.
    pub const fn from_mins(minutes: u64) -> Self {
        Self(Duration::from_mins(minutes))
    }

    /// The duration.
    pub fn get(self) -> Duration {
        self.0
    }

    /// The duration for arithmetic with timestamps.
    pub(crate) fn signed(self) -> SignedDuration {
        SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX)
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<SignedDuration>().ok();
        let duration = parsed.and_then(|signed| Duration::try_from(signed).ok());
        let whole = duration.filter(|duration| duration.subsec_nanos() == 0);
        whole.map(Self).ok_or_else(|| format!("{text:?} is not a duration such as 30m or 1h30m"))
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        for (count, unit) in [(hours, "h"), (minutes, "m")] {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        if seconds > 0 || self.0.as_secs() == 0 {
            write!(f, "{seconds}s")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_like_those_of_kubernetes() {
        for (text, seconds, written) in [
            ("30m", 1800, "30m"),
            ("90m", 5400, "1h30m"),
            ("6h", 21_600, "6h"),
            ("0s", 0, "0s"),
            ("61s", 61, "1m1s"),
        ] {
            let period = Period::try_from(text.to_owned()).unwrap();
            assert_eq!((period.get().as_secs(), period.to_string().as_str()), (seconds, written));
        }
        for text in ["", "10", "-5m", "soon", "6ms", "1.5s"] {
            Period::try_from(text.to_owned()).unwrap_err();
        }
    }
}
