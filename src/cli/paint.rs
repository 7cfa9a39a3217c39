//! Colours. They repeat what the words say, so nothing is lost without them.

use crate::config::octavo::Colors;

/// What a text means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Nothing in particular.
    Plain,
    /// A heading.
    Strong,
    /// Something to step back behind the rest.
    Faint,
    /// As it should be, or added.
    Good,
    /// In use, or wanting attention.
    Notice,
    /// Failing, or removed.
    Bad,
}

impl Ink {
    /// `text` in this ink.
    pub(super) fn paint(self, text: &str, colors: Colors) -> String {
        let code = match (colors, self) {
            (Colors::Off, _) | (Colors::On, Self::Plain) => return text.to_owned(),
            (Colors::On, Self::Strong) => "1",
            (Colors::On, Self::Faint) => "2",
            (Colors::On, Self::Good) => "32",
            (Colors::On, Self::Notice) => "33",
            (Colors::On, Self::Bad) => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
