//! Texts, badges and number formats of the pages.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::access::Visibility;
use octavo_fleet::summary::NodeState;
use octavo_model::id::TypeName;
pub(super) use octavo_model::text::{count_noun, format_age, format_memory, printable};
use octavo_model::tone::Tone;
use octavo_store::view::FleetView;

/// Notice above a list while agents are still reconnecting after a start.
pub(super) fn starting(view: &FleetView, visibility: &Visibility) -> Option<String> {
    let text = view.startup()?.visible_to(visibility).to_string();
    let text = text.replacen("the", "The", 1);
    Some(format!("{text}. The data shown is incomplete."))
}

/// Label with icon and color, both of which are redundant to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Badge {
    pub(super) tone: &'static str,
    pub(super) icon: &'static str,
    pub(super) word: &'static str,
}

/// Badge of a node's state.
pub(super) fn node_state(state: NodeState) -> Badge {
    let icon = match state {
        NodeState::Empty | NodeState::NoAgent => "empty",
        NodeState::NoDriver | NodeState::NvmlLost => "off",
        NodeState::Applying | NodeState::NvmlStalled | NodeState::Stale => "stale",
        NodeState::Passthrough | NodeState::Ok | NodeState::Attention | NodeState::Degraded => {
            tone_icon(state.tone())
        }
    };
    let tone = tone_class(state.tone());
    // The same word as in the API and the command line, so that it can be searched and filtered for.
    let word = state.as_str();
    Badge { tone, icon, word }
}

/// Badge of a device's state.
pub(super) fn device_state(word: &'static str, tone: Tone) -> Badge {
    Badge { tone: tone_class(tone), icon: tone_icon(tone), word }
}

/// CSS class of a color.
pub(super) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Neutral => "soft",
        Tone::Warning => "warn",
        Tone::Bad => "bad",
    }
}

/// Icon of a color.
pub(super) fn tone_icon(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "ok",
        Tone::Neutral => "note",
        Tone::Warning => "warn",
        Tone::Bad => "bad",
    }
}

/// Name of the type, or a placeholder.
pub(super) fn type_name(name: Option<&TypeName>) -> String {
    name.map_or_else(|| "type unknown".to_owned(), ToString::to_string)
}

/// Part of a text, as code or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPart {
    pub(super) code: bool,
    pub(super) text: String,
}

/// Splits a text at its backquotes, which enclose code. An unpaired one is part of the text.
pub(super) fn text_parts(text: &str) -> Vec<TextPart> {
    let pieces: Vec<&str> = text.split('`').collect();
    let is_paired = pieces.len() % 2 == 1;
    let part = |(number, text): (usize, &&str)| TextPart {
        code: is_paired && number % 2 == 1,
        text: (*text).to_owned(),
    };
    if !is_paired {
        return vec![TextPart { code: false, text: text.to_owned() }];
    }
    let parts = pieces.iter().enumerate().map(part);
    parts.filter(|part| !part.text.is_empty()).collect()
}

/// Age in milliseconds, for the script.
pub(super) fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time in ISO 8601; the script localizes it.
pub(super) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Capitalizes the first letter, unless the first word is a name such as `nvidia.com/gpu`, `nvmlInit` or `gi`.
pub(super) fn capitalize(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    let word = word.trim_end_matches([':', ',', '.']);
    let is_word = word.chars().all(|letter| letter.is_lowercase() || letter == '-');
    // `gi 2` is a GPU instance in messages of the planner.
    if !is_word || word == "gi" {
        return text.to_owned();
    }
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_start_of_a_sentence_are_not_capitalized() {
        for (text, shown) in [
            ("drain (all) gave up", "Drain (all) gave up"),
            ("failing: GPU is lost", "Failing: GPU is lost"),
            ("nvidia.com/gpu is not registered", "nvidia.com/gpu is not registered"),
            ("nvmlInit failed", "nvmlInit failed"),
            ("gi 2 is in use", "gi 2 is in use"),
            ("1 id stays", "1 id stays"),
            ("", ""),
        ] {
            assert_eq!(capitalize(text), shown);
        }
    }

    #[test]
    fn text_is_split_at_paired_backquotes() {
        let words = |text: &str| -> Vec<(bool, String)> {
            text_parts(text).into_iter().map(|part| (part.code, part.text)).collect()
        };
        let (code, plain) =
            (|text: &str| (true, text.to_owned()), |text: &str| (false, text.to_owned()));
        assert_eq!(words("run `a b` now"), [plain("run "), code("a b"), plain(" now")]);
        assert_eq!(words("`a`"), [code("a")]);
        assert_eq!(words("it`s"), [plain("it`s")]);
        assert_eq!(words(""), []);
    }

    #[test]
    fn color_of_a_badge_is_that_of_its_state() {
        for state in NodeState::ALL {
            let badge = node_state(state);
            assert_eq!((badge.word, badge.tone), (state.as_str(), tone_class(state.tone())));
            assert_eq!(badge.icon == "ok", state == NodeState::Ok, "{state}");
        }
    }
}
