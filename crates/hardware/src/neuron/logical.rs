//! Number of physical cores per logical core, from the node's configuration file or the chip's default.
//!
//! An administrator writes the file as a shell assignment. If it exists but cannot be read, the default may be wrong,
//! so no value is returned.

use std::path::Path;

use octavo_model::accelerators::{LogicalRule, logical_rule};
use octavo_model::inventory::{LogicalCores, LogicalSource, NeuronDevice, ReadProblem};
use octavo_toolkit::files;

use super::{problem, values};

const MAX_CONFIG_BYTES: u64 = 4096;
const CONFIG_VARIABLE: &str = "NEURON_LOGICAL_NC_CONFIG";

/// Reads the setting for the chips of `devices` from the file `config`.
pub(super) fn read(
    devices: &[NeuronDevice],
    config: &Path,
    problems: &mut Vec<ReadProblem>,
) -> Option<LogicalCores> {
    let rule = common_rule(devices)?;
    let default = match rule {
        LogicalRule::One => Some(1),
        LogicalRule::Settable(default) => {
            match values::parse_value(files::text(config, MAX_CONFIG_BYTES), setting) {
                Ok(None) => default,
                Ok(Some(size)) => {
                    let source = LogicalSource::File;
                    return Some(LogicalCores { size, source });
                }
                Err(error) => {
                    problems.push(problem(&config.to_string_lossy(), error));
                    return None;
                }
            }
        }
    };
    default.map(|size| LogicalCores { size, source: LogicalSource::Default })
}

/// Returns the rule of all chips with a known name, or `None` if they differ. Without any known name, returns the rule
/// of unknown chips.
fn common_rule(devices: &[NeuronDevice]) -> Option<LogicalRule> {
    devices.first()?;
    let mut rules =
        devices.iter().filter_map(|device| device.device_name.as_deref()).map(logical_rule);
    let first = rules.next().unwrap_or(LogicalRule::Settable(None));
    rules.all(|rule| rule == first).then_some(first)
}

/// Returns the last assigned size, as in a shell.
fn setting(text: &str) -> Option<u32> {
    let assigned = text.lines().rev().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=')?;
        (name.trim() == CONFIG_VARIABLE).then(|| value.trim().trim_matches(['"', '\'']))
    })?;
    match assigned {
        "1" => Some(1),
        "2" => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn devices(names: &[&str]) -> Vec<NeuronDevice> {
        let device = |name: &&str| NeuronDevice {
            device_name: (!name.is_empty()).then(|| (*name).to_owned()),
            ..NeuronDevice::default()
        };
        names.iter().map(device).collect()
    }

    /// Returns the result for these chips with this file, and the problems.
    fn read_case(
        names: &[&str],
        file: Option<&str>,
    ) -> (Option<(u32, LogicalSource)>, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        if let Some(text) = file {
            fs::write(&config, text).unwrap();
        }
        let mut problems = Vec::new();
        let logical = read(&devices(names), &config, &mut problems);
        let problems = problems.into_iter().map(|problem| problem.error).collect();
        (logical.map(|it| (it.size, it.source)), problems)
    }

    #[test]
    fn config_file_overrides_chip_default() {
        use LogicalSource::{Default, File};
        let one = "# set by user data\nNEURON_LOGICAL_NC_CONFIG=1\n";
        for (names, file, expected) in [
            (&["Trainium2"][..], None, Some((2, Default))),
            (&["Trainium2"], Some("\n"), Some((2, Default))),
            (&["Trainium2"], Some(one), Some((1, File))),
            (&["Trainium2", ""], None, Some((2, Default))),
            (&["Trainium3"], None, None),
            (&["Trainium3"], Some("export NEURON_LOGICAL_NC_CONFIG=\"2\""), Some((2, File))),
            (&["Inferentia2"], Some("NEURON_LOGICAL_NC_CONFIG=2"), Some((1, Default))),
            (&["", ""], None, None),
            (&["Trainium2", "Inferentia2"], None, None),
            (&[], Some(one), None),
        ] {
            assert_eq!(read_case(names, file), (expected, vec![]), "{names:?} {file:?}");
        }
    }

    #[test]
    fn invalid_config_file_is_reported_and_suppresses_default() {
        for (file, error) in [
            ("NEURON_LOGICAL_NC_CONFIG=3", "invalid value: \"NEURON_LOGICAL_NC_CONFIG\""),
            ("lnc: 1", "invalid value: \"lnc: 1\""),
        ] {
            assert_eq!(read_case(&["Trainium2"], Some(file)), (None, vec![error.to_owned()]));
        }
        let mut problems = Vec::new();
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(&devices(&["Trainium2"]), directory.path(), &mut problems), None);
        assert_eq!(problems[0].error, "it is not a regular file");
    }
}
