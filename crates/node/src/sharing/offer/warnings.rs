//! Warnings about offers. Subjects with the same problem are combined in one sentence.

use std::collections::BTreeSet;

use octavo_model::id::PciAddress;

/// Warnings in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// Devices that are not offered because the MIG strategy does not fit.
    pub(super) unoffered: BTreeSet<PciAddress>,
    /// Subjects and message of each warning.
    all: Vec<(Vec<String>, String)>,
}

impl Warnings {
    /// Adds a warning about one of several subjects that may have the same problem.
    pub(super) fn add_for(&mut self, who: &str, what: &str) {
        let mut all = self.all.iter_mut();
        let same = all.find(|(known, text)| text == what && !known.is_empty());
        match same {
            Some((known, _)) if known.iter().any(|one| one == who) => {}
            Some((known, _)) => known.push(who.to_owned()),
            None => self.all.push((vec![who.to_owned()], what.to_owned())),
        }
    }

    /// Adds a warning without a subject.
    pub(super) fn add(&mut self, what: String) {
        if !self.all.iter().any(|(who, text)| who.is_empty() && *text == what) {
            self.all.push((Vec::new(), what));
        }
    }

    /// Formats the warnings as sentences.
    pub(super) fn into_messages(self) -> Vec<String> {
        let sentences = self.all.into_iter().map(|(who, what)| {
            if who.is_empty() { what } else { format!("{}: {what}", who.join(", ")) }
        });
        sentences.collect()
    }
}
