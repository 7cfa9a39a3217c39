//! Attribute files of one sysfs directory, each of which may be missing or invalid.
//!
//! | file | value | reported as a problem |
//! |---|---|---|
//! | missing or empty | absent | no: drivers differ in the files they provide |
//! | not readable, or not a regular file | absent | yes |
//! | invalid content | absent | yes |

use octavo_model::inventory::ReadProblem;
use octavo_model::quantity::Mebibytes;

use crate::sysfs::{Sysfs, is_printable_name};

/// Maximum length of a driver version in bytes.
const MAX_VERSION_BYTES: usize = 48;
/// Maximum length of a mode name in bytes.
const MAX_MODE_BYTES: usize = 8;
/// Maximum number of modes.
const MAX_MODES: usize = 16;
/// Number of characters of invalid content that are quoted in a problem.
const EXCERPT_CHARS: usize = 24;

/// A sysfs directory and the problems found in its files.
pub(super) struct Files<'a> {
    sys: &'a Sysfs,
    dir: String,
    pub(super) problems: Vec<ReadProblem>,
}

impl<'a> Files<'a> {
    pub(super) fn open(sys: &'a Sysfs, dir: String) -> Self {
        Self { sys, dir, problems: Vec::new() }
    }

    pub(super) fn text(&mut self, file: &str) -> Option<String> {
        self.read(file, "not a name", |text| is_printable_name(text).then(|| text.to_owned()))
    }

    /// Returns a version without blanks, usable as a label value.
    pub(super) fn version(&mut self, file: &str) -> Option<String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        self.read(file, "not a version", |text| {
            let numbered = text.starts_with(|first: char| first.is_ascii_digit());
            let fits = numbered && text.len() <= MAX_VERSION_BYTES && text.bytes().all(plain);
            fits.then(|| text.to_owned())
        })
    }

    /// Returns an amount of memory, read as bytes and at most `most`.
    pub(super) fn bytes(&mut self, file: &str, most: Mebibytes) -> Option<Mebibytes> {
        let amount = |text: &str| text.parse().ok().map(Mebibytes::from_bytes);
        let amount = self.read(file, "not a number of bytes", amount)?;
        if amount > most {
            let error = format!("{amount} exceeds the maximum of {most}");
            self.problems.push(ReadProblem { source: file.to_owned(), error });
            return None;
        }
        Some(amount)
    }

    /// Returns a chip's ID in full width. The value 0 means that the chip has none.
    pub(super) fn id(&mut self, file: &str) -> Option<String> {
        let id = self.read(file, "not a chip ID", |text| {
            let plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
        })?;
        (id != 0).then(|| format!("{id:016x}"))
    }

    /// Returns the current mode, or `None` if the driver reports `UNKNOWN`.
    pub(super) fn mode(&mut self, file: &str) -> Option<String> {
        let mode = self.read(file, "not a mode", mode)?;
        (mode != "UNKNOWN").then_some(mode)
    }

    /// Returns the available modes in the driver's order.
    pub(super) fn modes(&mut self, file: &str) -> Vec<String> {
        let modes = self.read(file, "not a list of modes", |text| {
            let words = text.split(',').map(str::trim);
            let modes: Option<Vec<String>> = words.map(mode).collect();
            modes.filter(|modes| modes.len() <= MAX_MODES)
        });
        modes.unwrap_or_default()
    }

    fn read<T>(
        &mut self,
        file: &str,
        otherwise: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let error = match self.sys.attribute(&format!("{}/{file}", self.dir)) {
            Ok(None) => return None,
            Ok(Some(text)) => match parse(&text) {
                Some(value) => return Some(value),
                None => format!("{} is {otherwise}", excerpt(&text)),
            },
            Err(error) => error.to_string(),
        };
        self.problems.push(ReadProblem { source: file.to_owned(), error });
        None
    }
}

/// Returns the beginning of the content, quoted and escaped so that it cannot inject terminal sequences.
pub(super) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}

fn mode(text: &str) -> Option<String> {
    let fits = (1..=MAX_MODE_BYTES).contains(&text.len());
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    (fits && text.bytes().all(plain)).then(|| text.to_owned())
}
