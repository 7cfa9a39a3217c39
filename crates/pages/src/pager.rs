//! Links to the other pages of a list of nodes.

use octavo_store::query::Page;

use super::address::{ListAddress, encoded, moved};

/// Links to other pages, with the number of nodes.
#[derive(Debug)]
pub(super) struct Pager {
    pub(super) words: String,
    pub(super) first: Option<String>,
    pub(super) next: Option<String>,
}

impl Pager {
    /// The links with another path.
    pub(super) fn moved(self, path: &str) -> Self {
        let moved = |link: Option<String>| link.map(|link| moved(&link, path));
        Self { first: moved(self.first), next: moved(self.next), ..self }
    }
}

/// Links to the other pages of a list of nodes.
pub(super) fn pager(address: &ListAddress, found: &Page, all: usize) -> Option<Pager> {
    let first = !address.get("continue").is_empty();
    if !first && found.next.is_none() {
        return None;
    }
    let next = found.next.as_ref().map(|token| {
        let here = address.with("continue", "");
        let join = if here.contains('?') { '&' } else { '?' };
        format!("{here}{join}continue={}", encoded(&token.to_string()))
    });
    Some(Pager {
        words: format!(
            "{} of {} matching nodes shown; {all} in total",
            found.items.len(),
            found.total
        ),
        first: first.then(|| address.with("continue", "")),
        next,
    })
}
