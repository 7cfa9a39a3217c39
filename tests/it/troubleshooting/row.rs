//! Tests of quotations in a row of the document.

use crate::row::Quotation;

#[test]
fn what_differs_is_left_out_of_a_quotation_and_nothing_else() {
    let quoted = Quotation::read("event `Told`: ``GPU …: see `octavo inspect` for …``");
    assert_eq!(quoted.place, "event Told");
    assert!(quoted.is_in("WARN GPU 7: see `octavo inspect` for what fails"));
    assert!(!quoted.is_in("GPU 7: look at `octavo inspect`"));
    assert!(!quoted.is_in(": see `octavo inspect` for GPU 7"));
}
