//! A price book, reloaded when its file is replaced: a new price applies to the next response.
//!
//! The aggregator opens it at startup and uses it wherever a cost is shown. As with layouts, an invalid file at startup
//! is an error. If the file becomes invalid later, the last valid prices stay in use and every response reports that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::kept::{self, Kept};
use crate::domain::price::PriceBook;
use crate::wire::layouts::LayoutError;
use crate::wire::layouts::prices::parse;

/// Size limit, 1 MiB: the same as that of the parser.
const LONGEST: u64 = 1 << 20;

/// The prices of one file, or none.
#[derive(Debug, Default)]
pub struct Prices {
    file: Option<Kept<Arc<PriceBook>, PricesError>>,
}

/// The current prices.
#[derive(Debug, Clone, Default)]
pub struct CurrentPrices {
    /// Prices of the file, if one is configured.
    pub book: Option<Arc<PriceBook>>,
    /// Why the prices may differ from the current content of the file.
    pub notice: Option<String>,
}

/// Error while loading a price book.
#[derive(Debug, Error)]
pub enum PricesError {
    /// The file cannot be read.
    #[error("cannot read the price book {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the price book {}: {}", .path.display(), listed(.errors))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// All errors; never empty.
        errors: Vec<LayoutError>,
    },
}

impl Prices {
    /// Opens the prices in `path`.
    pub fn open(path: &Path) -> Result<Self, PricesError> {
        Ok(Self {
            file: Some(Kept::open(path, "prices", read)?),
        })
    }

    /// Returns the prices of the file, or the last valid ones if the file is now invalid.
    pub fn current(&self) -> CurrentPrices {
        let Some(kept) = &self.file else {
            return CurrentPrices::default();
        };
        let (book, notice) = kept.current();
        CurrentPrices {
            book: Some(book),
            notice,
        }
    }
}

fn read(path: &Path) -> Result<Arc<PriceBook>, PricesError> {
    let text = kept::text(path, LONGEST).map_err(|source| PricesError::Read {
        path: path.to_owned(),
        source,
    })?;
    let book = parse(&text).map_err(|errors| PricesError::Wrong {
        path: path.to_owned(),
        errors,
    })?;
    Ok(Arc::new(book))
}

/// Formats the first few errors, each with its line.
fn listed(errors: &[LayoutError]) -> String {
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

    use super::*;
    use crate::domain::price::PurchaseOption;

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
    fn a_replaced_file_is_read_again_and_a_broken_one_leaves_the_prices_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        write(&path, "1.50");
        let prices = Prices::open(&path).unwrap();
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
    fn without_a_file_nothing_has_a_price_and_a_broken_one_is_an_error() {
        assert!(Prices::default().current().book.is_none());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        assert!(
            Prices::open(&path)
                .unwrap_err()
                .to_string()
                .starts_with("cannot read the price book ")
        );
        write(&path, "x");
        assert!(
            Prices::open(&path)
                .unwrap_err()
                .to_string()
                .contains("line 5:24: \"x\" is no price")
        );
    }
}
