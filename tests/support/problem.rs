//! Problems in `docs/operations/troubleshooting.md`: compares the output that the page quotes with the output of the programs.

use std::cell::RefCell;
use std::fs;

use crate::process::Program;

/// Wildcard in a quotation.
const WILDCARD: char = '…';
/// Minimum number of fixed bytes in a quotation. Shorter ones match anything.
const MIN_FIXED_LEN: usize = 10;
/// Line before the list of quotations.
const REPORTS: &str = "Octavo reports:";

/// The page.
pub(crate) fn document() -> String {
    let path = super::root().join("docs/operations/troubleshooting.md");
    fs::read_to_string(path).unwrap()
}

/// The id of the problem in a line with a test marker.
pub(crate) fn id(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("<!-- test: ")?;
    let (id, _) = rest.split_once(" -->").unwrap();
    Some(id)
}

/// Sections of the page: from each heading to the next, without the heading.
pub(crate) fn sections(document: &str) -> Vec<Vec<&str>> {
    let mut sections = vec![Vec::new()];
    let mut is_code = false;
    for line in document.lines() {
        is_code ^= line.starts_with("```");
        if line.starts_with('#') && !is_code {
            sections.push(Vec::new());
        } else {
            sections.last_mut().unwrap().push(line);
        }
    }
    sections
}

/// The list items of the quotations of a section with a test marker.
///
/// # Panics
///
/// If the section has no list of quotations, several of them, or no fix.
#[track_caller]
pub(crate) fn quotations<'a>(section: &[&'a str]) -> Vec<&'a str> {
    let count = |start: &str| section.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((count(REPORTS), count("Fix:")), (1, 1), "one list and one fix: {section:#?}");
    let list = section.iter().skip_while(|line| !line.starts_with(REPORTS)).skip(1);
    let items = list.skip_while(|line| line.is_empty());
    let items: Vec<&str> = items.map_while(|line| line.strip_prefix("- ")).collect();
    assert!(!items.is_empty(), "no quotation: {section:#?}");
    items
}

/// A documented problem. Dropping it fails the test if a quotation was not found.
pub(crate) struct Problem {
    id: &'static str,
    quotations: RefCell<Vec<Quotation>>,
}

/// Output that the page quotes, and where it appears.
pub(crate) struct Quotation {
    pub(crate) place: String,
    pieces: Vec<String>,
    is_found: bool,
}

impl Problem {
    /// Reads the problem with this id from the page.
    #[track_caller]
    pub(crate) fn documented(problem: &'static str) -> Self {
        let document = document();
        let sections = sections(&document);
        let mut sections =
            sections.iter().filter(|lines| lines.iter().any(|line| id(line) == Some(problem)));
        let section = sections.next();
        let section = section.unwrap_or_else(|| panic!("the page has no problem {problem}"));
        let quotations = quotations(section).into_iter().map(Quotation::read).collect();
        Self { id: problem, quotations: RefCell::new(quotations) }
    }

    /// Asserts that a line of `text` contains a quotation of `place`.
    #[track_caller]
    pub(crate) fn assert_quoted(&self, place: &str, text: &str) {
        let found = self.record(place, text);
        assert!(found, "{}: no quotation of {place} in:\n{text}", self.id);
    }

    /// Reads a program's log until it contains all quotations of the log.
    #[track_caller]
    pub(crate) fn await_log(&self, program: &mut Program) {
        while let Some(piece) = self.next_log_piece() {
            let line = program.expect_log(&piece);
            let _matches = self.record("log", &line);
        }
    }

    /// Marks the quotations of `place` that a line of `text` contains; returns whether there is one.
    fn record(&self, place: &str, text: &str) -> bool {
        let mut found = false;
        for quotation in self.quotations.borrow_mut().iter_mut() {
            if quotation.place == place && text.lines().any(|line| quotation.is_in(line)) {
                quotation.is_found = true;
                found = true;
            }
        }
        found
    }

    /// The longest piece of the first log quotation that was not found yet.
    fn next_log_piece(&self) -> Option<String> {
        let quotations = self.quotations.borrow();
        let mut open = quotations.iter().filter(|one| one.place == "log" && !one.is_found);
        open.next()?.pieces.iter().max_by_key(|piece| piece.len()).cloned()
    }
}

impl Drop for Problem {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for one in self.quotations.borrow().iter() {
            let quoted = one.pieces.join("…");
            assert!(one.is_found, "{}: {}: {quoted}", self.id, one.place);
        }
    }
}

impl Quotation {
    /// Parses ``event `LayoutBlocked`: `quoted text` ``.
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let (place, quoted) =
            text.split_once(": `").unwrap_or_else(|| panic!("no quotation: {text}"));
        let quoted = quoted.trim_end();
        // Two backticks enclose a text that contains one.
        let quoted = match quoted.strip_prefix('`') {
            Some(rest) => rest.strip_suffix("``").map(str::trim),
            None => quoted.strip_suffix('`'),
        };
        let quoted = quoted.unwrap_or_else(|| panic!("the quotation has no end: {text}"));
        let pieces: Vec<String> = quoted.split(WILDCARD).map(str::to_owned).collect();
        let fixed: usize = pieces.iter().map(String::len).sum();
        assert!(fixed >= MIN_FIXED_LEN, "the quotation is too short: {text}");
        Self { place: place.trim().replace('`', ""), pieces, is_found: false }
    }

    /// Whether a line contains its pieces in their order.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut rest = Some(line);
        for piece in &self.pieces {
            rest = rest.and_then(|rest| rest.split_once(piece.as_str()).map(|(_, rest)| rest));
        }
        rest.is_some()
    }
}
