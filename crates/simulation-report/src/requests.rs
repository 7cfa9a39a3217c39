//! Source of the requests of a report.

use crate::text::count;

/// Source of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Requests {
    /// Random requests.
    Random {
        /// Number in each run.
        count: usize,
        /// Number of the first requests that are not counted.
        warm_up: usize,
        /// Number of runs of each mix. Their seeds are the numbers from 0.
        runs: u32,
        /// Demanded part of the slices.
        load: f64,
    },
    /// Requests of a file.
    File,
}

impl Requests {
    /// Number of the counted requests of a trace, as text.
    pub(crate) fn counted(self, number: usize) -> String {
        let kind = match self {
            Self::File => "",
            Self::Random { .. } => "counted ",
        };
        let noun = if number == 1 { "request" } else { "requests" };
        let requests = format!("{} {kind}{noun}", count(number));
        match self {
            Self::Random { runs, .. } if runs > 1 => format!("{requests} in each of {runs} runs"),
            Self::Random { .. } | Self::File => requests,
        }
    }

    /// Number of runs of each trace.
    pub(crate) fn runs(self) -> u32 {
        match self {
            Self::Random { runs, .. } => runs,
            Self::File => 1,
        }
    }
}
