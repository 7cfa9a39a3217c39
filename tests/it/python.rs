//! Python environments with packages of `PyPI`, in a cache outside the tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::time_limits::Finish;

/// Returns the interpreter of the environment `name`. Creates it with the packages that the arguments of pip name, if it does not exist.
pub(crate) fn with_packages(name: &str, packages: &[&str]) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let environment = cache.join("octavo").join(name);
    if !environment.join("bin/python3").exists() {
        create(&environment, packages);
    }
    environment.join("bin/python3")
}

/// Creates the environment under another name first, so that parallel runs see only a complete one.
fn create(environment: &Path, packages: &[&str]) {
    std::fs::create_dir_all(environment.parent().unwrap()).unwrap();
    let draft = environment.with_extension(format!("draft-{}", std::process::id()));
    let mut venv = Command::new("python3");
    let created = venv.args(["-m", "venv", "--clear"]).arg(&draft).finish();
    let needs = "Python 3 with venv (Debian: apt-get install python3-venv)";
    assert!(created.status.success(), "{created:?}; this test needs {needs}");
    let mut install = Command::new(draft.join("bin/python3"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    let installed = install.args(packages).finish();
    let needs = "a package index";
    assert!(installed.status.success(), "{installed:?}; this test needs {needs}");
    if std::fs::rename(&draft, environment).is_err() {
        std::fs::remove_dir_all(&draft).unwrap();
    }
}
