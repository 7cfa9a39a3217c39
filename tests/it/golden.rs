//! Golden files: expected output, compared completely.

use std::fs;
use std::path::Path;

/// Compares `actual` with the file `name` under `tests/golden`, or rewrites that file for `make golden`.
#[track_caller]
pub(crate) fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("OCTAVO_GOLDEN").is_some_and(|mode| mode == "rewrite") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; `make golden` rewrites it.\n--- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}
