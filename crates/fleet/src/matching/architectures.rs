//! Order of chip families. Families are ordered within one product line of a vendor, never across vendors: comparing
//! Hopper with CDNA3 would mean nothing to software.
//!
//! Sources: NVIDIA's compute capabilities (5.x Maxwell to 12.x Blackwell; the catalog's S3) and AMD's numbering of CDNA
//! and RDNA, which are two lines; AWS numbers its `NeuronCores`; Intel numbers Gaudi.

use octavo_model::similar_names;

/// A chip family and its position in its product line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Product line; only families of the same line are comparable.
    pub line: &'static str,
    /// Position in the line, oldest first.
    pub step: usize,
    /// Family name.
    pub name: &'static str,
}

/// Product lines with their families, oldest first, named as in the catalog.
const PRODUCT_LINES: &[(&str, &[&str])] = &[
    (
        "NVIDIA",
        &[
            "Kepler",
            "Maxwell",
            "Pascal",
            "Volta",
            "Turing",
            "Ampere",
            "Ada Lovelace",
            "Hopper",
            "Blackwell",
            "Blackwell Ultra",
        ],
    ),
    ("AMD CDNA", &["CDNA", "CDNA2", "CDNA3", "CDNA4"]),
    ("AMD RDNA", &["RDNA", "RDNA2", "RDNA3"]),
    ("AWS Neuron", &["NeuronCore-v1", "NeuronCore-v2", "NeuronCore-v3", "NeuronCore-v4"]),
    ("Gaudi", &["Gaudi", "Gaudi 2", "Gaudi 3"]),
];

/// Returns the chip family with this catalog name; `None` if it belongs to no line.
pub fn generation(name: &str) -> Option<Generation> {
    all().find(|one| one.name == name)
}

/// Parses a chip family written by a user. Ignores case, spaces and hyphens; `ada` is Ada Lovelace.
pub(super) fn parse(text: &str) -> Option<Generation> {
    let requested = normalize(text);
    if requested.is_empty() || text.len() > 40 {
        return None;
    }
    let requested = if requested == "ada" { normalize("Ada Lovelace") } else { requested };
    all().find(|one| normalize(one.name) == requested)
}

/// Returns all names for error messages.
pub(super) fn names() -> String {
    let names: Vec<&str> = all().map(|one| one.name).collect();
    names.join(", ")
}

/// Returns the name most similar to `text`.
pub(super) fn suggest(text: &str) -> Option<&'static str> {
    similar_names::closest(text, all().map(|one| one.name))
}

fn all() -> impl Iterator<Item = Generation> {
    PRODUCT_LINES.iter().flat_map(|(line, names)| {
        let steps = names.iter().enumerate();
        steps.map(|(step, name)| Generation { line, step, name })
    })
}

fn normalize(text: &str) -> String {
    let significant = text.chars().filter(|c| c.is_alphanumeric());
    significant.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use octavo_model::accelerators::products;

    use super::*;

    #[test]
    fn nvidia_families_are_ordered_by_compute_capability() {
        let products = products().iter();
        let mut known: Vec<(usize, u32)> = products
            .filter_map(|one| {
                let step = generation(one.architecture)?.step;
                Some((step, one.compute_capability?.major))
            })
            .collect();
        known.sort_unstable();
        assert!(known.len() > 30);
        // B300 (10.3) is newer than the workstations' Blackwell (12.0), so Ultra is left out.
        let ultra = generation("Blackwell Ultra").unwrap().step;
        let majors: Vec<u32> =
            known.iter().filter(|(step, _)| *step < ultra).map(|(_, major)| *major).collect();
        assert!(majors.is_sorted(), "{known:?}");
    }

    #[test]
    fn every_catalog_architecture_has_a_line_or_is_listed_as_alone() {
        let alone = ["Ponte Vecchio", "ATS-M", "Goya", "Greco"];
        for one in products() {
            let known = generation(one.architecture).is_some() || alone.contains(&one.architecture);
            assert!(known, "{}: {}", one.sku, one.architecture);
        }
    }

    #[test]
    fn family_names_are_parsed_leniently() {
        for (text, name) in [
            ("hopper", "Hopper"),
            ("ADA", "Ada Lovelace"),
            ("cdna-3", "CDNA3"),
            ("gaudi2", "Gaudi 2"),
        ] {
            assert_eq!(parse(text).unwrap().name, name);
        }
        assert_eq!(parse("hoper"), None);
        assert_eq!(suggest("hoper"), Some("Hopper"));
        assert_eq!(parse(""), None);
    }
}
