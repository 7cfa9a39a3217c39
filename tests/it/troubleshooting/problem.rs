//! Tests of the quotations in the page.

use crate::problem::Quotation;

#[test]
fn quotation_matches_any_text_for_its_wildcards_only() {
    let quoted = Quotation::read("event `Told`: ``GPU …: see `octavo inspect` for …``");
    assert_eq!(quoted.place, "event Told");
    assert!(quoted.is_in("WARN GPU 7: see `octavo inspect` for the cause"));
    assert!(!quoted.is_in("GPU 7: look at `octavo inspect`"));
    assert!(!quoted.is_in(": see `octavo inspect` for GPU 7"));
}
