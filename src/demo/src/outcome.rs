//! The end of a demo.

/// End of a demo that did not fail.
#[derive(Debug)]
pub enum DemoOutcome {
    /// The user stopped it.
    Stopped,
    /// Standard output was closed.
    OutputClosed,
    /// Its time is over and everything was reported; with the summary.
    Complete(String),
}
