//! Arguments with a fixed set of words, for types of other crates.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word, its help, and its value.
pub(super) type Choice<T> = (&'static str, &'static str, T);

/// Parses one of the words.
pub(super) fn choice<T: Copy + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices
        .iter()
        .map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(move |word| {
        let mut choices = choices.iter();
        let found = choices.find(|(name, _, _)| *name == word);
        found.map_or(Err("unknown word"), |(_, _, value)| Ok(*value))
    })
}
