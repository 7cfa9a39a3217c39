//! Flags as Go programs read them.

use std::ffi::OsString;

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("not true or false"),
    }
}

/// Converts Go's flags, which have one dash or two: `-config-file x` becomes `--config-file x`.
pub(super) fn with_two_dashes(arguments: Vec<OsString>) -> Vec<OsString> {
    const LONG: [&str; 13] = [
        "checkpoint-file",
        "config-file",
        "config-label",
        "debug",
        "help",
        "hooks-file",
        "mode-only",
        "output-file",
        "output-format",
        "selected-config",
        "skip-reset",
        "valid-config",
        "version",
    ];
    let doubled = |argument: OsString| {
        let rest = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let name = rest.map(|rest| rest.split_once('=').map_or(rest, |(name, _)| name));
        match (rest, name) {
            (Some(rest), Some(name)) if LONG.contains(&name) => format!("--{rest}").into(),
            (Some(_) | None, Some(_) | None) => argument,
        }
    };
    arguments.into_iter().map(doubled).collect()
}
