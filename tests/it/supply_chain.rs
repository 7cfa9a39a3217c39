//! Licenses, bans and sources of all dependencies, from `cargo metadata` and the lists in `deny.toml`.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;

use crate::support::root;
use crate::time_limits::Finish;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

/// A license that is allowed for dependencies of tests only.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    name: String,
    reason: String,
    /// Crates that may depend on it.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[test]
fn every_dependency_has_allowed_license_and_comes_from_registry() {
    let deny = deny();
    let mut wrong = Vec::new();
    let packages = packages();
    assert!(packages.len() > 20, "cargo metadata shows hardly anything");
    for package in &packages {
        let Package { name, version, license, source } = package;
        let license = license.as_deref().unwrap_or_default();
        let exception = deny.licenses.exceptions.iter().find(|one| one.name == *name);
        let allow = exception.map_or(&deny.licenses.allow, |one| &one.allow);
        if !allowed(license, allow) {
            wrong.push(format!("{name} {version}: licence {license:?} is not in deny.toml"));
        }
        if let Some(ban) = deny.bans.deny.iter().find(|ban| ban.name == *name)
            && !dependents(name).iter().all(|dependent| ban.wrappers.contains(dependent))
        {
            wrong.push(format!("{name} {version} is banned: {}", ban.reason));
        }
        if source.as_deref().is_some_and(|source| {
            !source.starts_with("registry+") && !source.starts_with("sparse+")
        }) {
            wrong.push(format!("{name} {version} comes from {source:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn dependencies_with_license_exception_are_in_no_program() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal,build", "--prefix", "none"])
        .args(["--package", "octavo", "--locked"])
        .current_dir(root())
        .finish();
    assert!(output.status.success());
    let shipped = String::from_utf8(output.stdout).unwrap();
    assert!(shipped.contains("tonic v"), "{shipped}");
    for Exception { name, .. } in deny().licenses.exceptions {
        assert!(!shipped.contains(&format!("{name} v")), "{name} is shipped");
    }
}

#[test]
fn license_expression_is_allowed_if_one_alternative_is() {
    let allow = ["MIT".to_owned(), "Apache-2.0".to_owned()];
    for yes in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Zlib) AND Apache-2.0"] {
        assert!(allowed(yes, &allow), "{yes}");
    }
    for no in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH LLVM-exception"] {
        assert!(!allowed(no, &allow), "{no}");
    }
}

fn allowed(license: &str, allow: &[String]) -> bool {
    // Older crates write `MIT/Apache-2.0` for "either".
    let text = license.replace('/', " OR ");
    spdx::Expression::parse(&text).is_ok_and(|expression| {
        expression.evaluate(|requirement| allow.contains(&requirement.to_string()))
    })
}

fn deny() -> Deny {
    toml::from_str(&std::fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

/// Names of the crates that depend on the crate `name`.
fn dependents(name: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--target",
            "all",
            "--edges",
            "normal,build,dev",
            "--invert",
            name,
        ])
        .args(["--depth", "1", "--prefix", "depth", "--format", " {p}", "--locked"])
        .current_dir(root())
        .finish();
    assert!(output.status.success(), "{output:?}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let dependents = tree.lines().filter_map(|line| line.strip_prefix("1 ")?.split(' ').next());
    dependents.map(str::to_owned).collect()
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).unwrap();
    // The lock file also names optional dependencies that no program has; `tree` lists those that are built.
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--target", "all", "--edges", "all"])
        .args(["--prefix", "none", "--format", "{p}", "--locked"])
        .current_dir(root())
        .finish();
    assert!(output.status.success());
    let tree = String::from_utf8(output.stdout).unwrap();
    let built: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some((name, rest.split_whitespace().next()?))
        })
        .collect();
    let packages = metadata.packages.into_iter();
    packages
        .filter(|package| built.contains(&(package.name.as_str(), package.version.as_str())))
        .collect()
}
