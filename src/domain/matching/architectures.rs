//! Which chip family is newer. There is an order within one maker's line of chips and none between makers: that a Hopper is
//! newer than a CDNA3 would be true of nothing that a program can use.
//!
//! Sources: NVIDIA's compute capabilities (5.x Maxwell to 12.x Blackwell; the catalogue's S3) and AMD's numbering of CDNA and
//! RDNA, which are two lines; AWS numbers its `NeuronCores`; Intel numbers Gaudi.

use crate::domain::near;

/// A chip family's place in its maker's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// The line: what can be compared with each other.
    pub line: &'static str,
    /// Its place, the oldest first.
    pub step: usize,
    /// Its name.
    pub name: &'static str,
}

/// Lines of chips, the oldest first. Names are the catalogue's.
const LINES: &[(&str, &[&str])] = &[
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
    (
        "AWS Neuron",
        &[
            "NeuronCore-v1",
            "NeuronCore-v2",
            "NeuronCore-v3",
            "NeuronCore-v4",
        ],
    ),
    ("Gaudi", &["Gaudi", "Gaudi 2", "Gaudi 3"]),
];

/// The place of the chip family that the catalogue calls so; `None` where it is in no line.
pub fn generation(name: &str) -> Option<Generation> {
    all().find(|one| one.name == name)
}

/// The chip family that a person means: case, blanks and hyphens do not matter, and `ada` is Ada Lovelace.
pub(super) fn named(text: &str) -> Option<Generation> {
    let asked = plain(text);
    if asked.is_empty() || text.len() > 40 {
        return None;
    }
    let asked = if asked == "ada" {
        plain("Ada Lovelace")
    } else {
        asked
    };
    all().find(|one| plain(one.name) == asked)
}

/// All names, for those who misspelt one.
pub(super) fn names() -> String {
    let names: Vec<&str> = all().map(|one| one.name).collect();
    names.join(", ")
}

/// The name that looks most like `text`.
pub(super) fn near(text: &str) -> Option<&'static str> {
    near::meant(text, all().map(|one| one.name))
}

fn all() -> impl Iterator<Item = Generation> {
    LINES.iter().flat_map(|(line, names)| {
        let steps = names.iter().enumerate();
        steps.map(|(step, name)| Generation { line, step, name })
    })
}

fn plain(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::accelerators::catalogue;

    #[test]
    fn the_order_within_nvidias_line_is_that_of_compute_capabilities() {
        let products = catalogue().iter();
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
        let majors: Vec<u32> = known
            .iter()
            .filter(|(step, _)| *step < ultra)
            .map(|(_, major)| *major)
            .collect();
        assert!(majors.is_sorted(), "{known:?}");
    }

    #[test]
    fn every_architecture_of_the_catalogue_is_in_a_line_or_alone() {
        let alone = ["Ponte Vecchio", "ATS-M", "Goya", "Greco"];
        for one in catalogue() {
            let known = generation(one.architecture).is_some() || alone.contains(&one.architecture);
            assert!(known, "{}: {}", one.sku, one.architecture);
        }
    }

    #[test]
    fn people_write_names_in_many_ways() {
        for (text, name) in [
            ("hopper", "Hopper"),
            ("ADA", "Ada Lovelace"),
            ("cdna-3", "CDNA3"),
            ("gaudi2", "Gaudi 2"),
        ] {
            assert_eq!(named(text).unwrap().name, name);
        }
        assert_eq!(named("hoper"), None);
        assert_eq!(near("hoper"), Some("Hopper"));
        assert_eq!(named(""), None);
    }
}
