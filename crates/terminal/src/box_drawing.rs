//! Box drawing characters in place of `+`, `-` and `|` in frames of slices, for terminals that have them. Everything
//! that is not a terminal gets the frames in ASCII, which every log supports.

/// Replaces the frames in a text. Other lines are unchanged.
pub fn draw(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let visible: Vec<Vec<char>> = lines.iter().map(|line| without_colors(line)).collect();
    let at = |line: Option<usize>, column: usize| {
        line.and_then(|line| visible.get(line)).and_then(|line| line.get(column)).copied()
    };
    let drawn = lines.iter().enumerate().map(|(number, line)| {
        let is_rule = visible.get(number).is_some_and(|line| is_rule(line));
        let is_row = visible.get(number).is_some_and(|line| is_row(line));
        if is_rule {
            let (above, below) = (number.checked_sub(1), number.checked_add(1));
            replace(line, |column, c| match c {
                '-' => '─',
                '+' => corner([
                    is_edge(at(above, column)),
                    is_edge(at(below, column)),
                    column.checked_sub(1).is_some_and(|left| at(Some(number), left) != Some(' ')),
                    at(Some(number), column.saturating_add(1)).is_some(),
                ]),
                other => other,
            })
        } else if is_row {
            replace(line, |_, c| if c == '|' { '│' } else { c })
        } else {
            (*line).to_owned()
        }
    });
    drawn.collect::<Vec<String>>().join("\n")
}

fn is_edge(c: Option<char>) -> bool {
    c == Some('|')
}

/// Returns the corner with lines in these directions: up, down, left and right.
fn corner(directions: [bool; 4]) -> char {
    match directions {
        [true, true, true, true] => '┼',
        [true, true, false, _] => '├',
        [true, true, true, false] => '┤',
        [true, false, true, true] => '┴',
        [true, false, false, _] => '└',
        [true, false, true, false] => '┘',
        [false, true, true, true] => '┬',
        [false, true, false, _] => '┌',
        [false, true, true, false] => '┐',
        [false, false, ..] => '─',
    }
}

/// Returns whether a line is an edge of a frame, which may have a label: `  +-after--+`.
fn is_rule(line: &[char]) -> bool {
    line.starts_with(&[' ', ' ', '+', '-']) && line.ends_with(&['+'])
}

fn is_row(line: &[char]) -> bool {
    line.starts_with(&[' ', ' ', '|']) && line.ends_with(&['|']) && line.len() > 3
}

/// Returns the characters of a line without the sequences that color it.
fn without_colors(line: &str) -> Vec<char> {
    let mut visible = Vec::new();
    let mut is_sequence = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => is_sequence = true,
            'm' if is_sequence => is_sequence = false,
            _ if is_sequence => {}
            other => visible.push(other),
        }
    }
    visible
}

/// Replaces the visible characters of a line, given their columns.
fn replace(line: &str, change: impl Fn(usize, char) -> char) -> String {
    let mut result = String::with_capacity(line.len());
    let (mut column, mut is_sequence) = (0_usize, false);
    for c in line.chars() {
        if c == '\u{1b}' {
            is_sequence = true;
        }
        if is_sequence {
            result.push(c);
            is_sequence = c != 'm';
            continue;
        }
        result.push(change(column, c));
        column = column.saturating_add(1);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_drawn_with_matching_corners() {
        let ascii = "GPU 0 - a + b | c\n   0   1\n\
                     \x20 +-before-+\n\
                     \x20 | a | \u{1b}[2mb\u{1b}[0m  |\n\
                     \x20 +---+--+-+\n\
                     \x20 | c    |d|\n\
                     \x20 +------+-+\n\
                     \x20 +-- no frame\n";
        let drawn = "GPU 0 - a + b | c\n   0   1\n\
                     \x20 \u{250c}\u{2500}before\u{2500}\u{2510}\n\
                     \x20 │ a │ \u{1b}[2mb\u{1b}[0m  │\n\
                     \x20 ├───┴──┬─┤\n\
                     \x20 │ c    │d│\n\
                     \x20 └──────┴─┘\n\
                     \x20 +-- no frame\n";
        assert_eq!(draw(ascii), drawn);
    }
}
