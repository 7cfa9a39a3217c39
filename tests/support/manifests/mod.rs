//! The manifests in `deploy`: their location, their privileges, and the documented list.

pub(crate) mod chart;
pub(crate) mod list;
pub(crate) mod privileges;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use list::{List, ManifestRequest};

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// Compares all, so that one run reports everything.
pub(crate) fn compare(
    list: &List,
    all: &[ManifestRequest],
    rendered: impl Fn(&ManifestRequest) -> String,
) {
    let wrong =
        all.iter().filter_map(|requested| difference(list, requested, &rendered(requested)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Privileges that are requested and not listed, or listed and not requested.
fn difference(list: &List, requested: &ManifestRequest, rendered: &str) -> Option<String> {
    let found = privileges::of(rendered);
    let listed = list.of(requested);
    let more: Vec<&String> = found.difference(&listed).collect();
    let less: Vec<&String> = listed.difference(&found).collect();
    (!more.is_empty() || !less.is_empty()).then(|| {
        format!(
            "{} asks for what docs/operations/permissions.md does not list: {more:#?}\nand no longer for: {less:#?}",
            requested.name
        )
    })
}

pub(crate) fn names(all: &[ManifestRequest]) -> BTreeSet<String> {
    all.iter().map(|requested| requested.name.to_owned()).collect()
}

/// Commands of the page with this prefix, as words for kubectl.
pub(crate) fn commands<'a>(
    page: &'a str,
    beginning: &'a str,
) -> impl Iterator<Item = Vec<&'a str>> {
    let lines = page.lines().filter(move |line| line.starts_with(beginning));
    lines.map(|line| {
        let line = line.split('#').next().unwrap();
        line.split_whitespace().skip(1).collect()
    })
}
