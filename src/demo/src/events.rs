//! Events on the demo's machines: an endless cycle, after which everything is in its initial state.

/// An event on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoEvent {
    /// The machine.
    pub machine: String,
    /// The event's description.
    pub says: String,
    /// The action that causes it.
    pub deed: DemoAction,
}

/// An action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemoAction {
    /// Changes the simulated hardware.
    Simulate(Vec<String>),
    /// Changes the simulated hardware and its files of /sys.
    Partition(Vec<String>),
    /// Selects a layout of `demo/layouts.yaml` manually.
    Choose(String),
}

const TRAINING: &str = "process add 2 --pid 2002 --name torchrun --memory-mib 70000";
const SERVING: &str = "process add 1 --pid 2003 --gi 9 --ci 0 --name vllm --memory-mib 8000";
const TRITON: &str = "process add 0 --pid 77 --name tritonserver --memory-mib 2048";

/// Machine, description, arguments.
const EVENTS: [(&str, &str, &str); 18] = [
    ("dgx-h100", "a training job starts on GPU 2", TRAINING),
    ("hgx-a100", "a model server starts in a partition of GPU 1", SERVING),
    (
        "hgx-a100",
        "the layout night is selected: seven partitions on each of GPUs 0, 2 and 3",
        "apply night",
    ),
    ("h200", "GPU 5 is reset and comes back", "reset 5"),
    ("mi300x", "all devices are unpartitioned (SPX, NPS1)", "amd SPX NPS1"),
    ("dgx-h100", "GPU 7 falls off the bus", "lose 7"),
    ("t4", "its model server ends", "process remove 77"),
    (
        "mixed-l40s-a100",
        "the driver hangs",
        "fault add {id:demo,call:nvmlDeviceGetMigMode,hang:forever}",
    ),
    ("hgx-a100", "the layout day is selected again", "apply day"),
    ("hgx-a100", "the server in GPU 0's partition ends", "process remove 4711"),
    ("dgx-h100", "GPU 7 is reset and comes back", "reset 7"),
    ("hgx-a100", "the model server on GPU 1 ends", "process remove 2003"),
    ("mixed-l40s-a100", "the driver responds again", "fault clear demo"),
    ("t4", "a model server starts on its GPU", TRITON),
    (
        "hgx-a100",
        "a server starts in a partition of GPU 0",
        "process add 0 --pid 4711 --gi 2 --ci 0 --name vllm --memory-mib 30000",
    ),
    ("h200", "GPU 5 falls off the bus", "lose 5"),
    ("mi300x", "all devices are partitioned again (CPX, NPS4)", "amd CPX NPS4"),
    ("dgx-h100", "the training job on GPU 2 ends", "process remove 2002"),
];

/// Returns the cycle for machines with these names. On machines without events of their own a process comes and goes.
pub fn event_cycle<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<DemoEvent> {
    let names: Vec<&str> = names.into_iter().collect();
    let act = |machine: &str, says: &str, arguments: &str| DemoEvent {
        machine: machine.to_owned(),
        says: says.to_owned(),
        deed: deed(arguments),
    };
    let written = EVENTS.iter().filter(|(machine, ..)| names.contains(machine));
    let written: Vec<DemoEvent> =
        written.map(|(machine, says, arguments)| act(machine, says, arguments)).collect();
    if !written.is_empty() {
        return written;
    }
    let come = names
        .iter()
        .map(|name| act(name, "a job starts on GPU 0", "process add 0 --pid 2001 --name job"));
    let go = names.iter().map(|name| act(name, "the job on GPU 0 ends", "process remove 2001"));
    come.chain(go).collect()
}

fn deed(arguments: &str) -> DemoAction {
    match arguments.strip_prefix("apply ") {
        Some(layout) => DemoAction::Choose(layout.to_owned()),
        None if arguments.starts_with("amd ") => DemoAction::Partition(split(arguments)),
        None => DemoAction::Simulate(split(arguments)),
    }
}

/// Splits arguments at blanks; a rule in braces is written without blanks and becomes YAML, which requires one after
/// each colon.
fn split(arguments: &str) -> Vec<String> {
    arguments
        .split(' ')
        .map(|one| {
            if one.starts_with('{') {
                one.replace(':', ": ").replace(',', ", ")
            } else {
                one.to_owned()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_one_argument() {
        let round = event_cycle(["mixed-l40s-a100"]);
        let rule = "{id: demo, call: nvmlDeviceGetMigMode, hang: forever}";
        let arguments = ["fault", "add", rule].map(str::to_owned);
        assert_eq!(round[0].deed, DemoAction::Simulate(arguments.to_vec()));
    }

    #[test]
    fn unknown_machines_get_a_start_and_stop_event() {
        let says: Vec<String> = event_cycle(["mine"]).into_iter().map(|act| act.says).collect();
        assert_eq!(says, ["a job starts on GPU 0", "the job on GPU 0 ends"]);
    }
}
