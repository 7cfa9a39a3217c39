//! Names that look alike, for those who misspelt one.

/// `known`, those that look most like `name` first, each with the number of letters to insert, remove, replace or swap with
/// their neighbour. Case and separators do not count. None for a name that is too long to be a slip of the pen.
pub(crate) fn ranked<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<(usize, &'a str)> {
    let Some(name) = plain(name) else {
        return Vec::new();
    };
    let known = known.into_iter();
    let mut ranked: Vec<(usize, &str)> = known
        .filter_map(|other| Some((strsim::osa_distance(&name, &plain(other)?), other)))
        .collect();
    // Those alike stay in the order in which they are known.
    ranked.sort_by_key(|(distance, _)| *distance);
    ranked
}

/// The one of `known` that was probably meant: a third of its letters may differ, and one always.
pub(crate) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |(distance, other): &(usize, &str)| *distance <= (other.len() / 3).max(1);
    ranked(name, known)
        .into_iter()
        .find(near)
        .map(|(_, other)| other)
}

/// Letters and digits in lower case.
fn plain(name: &str) -> Option<String> {
    let letters = || name.chars().filter(|c| c.is_alphanumeric());
    (name.len() <= 128).then(|| letters().flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_comes_first() {
        let known = ["all-1g.10gb", "serving", "notebooks"];
        let first = |name| ranked(name, known).first().map(|(_, name)| *name);
        assert_eq!(first("servin"), Some("serving"));
        assert_eq!(first("all-1g.20gb"), Some("all-1g.10gb"));
        assert_eq!(first("Note-Books"), Some("notebooks"));
        assert_eq!(ranked("", known).len(), 3);
    }

    #[test]
    fn what_looks_like_nothing_known_was_not_meant() {
        let known = ["mig-devices", "mig-enabled", "devices"];
        assert_eq!(meant("mig-device", known), Some("mig-devices"));
        assert_eq!(meant("migEnabled", known), Some("mig-enabled"));
        assert_eq!(meant("deviecs", known), Some("devices"));
        assert_eq!(meant("gpus", known), None);
        assert_eq!(meant(&"devices".repeat(20), known), None);
    }
}
