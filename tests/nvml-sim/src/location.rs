//! Location of a loaded library's machine.
//!
//! Called once by the C layer, with the path of the library itself (from `dladdr`) and the two environment variables.
//! The environment takes precedence, so that one library file serves many machines; files beside the library serve
//! clients whose environment cannot be set.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Name of the scenario beside the library.
pub const SCENARIO_FILE: &str = "nvml-sim.yaml";
/// Name of the state directory beside the library.
pub const STATE_DIRECTORY: &str = "nvml-sim.state";
/// The variable that names the scenario file.
pub const SCENARIO_VARIABLE: &str = "NVML_SIM_SCENARIO";
/// The variable that names the state directory.
pub const STATE_VARIABLE: &str = "NVML_SIM_STATE";

/// The two environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// `NVML_SIM_SCENARIO`.
    pub scenario: Option<OsString>,
    /// `NVML_SIM_STATE`.
    pub state: Option<OsString>,
}

/// Location of scenario and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The scenario file; read only if the state directory has no state.
    pub scenario: Option<PathBuf>,
    /// The state directory; created if missing.
    pub state: PathBuf,
}

/// Why no machine can be found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LocationError {
    /// Neither the environment nor the path of the library determines it.
    #[error(
        "neither {STATE_VARIABLE} nor {SCENARIO_VARIABLE} is set, and the path of the library is unknown"
    )]
    Nowhere,
}

impl Location {
    /// Finds scenario and state of a library. Pure: the files are checked when they are opened.
    ///
    /// A scenario from the environment without a state directory has its state in `<scenario>.state`: two scenarios in
    /// one directory never share a machine.
    pub fn find(library: Option<&Path>, environment: &Environment) -> Result<Self, LocationError> {
        let set = |value: &Option<OsString>| value.clone().filter(|text| !text.is_empty());
        let beside = library.and_then(Path::parent);
        let scenario = set(&environment.scenario).map(PathBuf::from);
        let state = set(&environment.state).map(PathBuf::from);
        match (scenario, state) {
            (scenario, Some(state)) => Ok(Self { scenario, state }),
            (Some(scenario), None) => {
                let mut state = scenario.clone().into_os_string();
                state.push(".state");
                Ok(Self { scenario: Some(scenario), state: state.into() })
            }
            (None, None) => {
                let beside = beside.ok_or(LocationError::Nowhere)?;
                Ok(Self {
                    scenario: Some(beside.join(SCENARIO_FILE)),
                    state: beside.join(STATE_DIRECTORY),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn finds(scenario: Option<&str>, state: Option<&str>, found: (Option<&str>, &str)) {
        let environment = Environment {
            scenario: scenario.map(OsString::from),
            state: state.map(OsString::from),
        };
        let library = Path::new("/opt/sim/libnvidia-ml.so.1");
        let location = Location::find(Some(library), &environment).unwrap();
        assert_eq!(
            location,
            Location { scenario: found.0.map(PathBuf::from), state: found.1.into() }
        );
    }

    #[test]
    fn environment_takes_precedence_over_files_beside_the_library() {
        finds(Some("/a.yaml"), Some("/s"), (Some("/a.yaml"), "/s"));
        finds(Some("/a.yaml"), None, (Some("/a.yaml"), "/a.yaml.state"));
        finds(None, Some("/s"), (None, "/s"));
        let beside = (Some("/opt/sim/nvml-sim.yaml"), "/opt/sim/nvml-sim.state");
        finds(None, None, beside);
        finds(Some(""), Some(""), beside);
    }

    #[test]
    fn library_without_location_reports_what_to_set() {
        let error = Location::find(None, &Environment::default()).unwrap_err();
        assert_eq!(error, LocationError::Nowhere);
    }
}
