//! The description of a machine by a user.
//!
//! ```text
//!  YAML ── format (strict, with places) ── Scenario ── build ── World
//! ```
//!
//! Read by the store when a state directory is empty, and by `nvml-simctl`. Every error names file, line and column,
//! because a misread scenario would invalidate tests unnoticed. The README lists every key.

mod build;
mod format;
mod gpu;
mod instances;
mod one_or_many;
mod others;
mod topology;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::fault::{Rule, RuleError, Rules};
use crate::model::{ProcessRefusal, World};

/// A parsed scenario; its values are checked when the machine is built.
#[derive(Debug, Clone)]
pub struct Scenario {
    path: PathBuf,
    machine: format::Machine,
}

/// A position in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1; 0 for the whole file.
    pub line: u64,
    /// Column, from 1; 0 for the whole file.
    pub column: u64,
}

/// Why a scenario cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// It is not YAML, has an unknown key or a value of the wrong type.
    #[error("{place}: {reason}")]
    Malformed {
        /// Its position.
        place: SourcePosition,
        /// The parser's message.
        reason: String,
    },
    /// No board has that name.
    #[error("{place}: unknown board {name:?}; known boards: {}", known.join(", "))]
    UnknownBoard {
        /// Its position.
        place: SourcePosition,
        /// The name.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// A key has an invalid value.
    #[error("{place}: {key}: {reason}")]
    Value {
        /// Position of the entry with the key.
        place: SourcePosition,
        /// The key.
        key: &'static str,
        /// The reason.
        reason: String,
    },
    /// An instance is impossible.
    #[error("{place}: {instance} on GPU {gpu} {reason}")]
    Instance {
        /// Its position.
        place: SourcePosition,
        /// The instance in the scenario.
        instance: String,
        /// Index of the GPU.
        gpu: u32,
        /// The reason.
        reason: InstanceRefusal,
    },
    /// A process is impossible.
    #[error("{place}: process {pid} cannot be on GPU {gpu}: {reason}")]
    Process {
        /// Its position.
        place: SourcePosition,
        /// Its pid.
        pid: u32,
        /// Index of the GPU.
        gpu: u32,
        /// The reason.
        reason: ProcessRefusal,
    },
    /// A fault is invalid, or two conflict.
    #[error("{place}: {reason}")]
    Faults {
        /// Its position.
        place: SourcePosition,
        /// The reason.
        reason: RuleError,
    },
}

/// Reason why an instance of a scenario is impossible.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InstanceRefusal {
    /// The board does not support MIG.
    #[error("is impossible: the board does not support MIG")]
    NoMig,
    /// MIG is disabled.
    #[error("requires `mig: enabled`")]
    ModeOff,
    /// The board does not have the profile.
    #[error("is not a profile of this board, which has {}", .0.join(", "))]
    UnknownProfile(Vec<String>),
    /// The profile has no placement there.
    #[error("cannot start at {start}; possible starts: {}", numbers(listed))]
    NotThere {
        /// The requested start.
        start: u32,
        /// Possible starts.
        listed: Vec<u32>,
    },
    /// It overlaps another instance.
    #[error("overlaps {0}")]
    Overlaps(String),
    /// No capacity is left.
    #[error("does not fit together with {}", .0.join(", "))]
    Full(Vec<String>),
}

impl Scenario {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::File { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Parses a text; `path` is only for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let machine = crate::yaml::read(text).map_err(|error| {
            let at = error.location();
            ScenarioError::Malformed {
                place: SourcePosition {
                    path: path.to_owned(),
                    line: at.map_or(0, |at| at.line()),
                    column: at.map_or(0, |at| at.column()),
                },
                reason: error.without_snippet().to_string(),
            }
        })?;
        Ok(Self { path: path.to_owned(), machine })
    }

    /// The machine of the scenario in its initial state.
    pub fn world(&self) -> Result<World, ScenarioError> {
        build::world(self)
    }

    /// Its faults, each with a name.
    pub fn faults(&self) -> Result<Vec<Rule>, ScenarioError> {
        let refused = |at, reason| ScenarioError::Faults { place: self.place(at), reason };
        for rule in &self.machine.faults {
            let checked = rule.value.check();
            checked.map_err(|reason| refused(rule.referenced, reason))?;
        }
        let rules = self.machine.faults.iter().map(|rule| rule.value.clone());
        let rules = Rules(rules.collect()).named();
        rules
            .map(|rules| rules.0)
            .map_err(|reason| refused(serde_saphyr::Location::UNKNOWN, reason))
    }

    fn place(&self, at: serde_saphyr::Location) -> SourcePosition {
        SourcePosition { path: self.path.clone(), line: at.line(), column: at.column() }
    }
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        Ok(())
    }
}

fn numbers(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Slot;

    fn parse(text: &str) -> Result<World, ScenarioError> {
        Scenario::parse(Path::new("m.yaml"), text)?.world()
    }

    #[track_caller]
    fn refused(text: &str, message: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }

    const MIG: &str = "
machine: m
gpus:
- board: H100_80GB_SXM
  mig: enabled
  instances:
";

    #[test]
    fn readme_scenario_matches_readme() {
        let readme = include_str!("../README.md");
        let (_, rest) = readme.split_once("```yaml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let scenario = Scenario::parse(Path::new("README.md"), text).unwrap();
        let world = scenario.world().unwrap();
        let devices: Vec<usize> = world.gpus.iter().map(|gpu| gpu.mig_devices().count()).collect();
        assert_eq!(devices, [3; 8]);
        let (_, rest) = rest.split_once("```yaml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let others = parse(text).unwrap().others;
        assert_eq!(others.neuron.unwrap().links.len(), 16);
        assert_eq!((others.amd.len(), others.functions.len()), (8, 4));
        assert_eq!((world.processes.len(), scenario.faults().unwrap().len()), (1, 1));
    }

    #[test]
    fn every_board_can_be_added_to_a_machine_by_name() {
        for name in crate::board::Board::names() {
            let world = parse(&format!("machine: m\ngpus: [{{board: {name}}}]"));
            assert_eq!(world.unwrap().gpus.len(), 1, "{name}");
        }
    }

    #[test]
    fn machine_needs_only_a_name() {
        let world = parse("machine: cpu-only").unwrap();
        assert_eq!((world.gpus.len(), world.driver.cuda_version), (0, 13000));
        assert_eq!(world.driver.nvml_version, "13.580.95.05");
    }

    #[test]
    fn eight_boards_have_distinct_and_reproducible_identities() {
        let text = "
machine: dgx
driver: 575.57.08
cuda: 12.9
links: nvswitch
latency: real
gpus:
- board: H100_80GB_SXM
  count: 8
  numa: [0, 0, 0, 0, 1, 1, 1, 1]
";
        let world = parse(text).unwrap();
        assert_eq!(world, parse(text).unwrap());
        let uuids: std::collections::BTreeSet<&str> =
            world.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
        assert_eq!(uuids.len(), 8);
        let last = world.gpu(Slot(7)).unwrap();
        assert_eq!(
            (last.index, last.numa_node, last.links.len(), last.fabric.state),
            (7, Some(1), 18, 3)
        );
        assert_eq!(last.pci.to_string(), "00000000:8B:00.0");
        assert_eq!(world.driver.cuda_version, 12090);
    }

    #[test]
    fn numbers_may_be_hexadecimal_and_board_fields_can_be_overridden() {
        let text = "
machine: m
gpus:
- {board: t4, subsystem_device: 0x12a2, pci: '0000:00:1e.0', memory_mib: 15109, name: Tesla T4}
- {board: V100, count: 2, lost: true, minor: [4, 5]}
";
        let world = parse(text).unwrap();
        let (t4, v100) = (world.gpu(Slot(0)).unwrap(), world.gpu(Slot(2)).unwrap());
        assert_eq!(
            (t4.pci_ids.subsystem_device, t4.memory_mib, t4.pci.sysfs()),
            (0x12a2, 15109, "0000:00:1e.0".to_owned())
        );
        assert_eq!((v100.lost, v100.minor, v100.mig.is_none()), (true, 5, true));
    }

    #[test]
    fn instances_include_their_compute_instance_by_default() {
        let world = parse(&format!(
            "{MIG}
  - {{profile: 3g.40gb, start: 4}}
  - {{profile: 2g.20gb, compute: [1c.2g.20gb, 1c.2g.20gb]}}
  - {{profile: 1g.10gb, count: 2, compute: []}}
processes:
- {{pid: 7, gpu: 0, gi: 2, ci: 0, memory_mib: 100}}
"
        ));
        let world = world.unwrap();
        let gpu = world.gpu(Slot(0)).unwrap();
        let made: Vec<(u32, u32, usize)> = gpu
            .mig
            .as_ref()
            .unwrap()
            .instances
            .iter()
            .map(|gi| (gi.id, gi.placement.start, gi.compute.len()))
            .collect();
        assert_eq!(made, [(2, 4, 1), (3, 0, 2), (9, 2, 0), (10, 3, 0)]);
        assert_eq!(gpu.mig_devices().count(), 3);
        assert!(world.events.is_empty());
    }

    #[test]
    fn overlapping_instances_are_rejected_with_location() {
        refused(
            &format!(
                "{MIG}  - {{profile: 1g.10gb, start: 5}}\n  - {{profile: 3g.40gb, start: 4}}\n"
            ),
            "m.yaml:8:5: 3g.40gb on GPU 0 overlaps 1g.10gb at 5",
        );
        refused(
            &format!("{MIG}  - {{profile: 7g.80gb}}\n  - {{profile: 1g.10gb}}\n"),
            "m.yaml:8:5: 1g.10gb on GPU 0 does not fit together with 7g.80gb at 0",
        );
        refused(
            &format!("{MIG}  - {{profile: 2g.20gb, compute: [1c.2g.20gb, 2g.20gb]}}\n"),
            "m.yaml:7:5: 2g.20gb in 2g.20gb on GPU 0 does not fit together with 1c.2g.20gb",
        );
        refused(
            &format!("{MIG}  - {{profile: 3g.40gb, start: 1}}\n"),
            "m.yaml:7:5: 3g.40gb on GPU 0 cannot start at 1; possible starts: 0, 4",
        );
        refused(
            &format!("{MIG}  - {{profile: 3g.20gb}}\n"),
            "m.yaml:7:5: 3g.20gb on GPU 0 is not a profile of this board, which has 1g.10gb, 1g.10gb+me",
        );
    }

    #[test]
    fn process_on_missing_object_reports_what_is_missing() {
        let on = |process: &str, reason: &str| {
            refused(
                &format!(
                    "{MIG}  - {{profile: 3g.40gb}}\n  - {{profile: 3g.40gb, compute: []}}\nprocesses:\n- {{{process}}}\n"
                ),
                &format!("m.yaml:10:3: process 7 cannot be on GPU {reason}"),
            );
        };
        on("pid: 7, gpu: 5", "5: the machine does not have this GPU");
        on("pid: 7, gpu: 0, gi: 9, ci: 0", "0: GPU instance 9 does not exist; existing: 1, 2");
        on(
            "pid: 7, gpu: 0, gi: 2, ci: 3",
            "0: compute instance 3 does not exist in GPU instance 2; existing: 0",
        );
        on(
            "pid: 7, gpu: 0, gi: 1, ci: 0",
            "0: compute instance 0 does not exist in GPU instance 1; no compute instance exists",
        );
        on("pid: 7, gpu: 0, ci: 1", "0: compute instance 1 has no GPU instance; set `gi`");
        refused(
            "machine: m\ngpus: [{board: T4}]\nprocesses:\n- {pid: 1, gpu: 0}\n- {pid: 1, gpu: 0}\n",
            "m.yaml:5:3: process 1 cannot be on GPU 0: the process is already on this GPU",
        );
    }

    #[test]
    fn value_with_several_forms_is_rejected_in_words_of_the_file() {
        refused(
            "machine: m\ngpus: [{board: T4, minor: -1}]\n",
            "m.yaml:2:27: expected one valid value, or a list with one value for each GPU",
        );
        refused(
            "machine: m\nlatency: fast\n",
            "m.yaml:2:10: expected null, real, or a map of microseconds with the keys init_us",
        );
        refused(
            "machine: m\nfaults:\n- {call: nvmlInit, gpu: [], lie: true}\n",
            "m.yaml:3:25: expected the index or the UUID of a GPU",
        );
    }

    #[test]
    fn unknown_input_is_rejected_with_location() {
        refused("machine: m\ncolour: red\n", "m.yaml:2:1: unknown field");
        refused(
            "machine: m\ngpus:\n- board: H99\n",
            "m.yaml:3:10: unknown board \"H99\"; known boards: A100_40GB",
        );
        refused("machine: m\ngpus:\n- {board: T4, count: many}\n", "m.yaml:3:");
        refused(
            "machine: m\ngpus:\n- {board: T4, mig: enabled}\n",
            "m.yaml:3:3: mig: T4 does not support MIG",
        );
        refused(
            "machine: m\ngpus:\n- {board: T4, count: 2, numa: [0]}\n",
            "m.yaml:3:3: numa: 1 values for 2 GPUs",
        );
        refused(
            "machine: m\ngpus:\n- {board: T4, count: 2, uuid: GPU-1}\n",
            "m.yaml:3:3: uuid: GPU-1 is used by two GPUs, 0 and 1",
        );
        refused(
            "machine: m\ngpus:\n- {board: T4, minor: 1}\n- {board: L4}\n",
            "m.yaml:4:3: minor: 1 is used by two GPUs, 0 and 1",
        );
        refused(
            "machine: m\ngpus:\n- {board: T4, pci: '0000:1b:00.0'}\n- {board: L4, pci: '1B:00.0'}\n",
            "m.yaml:4:3: pci: 00000000:1B:00.0 is used by two GPUs, 0 and 1",
        );
        refused(
            "machine: m\ndriver: 580\n",
            "m.yaml:2:9: driver: \"580\" is not a version such as 580.95.05",
        );
        refused(
            "machine: m\ngpus:\n- {board: T4, count: 4096}\n- {board: T4}\n",
            "m.yaml:4:3: count: a machine has at most 4096 GPUs",
        );
        refused("machine: m\ncuda: new\n", "m.yaml:2:7: cuda: \"new\" is not a version");
        refused(
            "machine: m\nprocesses:\n- {pid: 1, gpu: 0}\n",
            "m.yaml:3:3: process 1 cannot be on GPU 0",
        );
        refused("machine: m\nfaults:\n- {call: nvmlInit_v2}\n", "m.yaml:3:");
        let text = "machine: m\nfaults:\n- {call: nvmlDeviceGetCuont, lie: true}\n";
        let error = Scenario::parse(Path::new("m.yaml"), text).unwrap().faults();
        assert_eq!(
            error.unwrap_err().to_string(),
            "m.yaml:3:3: NVML has no function nvmlDeviceGetCuont"
        );
        refused("", "m.yaml");
    }
}
