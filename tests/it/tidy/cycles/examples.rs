//! Small libraries with and without cycles.

use super::Crate;

/// Messages of the cycles of a library with these files: path below `src` and text.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &str| {
        let file = files.iter().find(|(name, _)| path == format!("src/{name}"));
        file.map(|(_, text)| (*text).to_owned())
    };
    let parsed = Crate::parse("src/lib.rs", &read);
    parsed.cycles().into_iter().map(|cycle| cycle.message).collect()
}

const LIB: (&str, &str) = ("lib.rs", "mod a; mod b; pub struct Item;");

#[test]
fn cycle_names_a_line_for_each_edge() {
    let a = "//! A.\nuse crate::{\n    Item, b::{self, One as Other},\n};\nfn f(x: b::Two) {}";
    let b = "impl super::a::Trait for One {}";
    let expected = "module cycle in src/lib.rs: a, b\
        \n    a -> b: src/a.rs:3 names crate::b and 2 more\
        \n    b -> a: src/b.rs:1 names super::a::Trait";
    assert_eq!(cycles(&[LIB, ("a.rs", a), ("b.rs", b)]), [expected]);
}

#[test]
fn one_direction_is_no_cycle() {
    let files =
        [LIB, ("a.rs", "use crate::b::One; use super::Item;"), ("b.rs", "use crate::Item;")];
    assert!(cycles(&files).is_empty());
}

#[test]
fn re_export_in_the_parent_leads_to_the_child() {
    let lib = "mod a; mod b; mod c; pub use c::One; use std::fmt;";
    let b = "use super::{One as Two, fmt}; fn f() { super::a::g() }";
    let files = [("lib.rs", lib), ("a.rs", "fn g(x: crate::One) {}"), ("b.rs", b)];
    let step = ("c.rs", "pub use crate::a::One;");
    assert_eq!(cycles(&[&files[..], &[step]].concat()).len(), 1, "{step:?}");
    let glob = ("c.rs", "pub use crate::b::*;");
    let found = cycles(&[&files[..2], &[("b.rs", "pub struct One; use super::a;"), glob]].concat());
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn tests_comments_and_literals_are_ignored() {
    let b = r##"
        // crate::a::One
        /* crate::a::One */
        const X: (&str, &str, char, u8) = ("\" crate::a::One", r#" " crate::a::One"#, '"', b'\'');
        fn f<'a>(x: &'a str) {}
        #[cfg(test)]
        use crate::a::One;
        #[cfg(test)]
        mod checks { use crate::a::One; }
        mod tests;
    "##;
    let files = [LIB, ("a.rs", "use crate::b::X;"), ("b.rs", b)];
    assert!(cycles(&files).is_empty(), "{:?}", cycles(&files));
    let live = b.replace("#[cfg(test)]", "");
    let files = [LIB, ("a.rs", "use crate::b::X;"), ("b.rs", &live)];
    assert_eq!(cycles(&files).len(), 1);
}

#[test]
fn cycle_below_the_first_level_is_found() {
    let files = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod one; mod two; pub mod three { use super::one; }"),
        ("a/one.rs", "mod deep;"),
        ("a/one/deep.rs", "use super::super::two::Item;"),
        ("a/two.rs", "use crate::a::three;"),
    ];
    let found = cycles(&files);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("module cycle in src/a/mod.rs: one, three, two\n"));
}
