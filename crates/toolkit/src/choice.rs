//! Arguments with a fixed set of words, for types of other crates.

use std::error::Error;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use strum::VariantArray;

/// A word, its help, and its value.
pub type Choice<T> = (&'static str, &'static str, T);

/// Parses one of the words, which help and completion list with their help.
pub fn choice<T: Copy + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(move |word| {
        let mut choices = choices.iter();
        let found = choices.find(|(name, _, _)| *name == word);
        found.map_or(Err("unknown value"), |(_, _, value)| Ok(*value))
    })
}

/// Parses one of the words of `T`, which help and completion list.
pub fn words<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray + Into<&'static str> + FromStr<Err: Error + Send + Sync>,
    T: Copy + Send + Sync + 'static,
{
    let words = T::VARIANTS.iter().map(|word| -> &'static str { (*word).into() });
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}
