//! Colors. They repeat the meaning of the words, so the output is complete without them.

use octavo_model::tone::Tone;

/// Use of ANSI colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// ANSI colors.
    On,
    /// No colors.
    Off,
}

/// Meaning of a text, which selects its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
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

fn with_code(code: &str, text: &str, colors: Colors) -> String {
    if code.is_empty() || colors == Colors::Off {
        return text.to_owned();
    }
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

impl Style {
    /// Colors `text`.
    pub fn paint(self, text: &str, colors: Colors) -> String {
        let code = match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
        };
        with_code(code, text, colors)
    }

    /// Colors the background of `text`, if its style has a color.
    pub fn fill(self, text: &str, colors: Colors) -> String {
        let code = match self {
            Self::Plain | Self::Strong | Self::Faint => return self.paint(text, colors),
            // Black on green and on yellow, white on red: each is readable in light and dark terminals.
            Self::Good => "30;42",
            Self::Warning => "30;43",
            Self::Bad => "97;41",
        };
        with_code(code, text, colors)
    }
}
