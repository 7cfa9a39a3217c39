//! What is to be known of what is given out: whoever has the same trouble stands in one sentence.

use std::collections::BTreeSet;

use crate::domain::id::PciAddress;

/// What was found so far, in the order in which it was met.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// Devices of which nothing is offered because the MIG strategy does not fit.
    pub(super) unoffered: BTreeSet<PciAddress>,
    /// Who it is about, and what.
    all: Vec<(Vec<String>, String)>,
}

impl Warnings {
    /// Something about one of several that may have the same trouble.
    pub(super) fn of(&mut self, who: &str, what: &str) {
        let mut all = self.all.iter_mut();
        let same = all.find(|(known, said)| said == what && !known.is_empty());
        match same {
            Some((known, _)) if known.iter().any(|one| one == who) => {}
            Some((known, _)) => known.push(who.to_owned()),
            None => self.all.push((vec![who.to_owned()], what.to_owned())),
        }
    }

    /// Something about nobody in particular.
    pub(super) fn say(&mut self, what: String) {
        if !self
            .all
            .iter()
            .any(|(who, said)| who.is_empty() && *said == what)
        {
            self.all.push((Vec::new(), what));
        }
    }

    /// As sentences.
    pub(super) fn finish(self) -> Vec<String> {
        let sentences = self.all.into_iter().map(|(who, what)| {
            if who.is_empty() {
                what
            } else {
                format!("{}: {what}", who.join(", "))
            }
        });
        sentences.collect()
    }
}
