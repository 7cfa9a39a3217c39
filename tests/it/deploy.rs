//! The chart and the manifests in `deploy` request exactly the listed privileges.

mod access;
mod chart;
mod cleanup;
mod documents;
mod network;
mod policies;
mod pools;
mod values_page;
mod wrong;

use crate::manifests::chart::{all_values, render, values};
use crate::manifests::list::{self, List};
use crate::manifests::{compare, names};

#[test]
fn chart_requests_exactly_the_listed_privileges_for_any_values() {
    let list = List::read();
    assert_eq!(all_values(), names(list::CHART), "each values file has a list");
    compare(&list, list::CHART, |requested| render(&values(requested.name)));
    assert_eq!(list.unused(), Vec::<&String>::new(), "unused lists");
}

#[test]
fn every_listed_privilege_is_explained_above_the_list() {
    let (explained, _) = list::page().split_once("\n## The list").unwrap();
    let mut looked = 0;
    for line in List::read().lines() {
        let (_, what) = line.split_once(": ").unwrap();
        let words: Vec<&str> = what.split([' ', '=']).collect();
        let word = match words.as_slice() {
            [_, "has", _, _] => words[2],
            [_, key, value] if key.ends_with("capabilities.add") => value,
            [_, key, value] if key.ends_with("hostPath.path") => value,
            [_, key, _] if key.ends_with("appArmorProfile.type") => "AppArmor",
            ["runtimeClassName", _] => "runtimeClassName",
            [_verb, resource, "of", ..] => resource,
            _ => continue,
        };
        looked += 1;
        assert!(explained.contains(word), "{word:?} of {line:?} has no reason");
    }
    assert!(looked > 20, "{looked}");
}
