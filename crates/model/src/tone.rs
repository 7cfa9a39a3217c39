//! Color class of a state. Every vocabulary maps its words to a tone once, so that programs and pages agree.

/// Color class of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Green: as desired.
    Good,
    /// No color: neither good nor bad, or unknown.
    Neutral,
    /// Yellow: needs attention.
    Warning,
    /// Red: needs action.
    Bad,
}
