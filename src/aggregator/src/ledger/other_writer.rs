//! Another program that writes to the ledger.

use std::time::Duration;

use tokio::time::Instant;

/// What is known of another program that writes to the ledger. It shows its activity in the database, but no time: clocks can differ.
#[derive(Debug, Default)]
pub(super) struct OtherWriter {
    /// Its last activity, and the time at which it was first read.
    last: Option<(String, Instant)>,
    /// True after a failure to take over from it.
    is_failing: bool,
}

impl OtherWriter {
    /// Returns for how long its activity has been this one.
    pub(super) fn silence(&mut self, activity: &str) -> Duration {
        match &self.last {
            Some((last, since)) if last == activity => since.elapsed(),
            _ => {
                self.last = Some((activity.to_owned(), Instant::now()));
                Duration::ZERO
            }
        }
    }

    /// Records a failure to take over from it, and returns whether it is the first one.
    pub(super) fn record_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.is_failing, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_with_each_activity() {
        let mut other = OtherWriter::default();
        let minute = Duration::from_mins(1);
        assert_eq!(other.silence("a/1"), Duration::ZERO);
        tokio::time::advance(minute).await;
        assert_eq!(other.silence("a/1"), minute);
        assert_eq!(other.silence("a/2"), Duration::ZERO);
        tokio::time::advance(minute).await;
        assert_eq!(other.silence("a/2"), minute);
    }

    #[test]
    fn first_failure_is_distinguished_from_later_ones() {
        let mut other = OtherWriter::default();
        assert!(other.record_failure());
        assert!(!other.record_failure());
    }
}
