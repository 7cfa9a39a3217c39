//! Texts for users have standard words: pages, help, messages, web pages, the chart, the dashboard.

use std::fs;
use std::path::Path;

use super::tokens::{is_word, string_literals};
use super::words::{WORDS, words};
use super::{Source, assert_none, files, has_extension, product_sources, read, root};

/// Words and phrases in lower case that users do not expect, beside those that comments avoid as well.
const MORE: &[&str] = &[
    "any more",
    "as far as",
    "aside from",
    "at once",
    "behaviour",
    "by hand",
    "catalogue",
    "catalogues",
    "colour",
    "coloured",
    "colours",
    "folders",
    "grave",
    "gives out",
    "hear",
    "hears",
    "heard",
    "kept",
    "labelled",
    "licence",
    "makers",
    "may not",
    "of its own accord",
    "said",
    "say",
    "says",
    "someone",
    "stands for",
    "tell",
    "telling",
    "tells",
    "utilisation",
    "wants a look",
    "what of",
    "who asks",
    "who may",
];

/// Stable values with such a word: file and word.
const VALUES: &[(&str, &str)] = &[
    ("crates/files/src/layouts/catalog.rs", "catalogue"),
    ("crates/files/src/layouts/error.rs", "catalogue"),
    ("deploy/chart/octavo/ci/reporter-values.yaml", "labelled"),
    ("deploy/chart/octavo/values.schema.json", "labelled"),
    ("deploy/chart/octavo/values.yaml", "labelled"),
    ("docs/reference/reasons.md", "in force"),
    ("docs/reference/reasons.md", "in vain"),
];

#[test]
fn user_text_has_no_former_words() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for text in texts() {
        for (line, prose) in text.prose {
            count += 1;
            let words = format!(" {} ", words(&prose));
            let found =
                WORDS.iter().chain(MORE).filter(|word| words.contains(&format!(" {word} ")));
            for word in found {
                if !VALUES.contains(&(text.path.as_str(), word)) {
                    wrong.push(format!("{}:{line}: {word:?} in {:?}", text.path, prose.trim()));
                }
            }
        }
    }
    assert!(count > 10_000, "the scan found {count} lines");
    assert_none(&wrong);
}

#[test]
fn debug_output_begins_with_the_name_of_the_type() {
    const IMPL: &str = "fmt::Debug for ";
    let wrong = product_sources().flat_map(|source| {
        let written = source.text.split(IMPL).skip(1).filter_map(|rest| {
            let name: String = rest.chars().take_while(|letter| is_word(*letter)).collect();
            let (body, _) = rest.split_once("\n}")?;
            let literal = string_literals(body).first()?.text.trim_matches('"').to_owned();
            (!literal.starts_with(&name)).then(|| format!("{name} is {literal}"))
        });
        written.map(|found| format!("{}: {found}", source.path)).collect::<Vec<_>>()
    });
    assert_none(&wrong.collect::<Vec<_>>());
}

#[test]
fn table_lines_of_pages_have_at_most_160_characters() {
    let mut wrong = Vec::new();
    for path in project_files().filter(|path| has_extension(path, "md")) {
        for (index, line) in read(&path).lines().enumerate() {
            let length = line.chars().count();
            if line.starts_with('|') && length > 160 {
                wrong.push(format!("{path}:{}: {length} characters", index + 1));
            }
        }
    }
    assert_none(&wrong);
}

/// A file with text for users.
struct UserText {
    /// From the root, with forward slashes.
    path: String,
    /// Numbered lines, without code and markup.
    prose: Vec<(usize, String)>,
}

fn texts() -> impl Iterator<Item = UserText> {
    let sources = product_sources().map(messages);
    let files = project_files().filter_map(|path| {
        let prose = match Path::new(&path).extension()?.to_str()? {
            "md" => markdown(&read(&path)),
            "html" if path.starts_with("crates/pages/") => template(&read(&path)),
            "txt" if path.starts_with("src/cli/help/") => numbered(&read(&path)),
            "json" | "yaml" | "txt" if path.starts_with("deploy/") => numbered(&read(&path)),
            "js" if path.starts_with("crates/pages/assets/octavo") => numbered(&read(&path)),
            _ => return None,
        };
        Some(UserText { path, prose })
    });
    sources.chain(files)
}

/// The string literals of a source that contain a space.
fn messages(source: Source) -> UserText {
    let is_test = source.path.contains("/tests/") || source.path.ends_with("/tests.rs");
    let code = if is_test { "" } else { &source.text };
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let literals = string_literals(code).into_iter().filter(|literal| literal.text.contains(' '));
    let prose = literals.map(|literal| (literal.line, literal.text.to_owned())).collect();
    UserText { path: source.path, prose }
}

/// The lines of a Markdown file, without code.
fn markdown(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut prose = Vec::new();
    for (line, text) in numbered(text) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            // Every second part is between backquotes.
            prose.push((line, text.split('`').step_by(2).collect::<Vec<_>>().join(" x ")));
        }
    }
    prose
}

/// The text of a template and its attributes, without expressions.
fn template(text: &str) -> Vec<(usize, String)> {
    let mut text = text.to_owned();
    for (start, end) in [("{%", "%}"), ("{{", "}}"), ("{#", "#}")] {
        while let Some(at) = text.find(start) {
            let length = text[at..].find(end).map_or(text.len() - at, |length| length + end.len());
            let lines = "\n".repeat(text[at..at + length].matches('\n').count());
            text.replace_range(at..at + length, &format!(" x {lines}"));
        }
    }
    numbered(&text)
}

fn numbered(text: &str) -> Vec<(usize, String)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

/// Every file with text of the project, from the root, with forward slashes.
fn project_files() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name());
    let pages =
        entries.filter_map(|name| name.into_string().ok()).filter(|name| has_extension(name, "md"));
    let directories = ["crates", "demo", "deploy", "docs", "src", "tests/nvml-sim"];
    pages.chain(directories.into_iter().flat_map(files))
}
