//! The rules of `ARCHITECTURE.md`, as a test: who may use whom, what stays out of pure code, how long a file may get.
//!
//! One package cannot state these through Cargo.toml, and rules that nothing enforces do not last. The scan is textual on
//! purpose: it sees exactly what a reader sees, and it needs no compiler plug-in.

mod cycles;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

/// A module of the first level and what it may name besides itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("files", &[]),
    ("config", &["domain", "files"]),
    ("proto", &[]),
    ("wire", &["domain", "proto"]),
    ("hw", &["domain", "files"]),
    ("k8s", &["domain", "files", "wire", "proto"]),
    ("telemetry", &["config"]),
    ("tasks", &[]),
    (
        "agent",
        &[
            "domain",
            "files",
            "config",
            "hw",
            "k8s",
            "wire",
            "proto",
            "telemetry",
            "tasks",
            "apply",
            "config_files",
        ],
    ),
    (
        "aggregator",
        &[
            "domain",
            "files",
            "config",
            "config_files",
            "k8s",
            "wire",
            "proto",
            "telemetry",
            "tasks",
        ],
    ),
    ("config_files", &["domain", "files", "wire"]),
    ("apply", &["domain", "files", "config", "hw", "wire", "k8s"]),
    (
        "cli",
        &[
            "domain",
            "files",
            "config",
            "hw",
            "k8s",
            "wire",
            "proto",
            "apply",
            "config_files",
        ],
    ),
];

/// Parts of a module that are closed even to those who may use the module: only `bin` names concrete adapters.
const CLOSED: &[(&str, &str)] = &[
    ("agent", "hw::nvml"),
    ("apply", "hw::nvml"),
    ("cli", "hw::nvml"),
    ("aggregator", "hw"),
];

/// What must not occur in `domain`.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::io",
    "Instant",
    "SystemTime",
    "tokio",
    "tracing",
    "serde",
    "async fn",
    "jiff",
    "nix::",
    "println!",
];

/// Names that may occur in one place only, and where.
const ONLY_IN: &[(&str, &str)] = &[
    ("unsafe ", "src/hw/nvml/"),
    ("nvml_wrapper", "src/hw/nvml/"),
    ("procfs::", "src/hw/"),
    ("std::env::", "src/config/"),
    ("kube::", "src/k8s/"),
];

/// Longest file, not counting its tests.
const MAX_LINES: usize = 500;

#[test]
fn modules_use_only_what_the_architecture_lets_them() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let Some(module) = source.module() else {
            continue;
        };
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!(
                "{}: module {module} is not in the table",
                source.path
            ));
            continue;
        };
        for (number, line) in source.code() {
            for (name, path) in uses(line) {
                let closed = CLOSED
                    .iter()
                    .any(|(from, to)| *from == module && path.starts_with(to));
                if closed || (name != module && !allowed.contains(&name)) {
                    wrong.push(format!(
                        "{}:{number}: {module} may not use {path}",
                        source.path
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_domain_is_pure() {
    let domain = sources("src/domain");
    assert!(domain.len() > 5, "the scan found no domain");
    let wrong: Vec<String> = domain
        .iter()
        .flat_map(|source| {
            source.code().filter_map(|(number, line)| {
                let word = IMPURE.iter().find(|word| line.contains(*word))?;
                Some(format!("{}:{number}: {word:?} in pure code", source.path))
            })
        })
        .collect();
    assert_none(&wrong);
}

#[test]
fn some_names_stay_in_their_place() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        for (number, line) in source.code() {
            for (name, place) in ONLY_IN {
                if line.contains(name) && !source.path.starts_with(place) {
                    wrong.push(format!(
                        "{}:{number}: {name:?} belongs in {place}",
                        source.path
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_task_has_an_owner() {
    let programs = [
        "src/agent/",
        "src/aggregator/",
        "src/apply/",
        "src/bin/",
        "src/k8s/",
    ];
    let mut wrong = Vec::new();
    for source in sources("src") {
        let is_program = programs.iter().any(|start| source.path.starts_with(start));
        if !is_program || source.path.contains("/tests/") {
            continue;
        }
        for (number, line) in source.code() {
            // Without its handle nobody notices that a task has panicked, and nobody waits for its end.
            if line.trim().starts_with("tokio::spawn(") || line.contains("drop(tokio::spawn(") {
                wrong.push(format!(
                    "{}:{number}: give the task to a JoinSet",
                    source.path
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        let lines = source.before_tests().count();
        if lines > MAX_LINES {
            wrong.push(format!("{}: {lines} lines before its tests", source.path));
        }
        if !source.text.starts_with("//!") {
            wrong.push(format!(
                "{}: does not begin with a module comment",
                source.path
            ));
        }
    }
    assert_none(&wrong);
}

#[test]
fn nothing_is_left_unfinished_and_no_test_is_switched_off() {
    let unfinished = [
        "todo!(",
        "unimplemented!(",
        "#[ignore",
        "FIXME",
        "XXX",
        "dbg!(",
    ];
    let mut wrong = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        // This file names the words in order to forbid them.
        if source.path.ends_with("it/tidy.rs") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = unfinished.iter().find(|word| line.contains(*word)) {
                wrong.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_architecture_page_stays_readable() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = page.lines().count();
    assert!(
        lines <= 150,
        "ARCHITECTURE.md has {lines} lines, 150 is the limit"
    );
    for (module, _) in MAY_USE {
        let built = ["", ".rs", "/mod.rs"]
            .iter()
            .any(|end| root().join(format!("src/{module}{end}")).is_file());
        assert!(
            !built
                || page.contains(&format!("`{module}`"))
                || page.contains(&format!("src/{module}")),
            "ARCHITECTURE.md does not name the module {module}"
        );
    }
}

/// A source file of ours.
struct Source {
    /// From the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    /// The module of the first level that the file belongs to; none for `lib.rs` and the programs.
    fn module(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("src/")?;
        let first = rest.split('/').next()?;
        let name = first.strip_suffix(".rs").unwrap_or(first);
        (!matches!(name, "lib" | "bin")).then_some(name)
    }

    /// Lines before the tests.
    fn before_tests(&self) -> impl Iterator<Item = &str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]")
    }

    /// Numbered lines before the tests, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.before_tests().enumerate().filter_map(|(index, line)| {
            let code = line.split("//").next().unwrap_or_default();
            (!code.trim().is_empty()).then_some((index + 1, code))
        })
    }
}

/// First-level module and whole path of every `crate::…` in a line.
fn uses(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        (path.split("::").next().unwrap_or(path), path)
    })
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "no source under {folder}");
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(Source {
                path: path
                    .strip_prefix(root())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
                text: fs::read_to_string(&path).unwrap(),
            });
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
