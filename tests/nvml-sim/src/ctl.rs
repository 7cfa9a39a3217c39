//! The commands of `nvml-simctl`.
//!
//! ```text
//!  arguments ── run ── Store::change ── an operation of the model
//! ```
//!
//! Each command is one locked change of the state directory, so it takes effect for clients that run at the time.

mod arguments;
mod library;
mod mig;
mod show;

use std::io::Write;
use std::path::{Path, PathBuf};

use nvml_sim::fault::{self, Rule, RuleError};
use nvml_sim::model::{Code, Process, ProcessRefusal, Slot, World};
use nvml_sim::scenario::{Scenario, ScenarioError};
use nvml_sim::store::{IfPresent, Store, StoreError};
use nvml_sim::sysfs;
use thiserror::Error;

pub(crate) use arguments::Arguments;
use arguments::{Command, FaultCommand, GpuOption, ProcessCommand};

/// Reason why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CtlError {
    /// Neither the option nor the variable is set.
    #[error("no machine selected: set --state DIR or NVML_SIM_STATE")]
    NoState,
    /// The state directory has no machine.
    #[error("{0} contains no machine; create one with: nvml-simctl --state {0} init SCENARIO")]
    NoMachine(PathBuf),
    /// There is a machine already.
    #[error("{0} already contains a machine; use --force to replace it")]
    Present(PathBuf),
    /// No such GPU.
    #[error("no GPU with the index, UUID or PCI address {0:?}")]
    NoGpu(String),
    /// No such profile.
    #[error("unknown profile {profile:?}; this GPU has {}", known.join(", "))]
    NoProfile {
        /// The requested profile.
        profile: String,
        /// The profiles of the board.
        known: Vec<String>,
    },
    /// The model rejects the operation.
    #[error("{doing}: {}", code.name())]
    Refused {
        /// The operation.
        doing: &'static str,
        /// The driver's answer.
        code: Code,
    },
    /// The process cannot be added.
    #[error("cannot add process {pid}: {reason}")]
    Process {
        /// Its pid.
        pid: u32,
        /// The reason.
        reason: ProcessRefusal,
    },
    /// The rule is invalid.
    #[error("cannot parse the fault {text:?}: {reason}")]
    Fault {
        /// The rule's text.
        text: String,
        /// The reason.
        reason: String,
    },
    /// No such rule.
    #[error("no fault with the ID {0:?}")]
    NoFault(String),
    /// The library cannot be patched.
    #[error("cannot patch {path}")]
    Library {
        /// The library.
        path: PathBuf,
        /// The reason.
        source: nvml_sim::elf::ElfError,
    },
    /// There is no library beside this program.
    #[error("no libnvml_sim.so in the directory of this program; set its path with --from")]
    NoLibrary,
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// An error of the rules.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// A file operation failed.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// Executes one command and writes its output.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), CtlError> {
    if let Command::Library(options) = &arguments.command {
        return library::run(options);
    }
    let directory = arguments.state_directory().ok_or(CtlError::NoState)?;
    let store = Store::at(&directory);
    if let Command::Init { scenario, force } = &arguments.command {
        return init(&store, scenario, *force);
    }
    if !store.has_state() {
        return Err(CtlError::NoMachine(directory));
    }
    match &arguments.command {
        Command::Library(_) | Command::Init { .. } => Ok(()),
        Command::Show { json: false } => print(out, &show::table(&*store.read()?)),
        Command::Show { json: true } => print(out, &format!("{}\n", show::json(&*store.read()?))),
        Command::Amd { compute, memory } => {
            change(&store, "cannot partition the devices", |world| {
                world.others.divide(*compute, *memory)
            })
        }
        Command::Sysfs { directory } => {
            sysfs::write(&*store.read()?, directory).map_err(|source| CtlError::File {
                doing: "write the /sys tree under",
                path: directory.clone(),
                source,
            })
        }
        Command::Fault(command) => faults(&directory, command, out),
        Command::Mig(command) => mig::run(&store, command, out),
        Command::Process(command) => process(&store, command),
        Command::Xid { gpu, number, gi, ci } => {
            on_gpu(&store, gpu, "cannot report the Xid", |world, slot| {
                world.xid(slot, *number, gi.map(|gi| (gi, *ci)))
            })
        }
        Command::Lose(gpu) => on_gpu(&store, gpu, "cannot remove the GPU", World::lose_gpu),
        Command::Return(gpu) => on_gpu(&store, gpu, "cannot restore the GPU", World::return_gpu),
        Command::Recovery { gpu, action } => {
            on_gpu(&store, gpu, "cannot set the recovery action", |world, slot| {
                world.set_recovery_action(slot, *action)
            })
        }
        Command::Reset { gpu, kill } => {
            on_gpu(&store, gpu, "cannot reset the GPU", |world, slot| {
                if *kill {
                    let uuid = world.gpu(slot)?.uuid.clone();
                    world.processes.retain(|process| process.gpu_uuid != uuid);
                }
                world.reset_gpu(slot)
            })
        }
        Command::Reload { version } => change(&store, "cannot reload the driver", |world| {
            world.reload_driver(version.as_deref())
        }),
        Command::Unload => change(&store, "cannot unload the driver", World::unload_driver),
        Command::Load => change(&store, "cannot load the driver", |world| {
            world.load_driver();
            Ok(())
        }),
        Command::Reboot => change(&store, "cannot reboot", |world| {
            world.reboot();
            Ok(())
        }),
    }
}

fn init(store: &Store, scenario: &Path, force: bool) -> Result<(), CtlError> {
    if store.has_state() && !force {
        return Err(CtlError::Present(store.directory().to_owned()));
    }
    let scenario = Scenario::read(scenario)?;
    Ok(store.create(&scenario, IfPresent::Replace)?)
}

fn process(store: &Store, command: &ProcessCommand) -> Result<(), CtlError> {
    match command {
        ProcessCommand::Add(added) => {
            let mut refusal = None;
            let answer = on_gpu(store, &added.gpu, "cannot add the process", |world, slot| {
                let gpu_uuid = world.gpu(slot)?.uuid.clone();
                let process = Process {
                    pid: added.pid,
                    name: added.name.clone(),
                    gpu_uuid,
                    gi: added.gi,
                    ci: added.ci,
                    memory_mib: added.memory_mib,
                    kind: added.kind.into(),
                };
                refusal = world.refusal_of(&process).err();
                world.add_process(process)
            });
            match refusal {
                Some(reason) => Err(CtlError::Process { pid: added.pid, reason }),
                None => answer,
            }
        }
        ProcessCommand::Remove { pid } => {
            change(store, "cannot remove the process", |world| world.remove_process(*pid))
        }
        ProcessCommand::Load { loads } => {
            change(store, "cannot set the load of the processes", |world| world.set_loads(loads))
        }
    }
}

fn faults(directory: &Path, command: &FaultCommand, out: &mut dyn Write) -> Result<(), CtlError> {
    let rule = match command {
        FaultCommand::List => {
            let rules = fault::read_rules(directory)?.0;
            let lines = rules.iter().map(|rule| show::fault(rule) + "\n");
            return print(out, &lines.collect::<String>());
        }
        FaultCommand::Add { rule: text } => Some(read_rule(text)?),
        FaultCommand::Clear { .. } => None,
    };
    fault::change_rules(directory, |rules| {
        match command {
            FaultCommand::Clear { ids } if !ids.is_empty() => {
                let there = |id: &&String| rules.iter().any(|rule| rule.id == **id);
                if let Some(missing) = ids.iter().find(|id| !there(id)) {
                    return Err(CtlError::NoFault(missing.clone()));
                }
                rules.retain(|rule| !ids.contains(&rule.id));
            }
            FaultCommand::Clear { .. } => rules.clear(),
            FaultCommand::Add { .. } | FaultCommand::List => rules.extend(rule),
        }
        Ok(())
    })
}

fn read_rule(text: &str) -> Result<Rule, CtlError> {
    let rule: Rule = serde_saphyr::from_str(text).map_err(|error| CtlError::Fault {
        text: text.to_owned(),
        reason: error.without_snippet().to_string(),
    })?;
    rule.check()?;
    Ok(rule)
}

/// Changes the machine; a rejection is the error of the command.
fn change<T>(
    store: &Store,
    doing: &'static str,
    operation: impl FnOnce(&mut World) -> Result<T, Code>,
) -> Result<T, CtlError> {
    store.change(operation)?.map_err(|code| CtlError::Refused { doing, code })
}

/// The same for one GPU, which is looked up within the change so that it is atomic.
fn on_gpu<T>(
    store: &Store,
    gpu: &GpuOption,
    doing: &'static str,
    operation: impl FnOnce(&mut World, Slot) -> Result<T, Code>,
) -> Result<T, CtlError> {
    let mut known = true;
    let answer = change(store, doing, |world| {
        let Some(slot) = find(world, &gpu.gpu) else {
            known = false;
            return Err(Code::NotFound);
        };
        operation(world, slot)
    });
    if known { answer } else { Err(CtlError::NoGpu(gpu.gpu.clone())) }
}

/// A GPU by index, UUID or PCI address.
fn find(world: &World, text: &str) -> Option<Slot> {
    let by_index = text.parse().ok().and_then(|index| world.slot_of_index(index));
    by_index.or_else(|| world.slot_of_uuid(text)).or_else(|| world.slot_of_pci(text))
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), CtlError> {
    out.write_all(text.as_bytes()).map_err(|source| CtlError::File {
        doing: "write to",
        path: "standard output".into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Runs a command line on the machine of a directory; returns its output or the error.
    fn ctl(directory: &Path, line: &[&str]) -> Result<String, String> {
        let state = directory.join("state");
        let option = ["nvml-simctl", "--state", state.to_str().unwrap()];
        let arguments = Arguments::try_parse_from(option.iter().chain(line)).unwrap();
        let mut out = Vec::new();
        run(&arguments, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn machine() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let scenario = directory.path().join("m.yaml");
        std::fs::write(&scenario, "machine: m\ngpus: [{board: H100_80GB_SXM}]\n").unwrap();
        let done = ctl(directory.path(), &["init", scenario.to_str().unwrap()]);
        assert_eq!(done, Ok(String::new()));
        directory
    }

    #[test]
    fn amd_devices_are_partitioned_where_possible_and_their_files_agree() {
        let directory = tempfile::tempdir().unwrap();
        let scenario = directory.path().join("m.yaml");
        std::fs::write(&scenario, "machine: m\namd: [{chip: mi300x}]\n").unwrap();
        let ctl = |line: &[&str]| ctl(directory.path(), line);
        ctl(&["init", scenario.to_str().unwrap()]).unwrap();
        let root = directory.path().join("root");
        let nodes = || {
            ctl(&["sysfs", root.to_str().unwrap()]).unwrap();
            let nodes = root.join("sys/class/kfd/kfd/topology/nodes");
            std::fs::read_dir(nodes).unwrap().count()
        };
        assert_eq!(nodes(), 3);
        ctl(&["amd", "CPX", "NPS4"]).unwrap();
        assert_eq!(nodes(), 10);
        let refused = ctl(&["amd", "SPX", "NPS4"]).unwrap_err();
        assert_eq!(refused, "cannot partition the devices: INVALID_ARGUMENT");
        ctl(&["amd", "SPX", "NPS1"]).unwrap();
        assert_eq!(nodes(), 3);
    }

    #[test]
    fn machine_is_partitioned_reset_and_restarted_from_command_line() {
        let directory = machine();
        let ctl = |line: &[&str]| ctl(directory.path(), line);
        let nothing = Ok(String::new());
        assert_eq!(
            ctl(&["mig", "create", "0", "3g.40gb"]),
            Err("cannot create the GPU instance: NOT_SUPPORTED".to_owned())
        );
        assert_eq!(ctl(&["mig", "mode", "0", "on"]), nothing);
        assert_eq!(ctl(&["mig", "create", "0", "3g.40gb"]), Ok("GPU instance 2\n".to_owned()));
        assert_eq!(ctl(&["process", "add", "0", "--pid", "7", "--gi", "2"]), nothing);
        assert_eq!(
            ctl(&["mig", "destroy", "0"]),
            Err("cannot destroy GPU instances: IN_USE".to_owned())
        );
        assert_eq!(ctl(&["reset", "0"]), Err("cannot reset the GPU: IN_USE".to_owned()));
        assert_eq!(
            ctl(&["process", "add", "0", "--pid", "8", "--gi", "2", "--ci", "1"]),
            Err(
                "cannot add process 8: compute instance 1 does not exist in GPU instance 2; existing: 0"
                    .to_owned()
            )
        );
        let shown = ctl(&["show"]).unwrap();
        assert!(shown.contains("GI  2  3g.40gb        at 4+4\n"), "{shown}");
        assert!(shown.contains("process 7 python3 on GPU-"), "{shown}");
        assert_eq!(ctl(&["reset", "0", "--kill"]), nothing);
        assert_eq!(ctl(&["lose", "0"]), nothing);
        assert!(ctl(&["show"]).unwrap().contains("MIG on, LOST"));
        assert_eq!(ctl(&["reload", "--version", "590.1"]), nothing);
        assert!(ctl(&["show"]).unwrap().starts_with("m: driver 590.1, 1 GPUs\n"));
    }

    #[test]
    fn load_of_processes_determines_utilization_power_and_temperature_of_their_gpu() {
        let directory = machine();
        let ctl = |line: &[&str]| ctl(directory.path(), line);
        ctl(&["process", "add", "0", "--pid", "7", "--name", "train"]).unwrap();
        ctl(&["process", "add", "0", "--pid", "8"]).unwrap();
        ctl(&["process", "load", "7=60:1000", "8=70:2000"]).unwrap();
        let world = Store::at(&directory.path().join("state")).read().unwrap();
        let gpu = &world.gpus[0];
        assert_eq!(gpu.utilization.0, 100);
        assert_eq!((gpu.process_utilization[&7].0, gpu.process_utilization[&8].0), (60, 70));
        assert!(gpu.power_mw > gpu.power_limit_mw / 2 && gpu.temperature_c > 50);
        let shown: serde_json::Value =
            serde_json::from_str(&ctl(&["show", "--json"]).unwrap()).unwrap();
        assert_eq!(shown["processes"][1]["memoryMib"], 2000);
        assert_eq!(shown["gpus"][0]["uuid"], gpu.uuid);
        let unknown = ctl(&["process", "load", "9=1:1"]).unwrap_err();
        assert_eq!(unknown, "cannot set the load of the processes: NOT_FOUND");
        ctl(&["process", "remove", "7"]).unwrap();
        ctl(&["process", "load", "8=0:2000"]).unwrap();
        let world = Store::at(&directory.path().join("state")).read().unwrap();
        assert_eq!((world.gpus[0].utilization.0, world.gpus[0].process_utilization.len()), (0, 1));
    }

    #[test]
    fn faults_are_added_listed_and_cleared_by_name() {
        let directory = machine();
        let ctl = |line: &[&str]| ctl(directory.path(), line);
        ctl(&["fault", "add", "{call: nvmlInit*, return: UNKNOWN}"]).unwrap();
        ctl(&["fault", "add", "{id: slow, call: '*', slow_factor: 100}"]).unwrap();
        assert_eq!(
            ctl(&["fault", "add", "{call: nvmlInti, return: UNKNOWN}"]),
            Err("NVML has no function nvmlInti".to_owned())
        );
        let listed = ctl(&["fault", "list"]).unwrap();
        assert_eq!(listed.lines().count(), 2);
        assert_eq!(
            ctl(&["fault", "clear", "fast"]),
            Err("no fault with the ID \"fast\"".to_owned())
        );
        ctl(&["fault", "clear", "fault-1"]).unwrap();
        assert!(ctl(&["fault", "list"]).unwrap().starts_with("{\"id\":\"slow\""));
        ctl(&["fault", "clear"]).unwrap();
        assert_eq!(ctl(&["fault", "list"]), Ok(String::new()));
    }

    #[test]
    fn existing_machine_is_replaced_only_with_force() {
        let directory = machine();
        let scenario = directory.path().join("m.yaml");
        let scenario = scenario.to_str().unwrap();
        let error = ctl(directory.path(), &["init", scenario]).unwrap_err();
        assert!(
            error.ends_with("already contains a machine; use --force to replace it"),
            "{error}"
        );
        assert_eq!(ctl(directory.path(), &["init", scenario, "--force"]), Ok(String::new()));
        let elsewhere = tempfile::tempdir().unwrap();
        let error = ctl(elsewhere.path(), &["show"]).unwrap_err();
        assert!(error.contains("contains no machine; create one with: nvml-simctl"), "{error}");
    }
}
