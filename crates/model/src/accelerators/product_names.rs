//! Comparison of driver product names, and derivation of a type from a name that is not in the catalog.

use std::collections::BTreeSet;

use crate::accelerators::facts::{Facts, products};
use crate::accelerators::memory::marketed_gb;
use crate::id::{Sku, TypeName};
use crate::inventory::Vendor;
use crate::label_shortening;
use crate::quantity::Mebibytes;
use crate::text::join;

/// Words that name a vendor or a discontinued brand: NVML used to report `Tesla V100-SXM2-16GB` and now reports
/// `NVIDIA A100-SXM4-80GB`.
const VENDOR_WORDS: &[&str] = &["nvidia", "tesla", "amd", "aws"];

/// Placeholder values of labels without a single type; no type may have these names.
pub(super) const RESERVED_TYPE_NAMES: [&str; 2] = ["mixed", "unknown"];

/// Formats a list of SKUs.
pub(super) fn format_skus(skus: &[Sku]) -> String {
    join(skus.iter().map(Sku::as_str), ", ")
}

/// Products of `vendor` whose name equals the driver's product name.
pub(super) fn products_named(vendor: Vendor, name: &str) -> Vec<&'static Facts> {
    let wanted = words(name);
    products()
        .iter()
        .filter(|facts| facts.vendor == vendor && words(facts.name) == wanted)
        .collect()
}

/// Candidates whose name shares most words with `name`, among those whose words all occur in it; all candidates if
/// there are none.
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

/// Derives a type for a product that is not in the catalog: the words of the driver's name without form factor and
/// memory, followed by the marketed size.
pub(super) fn derive_type(name: &str, memory: Option<Mebibytes>) -> Option<TypeName> {
    let lower = name.to_ascii_lowercase();
    let model: Vec<&str> = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !VENDOR_WORDS.contains(word) && !is_not_model_word(word))
        .collect();
    if model.is_empty() {
        return None;
    }
    with_memory_suffix(&format!("nvidia-{}", model.join("-")), memory)
}

/// Appends to `model` the marketed size of a device that reports `memory`.
pub(super) fn with_memory_suffix(model: &str, memory: Option<Mebibytes>) -> Option<TypeName> {
    let size = memory.map_or_else(String::new, |seen| format!("-{}gb", marketed_gb(seen)));
    let whole = format!("{model}{size}");
    whole.parse().ok().or_else(|| label_shortening::shorten(model, model, &size).parse().ok())
}

/// Returns `true` if a word is a form factor, a kind of memory or a size. Types omit these or place them at the end.
fn is_not_model_word(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    word == "pcie"
        || word == "nvl"
        || word.starts_with("hbm")
        || word.strip_prefix("sxm").is_some_and(|rest| rest.is_empty() || digits(rest))
        || word.strip_suffix("gb").is_some_and(digits)
}

/// Words of a name in lower case, without vendors and without text in parentheses.
fn words(name: &str) -> BTreeSet<String> {
    let name = name.split('(').next().unwrap_or(name).to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !VENDOR_WORDS.contains(word))
        .map(str::to_owned)
        .collect()
}
