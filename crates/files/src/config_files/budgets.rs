//! Budgets, reloaded when their file is replaced.
//!
//! As with prices, an invalid file at startup is an error. If the file becomes invalid later, the last valid budgets stay in use.

use std::path::Path;
use std::sync::Arc;

use octavo_fleet::budget::Budget;

use super::reloading_file::{ConfigFileError, ReloadingFile, read_parsed};
use crate::layouts::budgets::parse;

/// The budgets of a file.
#[derive(Debug)]
pub struct BudgetFile(ReloadingFile<Arc<[Budget]>>);

impl BudgetFile {
    /// Opens the budgets in `path`.
    pub fn open(path: &Path) -> Result<Self, ConfigFileError> {
        let load = |path: &Path| Ok(read_parsed("budgets in", path, parse)?.into());
        ReloadingFile::open(path, "budgets", load).map(Self)
    }

    /// Returns the budgets. If the file is now invalid, they are from its last valid content, and the reason is returned.
    pub fn current(&self) -> (Arc<[Budget]>, Option<String>) {
        self.0.current()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn replaced_file_is_reloaded_and_invalid_file_retains_the_last_budgets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("budgets.yaml");
        let write = |amount: &str| {
            let text = format!(
                "apiVersion: octavo.dev/v1\nkind: Budgets\ncurrency: USD\nbudgets:\n- {{team: a, amount: {amount}}}\n"
            );
            // Replaces the file instead of writing to it, as the kubelet does with a mounted ConfigMap.
            let beside = path.with_extension("new");
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, &path).unwrap();
        };
        write("many");
        let error = BudgetFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 5:21: amount must be a number"), "{error}");
        write("5");
        let file = BudgetFile::open(&path).unwrap();
        let now = || {
            let (budgets, notice) = file.current();
            (budgets[0].amount.to_string(), notice)
        };
        assert_eq!(now(), ("5".to_owned(), None));
        write("-1");
        let (amount, notice) = now();
        assert_eq!(amount, "5");
        assert!(notice.unwrap().contains("The previous budgets stay in use"));
        write("6");
        assert_eq!(now(), ("6".to_owned(), None));
    }
}
