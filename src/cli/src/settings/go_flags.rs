//! Flags as Go programs read them.

use std::ffi::OsString;

/// Parses a boolean like Go's `strconv.ParseBool`, to the value for false or for true.
pub(super) fn boolean<T: Copy>(no: T, yes: T) -> impl Fn(&str) -> Result<T, &'static str> + Clone {
    move |text| match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(yes),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(no),
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
