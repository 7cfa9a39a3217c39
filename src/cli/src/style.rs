//! Colors. They repeat the meaning of the words, so the output is complete without them.

use octavo_model::tone::Tone;

use crate::settings::Colors;

/// Meaning of a text, which selects its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// No particular meaning.
    Plain,
    /// A heading.
    Strong,
    /// Of minor importance.
    Faint,
    /// Healthy, or added.
    Good,
    /// In use, or needs attention.
    Warning,
    /// Failing, or removed.
    Bad,
}

impl From<Tone> for Style {
    fn from(tone: Tone) -> Self {
        match tone {
            Tone::Good => Self::Good,
            Tone::Neutral => Self::Plain,
            Tone::Warning => Self::Warning,
            Tone::Bad => Self::Bad,
        }
    }
}

impl Style {
    /// Colors `text`.
    pub(super) fn paint(self, text: &str, colors: Colors) -> String {
        let code = match (colors, self) {
            (Colors::Off, _) | (Colors::On, Self::Plain) => return text.to_owned(),
            (Colors::On, Self::Strong) => "1",
            (Colors::On, Self::Faint) => "2",
            (Colors::On, Self::Good) => "32",
            (Colors::On, Self::Warning) => "33",
            (Colors::On, Self::Bad) => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
