//! Names that look alike, for those who misspelt one.

/// `known`, those that look most like `name` first.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_by_key(|other| distance(name, other));
    known
}

/// How many characters have to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, left) in one.chars().enumerate() {
        let mut diagonal = line;
        let mut before = line.saturating_add(1);
        let mut next = vec![before];
        for (right, above) in other.iter().zip(row.iter().skip(1)) {
            let change = diagonal.saturating_add(usize::from(left != *right));
            let best = change
                .min(above.saturating_add(1))
                .min(before.saturating_add(1));
            diagonal = *above;
            before = best;
            next.push(best);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_comes_first() {
        let known = ["all-1g.10gb", "serving", "notebooks"];
        assert_eq!(
            nearest("servin", known),
            ["serving", "notebooks", "all-1g.10gb"]
        );
        assert_eq!(nearest("all-1g.20gb", known).first(), Some(&"all-1g.10gb"));
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(distance("ab", ""), 2);
    }
}
