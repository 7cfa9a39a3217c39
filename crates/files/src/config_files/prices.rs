//! A price book, reloaded when its file is replaced: a new price applies to the next response.
//!
//! The aggregator opens it at startup and uses it wherever a cost is shown. As with layouts, an invalid file at startup
//! is an error. If the file becomes invalid later, the last valid prices stay in use and every response reports that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_fleet::price::PriceBook;
use thiserror::Error;

use super::reloading_file::{self, ReloadingFile};
use crate::layouts::LayoutError;
use crate::layouts::prices::parse;

/// Size limit, 1 MiB: the same as that of the parser.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The prices of one file, or none.
#[derive(Debug, Default)]
pub struct PriceFile {
    file: Option<ReloadingFile<Arc<PriceBook>, PriceFileError>>,
}

/// The current prices.
#[derive(Debug, Clone, Default)]
pub struct PriceFileSnapshot {
    /// Prices of the file, if one is configured.
    pub book: Option<Arc<PriceBook>>,
    /// Why the prices may differ from the current content of the file.
    pub notice: Option<String>,
}

/// Error while loading a price book.
#[derive(Debug, Error)]
pub enum PriceFileError {
    /// The file cannot be read.
    #[error("cannot read the price book {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the price book {}: {}", .path.display(), format_errors(.errors))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All errors; never empty.
        errors: Vec<LayoutError>,
    },
}

impl PriceFile {
    /// Opens the prices in `path`.
    pub fn open(path: &Path) -> Result<Self, PriceFileError> {
        Ok(Self {
            file: Some(ReloadingFile::open(path, "prices", load)?),
        })
    }

    /// Returns the prices of the file, or the last valid ones if the file is now invalid.
    pub fn current(&self) -> PriceFileSnapshot {
        let Some(kept) = &self.file else {
            return PriceFileSnapshot::default();
        };
        let (book, notice) = kept.current();
        PriceFileSnapshot {
            book: Some(book),
            notice,
        }
    }
}

fn load(path: &Path) -> Result<Arc<PriceBook>, PriceFileError> {
    let text =
        reloading_file::read_text(path, MAX_FILE_BYTES).map_err(|source| PriceFileError::Read {
            path: path.to_owned(),
            source,
        })?;
    let book = parse(&text).map_err(|errors| PriceFileError::Invalid {
        path: path.to_owned(),
        errors,
    })?;
    Ok(Arc::new(book))
}

/// Formats the first few errors, each with its line.
fn format_errors(errors: &[LayoutError]) -> String {
    const SHOWN: usize = 5;
    let shown = errors.iter().take(SHOWN);
    let mut shown: Vec<String> = shown
        .map(|error| format!("line {}: {error}", error.place()))
        .collect();
    let more = errors.len().saturating_sub(SHOWN);
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use octavo_fleet::price::PurchaseOption;

    use super::*;

    fn write(path: &Path, price: &str) {
        let text = format!(
            "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n- {{type: a-b, perHour: {price}}}\n"
        );
        // Replaces the file instead of writing to it, as the kubelet does with a mounted ConfigMap.
        let beside = path.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, path).unwrap();
    }

    #[test]
    fn replaced_file_is_reloaded_and_invalid_file_keeps_last_prices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        write(&path, "1.50");
        let prices = PriceFile::open(&path).unwrap();
        let now = || {
            let current = prices.current();
            let book = current.book.unwrap();
            let price = book.price(&"a-b".parse().unwrap(), PurchaseOption::OnDemand);
            (price.unwrap().per_hour.to_string(), current.notice)
        };
        assert_eq!(now(), ("1.50".to_owned(), None));
        write(&path, "2.25");
        assert_eq!(now(), ("2.25".to_owned(), None));
        write(&path, "much");
        let (price, notice) = now();
        assert_eq!(price, "2.25");
        let notice = notice.unwrap();
        assert!(
            notice.contains("line 5:24") && notice.contains("The prices before are used"),
            "{notice}"
        );
        write(&path, "3");
        assert_eq!(now(), ("3".to_owned(), None));
    }

    #[test]
    fn no_file_means_no_prices_and_invalid_file_is_an_error() {
        assert!(PriceFile::default().current().book.is_none());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        assert!(
            PriceFile::open(&path)
                .unwrap_err()
                .to_string()
                .starts_with("cannot read the price book ")
        );
        write(&path, "x");
        assert!(
            PriceFile::open(&path)
                .unwrap_err()
                .to_string()
                .contains("line 5:24: \"x\" is no price")
        );
    }
}
