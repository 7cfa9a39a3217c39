//! Similar names, for suggestions after a misspelling.

/// Ranks `known` by similarity to `name`, each with its edit distance: insertions, deletions, substitutions and
/// transpositions of adjacent letters. Case and separators do not count. Empty for a name that is too long to be a
/// typing error.
pub fn rank_by_similarity<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<(usize, &'a str)> {
    let Some(name) = normalize(name) else {
        return Vec::new();
    };
    let known = known.into_iter();
    let mut ranked: Vec<(usize, &str)> = known
        .filter_map(|other| Some((strsim::osa_distance(&name, &normalize(other)?), other)))
        .collect();
    // The sort is stable: equally similar names keep their order.
    ranked.sort_by_key(|(distance, _)| *distance);
    ranked
}

/// The name in `known` that was probably meant: up to a third of its letters may differ, and always one.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |(distance, other): &(usize, &str)| *distance <= (other.len() / 3).max(1);
    rank_by_similarity(name, known).into_iter().find(near).map(|(_, other)| other)
}

/// Letters and digits in lower case; `None` if the name is too long.
fn normalize(name: &str) -> Option<String> {
    let letters = || name.chars().filter(|c| c.is_alphanumeric());
    (name.len() <= 128).then(|| letters().flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_similar_name_comes_first() {
        let known = ["all-1g.10gb", "serving", "notebooks"];
        let first = |name| rank_by_similarity(name, known).first().map(|(_, name)| *name);
        assert_eq!(first("servin"), Some("serving"));
        assert_eq!(first("all-1g.20gb"), Some("all-1g.10gb"));
        assert_eq!(first("Note-Books"), Some("notebooks"));
        assert_eq!(rank_by_similarity("", known).len(), 3);
    }

    #[test]
    fn dissimilar_name_has_no_suggestion() {
        let known = ["mig-devices", "mig-enabled", "devices"];
        assert_eq!(closest("mig-device", known), Some("mig-devices"));
        assert_eq!(closest("migEnabled", known), Some("mig-enabled"));
        assert_eq!(closest("deviecs", known), Some("devices"));
        assert_eq!(closest("gpus", known), None);
        assert_eq!(closest(&"devices".repeat(20), known), None);
    }
}
