//! Node labels that identify the type of a node's devices, and the types that their values name.

use std::collections::BTreeSet;

use octavo_model::accelerators::{AliasKind, Catalog, Lookup};
use octavo_model::id::TypeName;

/// Octavo's type label.
pub const TYPE_LABEL: &str = "octavo.dev/type";
/// Value of the type label for devices of several types.
pub const MIXED: &str = "mixed";
/// Value of the type label for unidentified devices.
pub const UNKNOWN: &str = "unknown";
/// Labels with the memory of one device, in MiB.
pub(crate) const MEMORY_LABELS: [&str; 2] = ["octavo.dev/memory-mib", "nvidia.com/gpu.memory"];
/// GPU Feature Discovery's label of the product.
pub const NVIDIA_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";
/// Suffixes that GPU Feature Discovery adds to a product name for shared or partitioned devices.
const SHARED_SUFFIX: &str = "-SHARED";
const MIG_INFIX: &str = "-MIG-";

/// Type named by a value of the type label; `unknown` and `mixed` are no types.
pub(crate) fn parse_type(value: &str) -> Option<TypeName> {
    value.parse().ok().filter(|_| value != UNKNOWN && value != MIXED)
}

/// Labels by which vendors and clouds name a product, in the order in which they count.
pub(crate) fn vendor_labels() -> impl Iterator<Item = (AliasKind, &'static str)> {
    let kinds = AliasKind::NODE_LABEL_KINDS.into_iter();
    kinds.flat_map(|kind| kind.labels().iter().map(move |label| (kind, *label)))
}

/// Splits a value of a product label into the product, the profile of its partitions, and whether it is time-sliced.
pub fn parse_product_label(value: &str) -> (&str, Option<&str>, bool) {
    let name = value.strip_suffix(SHARED_SUFFIX);
    let (value, is_shared) = (name.unwrap_or(value), name.is_some());
    match value.split_once(MIG_INFIX) {
        Some((product, profile)) => (product, Some(profile), is_shared),
        None => (value, None, is_shared),
    }
}

/// Type that the value of a vendor's label names. A name that several types share is ignored.
pub(crate) fn type_of(catalog: &Catalog, kind: AliasKind, value: &str) -> Option<TypeName> {
    let (product, _, _) = parse_product_label(value);
    match types_of(catalog, &catalog.lookup_as(kind, product)).as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

/// Types of the products found in the catalog, sorted by name.
pub(crate) fn types_of(catalog: &Catalog, found: &Lookup) -> Vec<TypeName> {
    let skus = match found {
        Lookup::Found(sku) => std::slice::from_ref(sku),
        Lookup::Ambiguous(skus) => skus,
        Lookup::Unknown(_) => &[],
    };
    let types = skus.iter().filter_map(|sku| Some(&catalog.product(sku)?.type_name));
    let types: BTreeSet<&TypeName> = types.collect();
    types.into_iter().cloned().collect()
}
