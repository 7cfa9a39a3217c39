//! A price book, reloaded when its file is replaced: a new price applies to the next response.
//!
//! The aggregator opens it at startup and uses it wherever a cost is shown. As with layouts, an invalid file at startup
//! is an error. If the file becomes invalid later, the last valid prices stay in use and every response reports that.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_fleet::price::{CurrentPrices, PriceBook};

use super::reloading_file::{ConfigFileError, ReloadingFile, read_parsed};
use crate::layouts::prices::parse;

/// The prices of one file, or none.
#[derive(Debug, Default)]
pub struct PriceFile {
    file: Option<ReloadingFile<Arc<PriceBook>>>,
}

/// The current prices.
#[derive(Debug, Clone, Default)]
pub struct PriceFileSnapshot {
    /// Prices of the file that are valid now, if one is configured.
    pub prices: Option<CurrentPrices>,
    /// Why the prices may differ from the current content of the file.
    pub notice: Option<String>,
}

impl PriceFile {
    /// Opens the prices in `path`.
    pub fn open(path: &Path) -> Result<Self, ConfigFileError> {
        let load = |path: &Path| read_parsed("price book", path, parse).map(Arc::new);
        Ok(Self { file: Some(ReloadingFile::open(path, "prices", load)?) })
    }

    /// Returns the prices of the file that are valid at `now`. If the file is now invalid, they are from its last valid
    /// content.
    pub fn current(&self, now: Timestamp) -> PriceFileSnapshot {
        let Some(file) = &self.file else {
            return PriceFileSnapshot::default();
        };
        let (book, notice) = file.current();
        PriceFileSnapshot { prices: Some(CurrentPrices::new(book, now)), notice }
    }
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prices.yaml");
        write(&path, "1.50");
        let prices = PriceFile::open(&path).unwrap();
        let now = || {
            let current = prices.current(Timestamp::UNIX_EPOCH);
            let price =
                current.prices.unwrap().price(&"a-b".parse().unwrap(), PurchaseOption::OnDemand);
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
            notice.contains("line 5:24") && notice.contains("The previous prices stay in use"),
            "{notice}"
        );
        write(&path, "3");
        assert_eq!(now(), ("3".to_owned(), None));
    }

    #[test]
    fn no_file_means_no_prices_and_invalid_file_is_an_error() {
        assert!(PriceFile::default().current(Timestamp::UNIX_EPOCH).prices.is_none());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prices.yaml");
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
                .contains("line 5:24: \"x\" is not a price")
        );
    }
}
