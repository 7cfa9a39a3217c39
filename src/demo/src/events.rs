//! Events on the demo's machines: an endless cycle, after which everything is in its initial state.

/// An event on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoEvent {
    /// The machine.
    pub machine: String,
    /// The event's description.
    pub description: String,
    /// The action that causes it.
    pub action: DemoAction,
}

/// An action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemoAction {
    /// Changes the simulated hardware.
    Simulate(Vec<String>),
    /// Changes the simulated hardware and its files of /sys.
    Partition(Vec<String>),
    /// Selects a layout of `demo/layouts.yaml` with the label of the Node.
    SelectLayout(String),
    /// Creates a pod of `demo/workloads.yaml`.
    Start(String),
    /// Deletes a pod.
    Stop(String),
}

/// Machine, description, arguments.
const EVENTS: [(&str, &str, &str); 20] = [
    ("dgx-h100", "a training job starts on GPU 2", "start research/sweep-2"),
    (
        "shared-a100-04",
        "the layout medium is selected: three partitions on each GPU",
        "apply medium",
    ),
    ("hgx-a100", "a model server starts in a partition of GPU 1", "start serving/summarize-0"),
    (
        "hgx-a100",
        "the layout night is selected: seven partitions on each of GPUs 0, 2 and 3",
        "apply night",
    ),
    ("h200", "GPU 5 is reset and comes back", "reset 5"),
    ("mi300x", "all devices are unpartitioned (SPX, NPS1)", "amd SPX NPS1"),
    ("dgx-h100", "GPU 7 falls off the bus", "lose 7"),
    ("t4", "its model server ends", "stop serving/triton-0"),
    (
        "mixed-l40s-a100",
        "the driver hangs",
        "fault add {id:demo,call:nvmlDeviceGetMigMode,hang:forever}",
    ),
    ("hgx-a100", "the layout day is selected again", "apply day"),
    ("hgx-a100", "the server in GPU 0's partition ends", "stop serving/chat-70b-0"),
    ("dgx-h100", "GPU 7 is reset and comes back", "reset 7"),
    ("shared-a100-04", "the layout small is selected: seven partitions on each GPU", "apply small"),
    ("hgx-a100", "the model server on GPU 1 ends", "stop serving/summarize-0"),
    ("mixed-l40s-a100", "the driver responds again", "fault clear demo"),
    ("t4", "a model server starts on its GPU", "start serving/triton-0"),
    ("hgx-a100", "a server starts in a partition of GPU 0", "start serving/chat-70b-0"),
    ("h200", "GPU 5 falls off the bus", "lose 5"),
    ("mi300x", "all devices are partitioned again (CPX, NPS4)", "amd CPX NPS4"),
    ("dgx-h100", "the training job on GPU 2 ends", "stop research/sweep-2"),
];

/// Returns the cycle for machines with these names. On machines without events of their own a process comes and goes.
pub fn event_cycle<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<DemoEvent> {
    let names: Vec<&str> = names.into_iter().collect();
    let act = |machine: &str, description: &str, arguments: &str| DemoEvent {
        machine: machine.to_owned(),
        description: description.to_owned(),
        action: action(arguments),
    };
    let written = EVENTS.iter().filter(|(machine, ..)| names.contains(machine));
    let written: Vec<DemoEvent> = written
        .map(|(machine, description, arguments)| act(machine, description, arguments))
        .collect();
    if !written.is_empty() {
        return written;
    }
    let come = names
        .iter()
        .map(|name| act(name, "a job starts on GPU 0", "process add 0 --pid 2001 --name job"));
    let go = names.iter().map(|name| act(name, "the job on GPU 0 ends", "process remove 2001"));
    come.chain(go).collect()
}

fn action(arguments: &str) -> DemoAction {
    let (verb, rest) = arguments.split_once(' ').unwrap_or((arguments, ""));
    match verb {
        "apply" => DemoAction::SelectLayout(rest.to_owned()),
        "start" => DemoAction::Start(rest.to_owned()),
        "stop" => DemoAction::Stop(rest.to_owned()),
        "amd" => DemoAction::Partition(split(arguments)),
        _ => DemoAction::Simulate(split(arguments)),
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
        assert_eq!(round[0].action, DemoAction::Simulate(arguments.to_vec()));
    }

    #[test]
    fn events_start_and_stop_pods_and_select_layouts() {
        let actions: Vec<DemoAction> =
            event_cycle(["t4", "shared-a100-04"]).into_iter().map(|act| act.action).collect();
        assert_eq!(actions[0], DemoAction::SelectLayout("medium".to_owned()));
        assert_eq!(actions[1], DemoAction::Stop("serving/triton-0".to_owned()));
        assert_eq!(actions[3], DemoAction::Start("serving/triton-0".to_owned()));
    }

    #[test]
    fn unknown_machines_get_a_start_and_stop_event() {
        let description: Vec<String> =
            event_cycle(["mine"]).into_iter().map(|act| act.description).collect();
        assert_eq!(description, ["a job starts on GPU 0", "the job on GPU 0 ends"]);
    }
}
