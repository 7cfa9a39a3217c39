//! Words of reasons: one table, and no second spelling.

mod page;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use octavo_model::reason::Reason;
use serde_json::Value;

use super::{read, root};
use crate::golden::golden;
use crate::machine::Machine;

#[test]
fn reasons_page_matches_code() {
    golden("../../docs/reference/reasons.md", &page::page());
}

#[test]
fn each_reason_has_a_meaning_and_a_remedy_in_sentences() {
    for &reason in Reason::ALL {
        for sentence in [reason.meaning(), reason.remedy()] {
            assert!(sentence.ends_with('.') && !sentence.contains('|'), "{sentence}");
            assert!(!sentence.contains('\n') && !sentence.contains("  "), "{sentence}");
        }
    }
}

/// The same letters with another meaning, which no reason affects: file and word.
const OTHERS: &[(&str, &str)] = &[
    // Values of mig-manager's labels.
    ("src/agent/src/cluster/operator_labels.rs", "failed"),
    ("src/agent/src/cluster/operator_labels.rs", "pending"),
    ("crates/node/src/node_object/selection.rs", "pending"),
    // Units that pods wait for.
    ("src/aggregator/src/rest/availability.rs", "pending"),
    ("crates/pages/src/availability.rs", "pending"),
    // Result of a token review.
    ("src/aggregator/src/auth.rs", "failed"),
    // A device with an old reading, and an outdated page.
    ("crates/pages/src/layout.rs", "stale"),
    ("crates/pages/src/sharing.rs", "stale"),
    ("crates/pages/src/badges.rs", "stale"),
    // An icon, numbers of nodes and devices, and failed requests.
    ("crates/pages/src/policies/detail.rs", "stale"),
    ("crates/policy/src/messages.rs", "blocked"),
    ("crates/policy/src/messages.rs", "failed"),
    ("src/aggregator/src/policies/metrics.rs", "applied"),
    ("src/aggregator/src/policies/metrics.rs", "failed"),
    ("crates/kube/src/policies/client.rs", "failed"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn reason_strings_are_spelled_in_one_file_only() {
    let mut files = Vec::new();
    for directory in ["src", "crates"] {
        sources(&root().join(directory), &mut files);
    }
    assert!(files.len() > 100, "the scan found nothing");
    let spellings: BTreeSet<String> = Reason::ALL
        .iter()
        .flat_map(|reason| [Some(reason.as_str()), reason.event()])
        .flatten()
        .map(|word| format!("\"{word}\""))
        .collect();
    let mut found = BTreeSet::new();
    for path in files {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let text = read(&path);
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        if name.starts_with("crates/model/src/reason") {
            continue;
        }
        for line in shipped.lines().filter(|line| !line.trim().starts_with("//")) {
            for word in spellings.iter().filter(|word| line.contains(*word)) {
                found.insert((name.to_owned(), word.trim_matches('"').to_owned()));
            }
        }
    }
    let known: BTreeSet<(String, String)> =
        OTHERS.iter().map(|(file, word)| ((*file).to_owned(), (*word).to_owned())).collect();
    let second: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(second.is_empty(), "spelled a second time: {second:?}");
    assert!(gone.is_empty(), "no longer there, so take them off the list: {gone:?}");
}

#[test]
fn reason_is_in_text_log_and_in_json_log_as_a_field() {
    let machine = Machine::without_driver(
        "machine: bare\ndriver: 570.133.20\ngpus: [{board: H100_80GB_SXM}]\n",
    );
    let mut agent = machine.agent(&[]);
    let line = agent.expect_log("nvml: absent");
    assert!(line.ends_with(" reason=no-driver"), "{line}");
    let mut agent = machine.agent(&["--log-format=json"]);
    let line: Value = serde_json::from_str(&agent.expect_log("nvml: absent")).unwrap();
    assert_eq!(line["fields"]["reason"], "no-driver");
}
