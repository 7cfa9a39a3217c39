//! The driver's names for products: comparing them, and making a type out of one that the catalogue does not have.

use std::collections::BTreeSet;

use crate::domain::accelerators::facts::{Facts, catalogue};
use crate::domain::accelerators::memory::marketed_gb;
use crate::domain::fit;
use crate::domain::id::TypeName;
use crate::domain::inventory::Vendor;
use crate::domain::quantity::Mebibytes;

/// Words that name the maker or a brand it dropped; NVML printed `Tesla V100-SXM2-16GB` and prints `NVIDIA A100-SXM4-80GB`.
const MAKERS: &[&str] = &["nvidia", "tesla", "amd", "aws"];

/// Products of `vendor` that the driver calls exactly so.
pub(super) fn with_name(vendor: Vendor, name: &str) -> Vec<&'static Facts> {
    let wanted = words(name);
    catalogue()
        .iter()
        .filter(|facts| facts.vendor == vendor && words(facts.name) == wanted)
        .collect()
}

/// Whether two names are one, as far as it matters.
pub(super) fn same(one: &str, other: &str) -> bool {
    words(one) == words(other)
}

/// Those of `candidates` whose name has most words in common with `name`, all of theirs being in it; all of them when none has.
pub(super) fn best_named<'a>(candidates: Vec<&'a Facts>, name: &str) -> Vec<&'a Facts> {
    let given = words(name);
    let common = |facts: &Facts| {
        let own = words(facts.name);
        own.is_subset(&given).then_some(own.len())
    };
    let Some(most) = candidates.iter().filter_map(|facts| common(facts)).max() else {
        return candidates;
    };
    let mut best = candidates;
    best.retain(|facts| common(facts) == Some(most));
    best
}

/// A type for a product that only the driver knows: its words without form factor and memory, and the size it is sold as.
pub(super) fn derived(name: &str, memory: Option<Mebibytes>) -> Option<TypeName> {
    let lower = name.to_ascii_lowercase();
    let model: Vec<&str> = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !MAKERS.contains(word) && !says_no_model(word))
        .collect();
    if model.is_empty() {
        return None;
    }
    sized(&format!("nvidia-{}", model.join("-")), memory)
}

/// `model` with the size that a device showing `memory` is sold as.
pub(super) fn sized(model: &str, memory: Option<Mebibytes>) -> Option<TypeName> {
    let size = memory.map_or_else(String::new, |seen| format!("-{}gb", marketed_gb(seen)));
    let whole = format!("{model}{size}");
    whole
        .parse()
        .ok()
        .or_else(|| fit::shortened(model, model, &size).parse().ok())
}

/// A form factor, a kind of memory or a size: what a type leaves out or says at its end.
fn says_no_model(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    word == "pcie"
        || word == "nvl"
        || word.starts_with("hbm")
        || word
            .strip_prefix("sxm")
            .is_some_and(|rest| rest.is_empty() || digits(rest))
        || word.strip_suffix("gb").is_some_and(digits)
}

/// The words of a name in lower case, without makers and without what stands in parentheses.
fn words(name: &str) -> BTreeSet<String> {
    let name = name.split('(').next().unwrap_or(name).to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !MAKERS.contains(word))
        .map(str::to_owned)
        .collect()
}
