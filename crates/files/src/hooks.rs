//! Hook files: programs that mig-parted runs before and after a change. Source: mig-parted v0.15.0, `api/hooks/v1`.
//!
//! mig-parted silently ignores unknown keys and hooks. Here they are errors, because such a hook would never run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use thiserror::Error;

const VERSION: &str = "v1";

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookPoint {
    /// At the start of an apply.
    ApplyStart,
    /// Before a MIG mode change.
    PreApplyMode,
    /// Before partitions change.
    PreApplyConfig,
    /// At the end of an apply, whether it succeeded or not.
    ApplyExit,
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Working directory; by default that of this program.
    #[serde(default)]
    pub workdir: Option<PathBuf>,
    /// The program.
    pub command: String,
    /// Arguments.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Environment variables.
    #[serde(default)]
    pub envs: Option<BTreeMap<String, String>>,
}

/// The hooks of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    by_point: BTreeMap<HookPoint, Vec<Hook>>,
}

/// Error while parsing a hook file.
#[derive(Debug, Error)]
pub enum HooksError {
    /// The text does not have the expected format.
    #[error("{0}")]
    Malformed(String),
    /// The version is not supported.
    #[error("it has version {0:?}, but this program supports {VERSION}")]
    Version(String),
    /// A hook has no program.
    #[error("a hook of {0} has no command")]
    NoCommand(HookPoint),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    hooks: Option<BTreeMap<HookPoint, Option<Vec<Hook>>>>,
}

impl Hooks {
    /// Parses a hook file.
    pub fn parse(text: &str) -> Result<Self, HooksError> {
        let document: Document = serde_saphyr::from_str(text)
            .map_err(|error| HooksError::Malformed(error.to_string()))?;
        if let Some(version) = document.version.filter(|version| version != VERSION) {
            return Err(HooksError::Version(version));
        }
        let mut moments = BTreeMap::new();
        for (moment, hooks) in document.hooks.unwrap_or_default() {
            let hooks = hooks.unwrap_or_default();
            if hooks.iter().any(|hook| hook.command.is_empty()) {
                return Err(HooksError::NoCommand(moment));
            }
            moments.insert(moment, hooks);
        }
        Ok(Self { by_point: moments })
    }

    /// Returns the hooks that run at `moment`.
    pub fn at(&self, moment: HookPoint) -> &[Hook] {
        self.by_point.get(&moment).map_or(&[], Vec::as_slice)
    }
}

impl std::fmt::Display for HookPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::ApplyStart => "apply-start",
            Self::PreApplyMode => "pre-apply-mode",
            Self::PreApplyConfig => "pre-apply-config",
            Self::ApplyExit => "apply-exit",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_parted_hook_file_is_parsed() {
        let text = "version: v1\nhooks:\n  apply-start:\n  - workdir: /etc\n    command: /bin/bash\n    args: [-x, -c, 'true']\n    envs: {A: b, PORT: 8080}\n  apply-exit:\n  - command: /bin/true\n";
        let hooks = Hooks::parse(text).unwrap();
        let [start] = hooks.at(HookPoint::ApplyStart) else {
            panic!("{hooks:?}");
        };
        assert_eq!(start.command, "/bin/bash");
        assert_eq!(start.args.as_deref().unwrap().len(), 3);
        assert_eq!(start.envs.as_ref().unwrap()["PORT"], "8080");
        assert_eq!(hooks.at(HookPoint::PreApplyMode), []);
        assert_eq!(hooks.at(HookPoint::ApplyExit).len(), 1);
        assert_eq!(Hooks::parse("version: v1\nhooks:\n").unwrap(), Hooks::default());
        assert_eq!(Hooks::parse("hooks: {apply-exit: }").unwrap().at(HookPoint::ApplyExit), []);
    }

    #[test]
    fn hook_that_would_never_run_is_an_error() {
        for (text, expected) in [
            ("version: v2\nhooks: {}", "version \"v2\""),
            ("version: v1\nhooks: {pre-aply-mode: []}", "pre-aply-mode"),
            ("version: v1\nhook: {}", "hook"),
            ("version: v1\nhooks: {apply-exit: [{comand: x}]}", "comand"),
            ("version: v1\nhooks: {apply-exit: [{command: ''}]}", "no command"),
            ("version: v1\nhooks: {apply-exit: [{args: [x]}]}", "command"),
            ("version: v1\nhooks: {apply-exit: [], apply-exit: []}", "apply-exit"),
        ] {
            let error = Hooks::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
