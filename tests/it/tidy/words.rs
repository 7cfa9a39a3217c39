//! Words of the project's former language in comments and identifiers.

use super::tokens::{is_word, tokens};
use super::{product_sources, sources};

/// Words and phrases in lower case, as whole words.
pub(super) const WORDS: &[&str] = &[
    "a turn",
    "anew",
    "at its next look",
    "folder",
    "heard of",
    "hears of",
    "by turns",
    "for ever",
    "for want of",
    "given out",
    "gives out",
    "heed",
    "in force",
    "in the making",
    "in the way",
    "in vain",
    "is told",
    "maker",
    "mend",
    "mended",
    "mends",
    "nobody",
    "nobody's",
    "of no use",
    "of late",
    "reckon",
    "reckoned",
    "shall",
    "somebody",
    "somebody's",
    "to be had",
    "told",
    "untold",
    "what there is",
    "whoever",
];

/// Number of comment lines that contain such a word. It only goes down.
const BUDGET: usize = 1;

/// Parts of identifiers.
const PARTS: &[&str] = &[
    "anew", "asked", "chase", "desk", "door", "ears", "folder", "gist", "giver", "heard", "herald",
    "kept", "kin", "maker", "manner", "manners", "mind", "newcomer", "nobody", "patient", "said",
    "scenery", "sheet", "shelf", "sight", "sights", "somebody", "standing", "teller", "told",
    "untold", "usher", "whoever", "witness",
];

/// Number of uses of such identifiers in the product's sources. It only goes down.
const IDENTIFIER_BUDGET: usize = 15;

#[test]
fn former_words_disappear_from_identifiers() {
    let former = |name: &str| name.split('_').any(|part| PARTS.contains(&part));
    let count: usize = product_sources()
        .map(|source| {
            let all = tokens(&source.text).into_iter();
            let names = all.filter(|token| token.text.starts_with(is_word));
            names.filter(|token| former(token.text)).count()
        })
        .sum();
    assert!(
        count == IDENTIFIER_BUDGET,
        "{count} identifiers have former words, {IDENTIFIER_BUDGET} are allowed: lower it if there are fewer"
    );
}

#[test]
fn former_words_disappear_from_comments() {
    let mut found = Vec::new();
    for source in product_sources().chain(sources("tests")) {
        if source.path.ends_with("tidy/words.rs") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let comment = format!(" {} ", words(comment));
            if let Some(word) = WORDS.iter().find(|word| comment.contains(&format!(" {word} "))) {
                found.push(format!("{}:{}: {word:?}", source.path, number + 1));
            }
        }
    }
    let count = found.len();
    assert!(
        count <= BUDGET,
        "{count} comment lines have former words, {BUDGET} are allowed:\n{}",
        found.join("\n")
    );
    assert!(
        count == BUDGET,
        "{count} comment lines have former words: lower BUDGET from {BUDGET} to {count}"
    );
}

/// The words of a comment in lower case, separated by single spaces.
pub(super) fn words(comment: &str) -> String {
    let lower = comment.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '_');
    let words = lower.split(|c: char| !is_word(c));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
