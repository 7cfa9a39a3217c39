//! A row of the document: what it says that Octavo says, held against what Octavo does say.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use crate::process::Program;

/// Stands for what differs from time to time.
const ANY: char = '…';
/// So much of a quotation is to be its own, or it would be found in anything.
const OWN: usize = 10;

/// The whole document.
pub(crate) fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/troubleshooting.md");
    fs::read_to_string(path).unwrap()
}

/// The id in a line of the document, where it is a row.
pub(crate) fn id(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("<!-- test: ")?;
    let (id, _) = rest.split_once(" -->").unwrap();
    Some(id)
}

/// A row whose quotations are looked for. When it is dropped all of them were found, or the test fails.
pub(crate) struct Row {
    id: &'static str,
    quotations: RefCell<Vec<Quotation>>,
}

/// What a row quotes of a place.
pub(crate) struct Quotation {
    pub(crate) place: String,
    pieces: Vec<String>,
    is_found: bool,
}

impl Row {
    /// The row with this id.
    #[track_caller]
    pub(crate) fn of(row: &'static str) -> Self {
        let document = document();
        let line = document.lines().find(|line| id(line) == Some(row));
        let line = line.unwrap_or_else(|| panic!("the document has no row {row}"));
        let cells: Vec<&str> = line.split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row} has three cells");
        let quotations: Vec<Quotation> = cells[1].split("<br>").map(Quotation::read).collect();
        Self {
            id: row,
            quotations: RefCell::new(quotations),
        }
    }

    /// Octavo said `text` at `place`: what the row quotes from there is in one line of it.
    #[track_caller]
    pub(crate) fn finds(&self, place: &str, text: &str) {
        let found = self.looks(place, text);
        assert!(found, "{}: not what is quoted of {place}:\n{text}", self.id);
    }

    /// Reads what a program says until it has said all that the row quotes of its log.
    #[track_caller]
    pub(crate) fn hears(&self, program: &mut Program) {
        while let Some(piece) = self.next("log") {
            let line = program.says(&piece);
            let _another_with_this_piece = self.looks("log", &line);
        }
    }

    fn looks(&self, place: &str, text: &str) -> bool {
        let mut found = false;
        for quotation in self.quotations.borrow_mut().iter_mut() {
            if quotation.place == place && text.lines().any(|line| quotation.is_in(line)) {
                quotation.is_found = true;
                found = true;
            }
        }
        found
    }

    /// The longest piece of the first quotation of `place` that was not found yet.
    fn next(&self, place: &str) -> Option<String> {
        let quotations = self.quotations.borrow();
        let mut open = quotations
            .iter()
            .filter(|one| one.place == place && !one.is_found);
        open.next()?
            .pieces
            .iter()
            .max_by_key(|piece| piece.len())
            .cloned()
    }
}

impl Drop for Row {
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
    /// ``event `LayoutBlocked`: `what it says` ``
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let (place, quoted) = text
            .split_once(": `")
            .unwrap_or_else(|| panic!("no quotation: {text}"));
        let quoted = quoted.trim_end();
        // With two there may be one within.
        let quoted = match quoted.strip_prefix('`') {
            Some(rest) => rest.strip_suffix("``").map(str::trim),
            None => quoted.strip_suffix('`'),
        };
        let quoted = quoted.unwrap_or_else(|| panic!("the quotation does not end: {text}"));
        let pieces: Vec<String> = quoted.split(ANY).map(str::to_owned).collect();
        let own: usize = pieces.iter().map(String::len).sum();
        assert!(own >= OWN, "this is found in anything: {text}");
        Self {
            place: place.trim().replace('`', ""),
            pieces,
            is_found: false,
        }
    }

    /// Whether its pieces are in a line, in their order.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut rest = Some(line);
        for piece in &self.pieces {
            rest = rest.and_then(|rest| rest.split_once(piece.as_str()).map(|(_, rest)| rest));
        }
        rest.is_some()
    }
}
