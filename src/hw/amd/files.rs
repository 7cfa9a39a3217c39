//! The files of one folder, each of which may be missing or make no sense.
//!
//! | a file that | is | is said |
//! |---|---|---|
//! | is not there, or is empty | absent | no: drivers differ in what they have |
//! | may not be read, or is none | absent | yes |
//! | holds something else | absent | yes |

use crate::domain::inventory::Problem;
use crate::domain::quantity::Mebibytes;
use crate::hw::sysfs::Sysfs;

/// Longer names than this no board has.
const LONGEST_NAME: usize = 128;
/// Longer versions than this no driver has.
const LONGEST_VERSION: usize = 48;
/// Longer words for a mode than this no driver has.
const LONGEST_MODE: usize = 8;
/// As many modes no driver has.
const MOST_MODES: usize = 16;
/// How much is repeated of what makes no sense.
const EXCERPT: usize = 24;

/// A folder, and what was wrong with its files.
pub(super) struct Files<'a> {
    sys: &'a Sysfs,
    folder: String,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Files<'a> {
    pub(super) fn below(sys: &'a Sysfs, folder: String) -> Self {
        Self {
            sys,
            folder,
            problems: Vec::new(),
        }
    }

    /// A name.
    pub(super) fn text(&mut self, file: &str) -> Option<String> {
        self.read(file, "no name", name)
    }

    /// A version: no blanks in it, so that it can be a label.
    pub(super) fn version(&mut self, file: &str) -> Option<String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        self.read(file, "no version", |text| {
            let numbered = text.starts_with(|first: char| first.is_ascii_digit());
            let fits = numbered && text.len() <= LONGEST_VERSION && text.bytes().all(plain);
            fits.then(|| text.to_owned())
        })
    }

    /// An amount of memory, from bytes, of which there can be `most`.
    pub(super) fn bytes(&mut self, file: &str, most: Mebibytes) -> Option<Mebibytes> {
        let amount = |text: &str| text.parse().ok().map(Mebibytes::from_bytes);
        let amount = self.read(file, "no number of bytes", amount)?;
        if amount > most {
            let error = format!("{amount}, and there can be no more than {most}");
            self.problems.push(Problem {
                what: file.to_owned(),
                error,
            });
            return None;
        }
        Some(amount)
    }

    /// A chip's id, always with all its digits; a chip that has none says 0.
    pub(super) fn id(&mut self, file: &str) -> Option<String> {
        let id = self.read(file, "no id of a chip", |text| {
            let plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
        })?;
        (id != 0).then(|| format!("{id:016x}"))
    }

    /// A mode in force; where the driver itself does not know, there is none.
    pub(super) fn mode(&mut self, file: &str) -> Option<String> {
        let mode = self.read(file, "no mode", mode)?;
        (mode != "UNKNOWN").then_some(mode)
    }

    /// Modes that may be, in the driver's order.
    pub(super) fn modes(&mut self, file: &str) -> Vec<String> {
        let modes = self.read(file, "no list of modes", |text| {
            let words = text.split(',').map(str::trim);
            let modes: Option<Vec<String>> = words.map(mode).collect();
            modes.filter(|modes| modes.len() <= MOST_MODES)
        });
        modes.unwrap_or_default()
    }

    fn read<T>(
        &mut self,
        file: &str,
        otherwise: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let error = match self.sys.attribute(&format!("{}/{file}", self.folder)) {
            Ok(None) => return None,
            Ok(Some(text)) => match parse(&text) {
                Some(value) => return Some(value),
                None => format!("{} is {otherwise}", excerpt(&text)),
            },
            Err(error) => error.to_string(),
        };
        self.problems.push(Problem {
            what: file.to_owned(),
            error,
        });
        None
    }
}

/// The beginning of what a file holds, in quotes and without what could steer a terminal.
pub(super) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}

/// Words that a person can read: what was no UTF-8 has become a replacement character by now.
fn name(text: &str) -> Option<String> {
    let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    let fits = text.len() <= LONGEST_NAME && !text.contains(odd);
    fits.then(|| text.to_owned())
}

fn mode(text: &str) -> Option<String> {
    let fits = (1..=LONGEST_MODE).contains(&text.len());
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    (fits && text.bytes().all(plain)).then(|| text.to_owned())
}
