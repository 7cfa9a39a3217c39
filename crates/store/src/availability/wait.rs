//! Waiting times with their times as text.

use jiff::Timestamp;
use octavo_fleet::availability::{Wait, WaitBasis, WaitReport};

/// Converts a wait to its document. Omits times outside the supported range.
pub(super) fn report(wait: Wait) -> WaitReport {
    let reason = wait.description();
    match wait {
        Wait::Now => WaitReport::new(WaitBasis::Free),
        Wait::Deadlines { earliest, latest, of, holders } => WaitReport {
            from: rfc3339(earliest),
            to: rfc3339(latest),
            of: Some(of),
            holders: Some(holders),
            reason,
            ..WaitReport::new(WaitBasis::Deadlines)
        },
        Wait::Likely { from, to, samples, since, of, holders } => WaitReport {
            from: rfc3339(from),
            to: to.and_then(rfc3339),
            samples: Some(samples),
            since: rfc3339(since),
            of: (of > 0).then_some(of),
            holders: Some(holders),
            reason,
            ..WaitReport::new(match of {
                0 => WaitBasis::History,
                _ => WaitBasis::HistoryAndDeadlines,
            })
        },
        Wait::Unknown(why) => {
            let watched = why.observations();
            WaitReport {
                samples: watched.map(|(samples, _)| samples),
                since: watched.and_then(|(_, since)| rfc3339(since)),
                reason,
                ..WaitReport::new(WaitBasis::Unknown)
            }
        }
    }
}

fn rfc3339(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.to_string())
}
