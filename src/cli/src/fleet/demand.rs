//! `octavo demand`: a summary line, a table of the pods, then the changes of the devices; or the details of one pod.

use octavo_demand::{
    Defragmentation, DemandReport, DeviceProposal, InstancePlace, ONLY_PROPOSALS, Outcome, PodMove,
    PodProposal,
};
use octavo_model::text::join;
use octavo_model::tone::Tone;

use super::format;
use crate::error::PodSelectionError;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, NONE, columns, lines, printable, wrap};

const POD_COLUMNS: [&str; 5] = ["POD", "WAITING", "REQUESTS", "OUTCOME", "MESSAGE"];
const DEVICE_COLUMNS: [&str; 5] = ["NODE", "GPU", "BEFORE", "AFTER", "PODS"];
/// Further columns of the wide table.
const WIDE_DEVICE_COLUMNS: [&str; 3] = ["PCI ADDRESS", "CREATES", "DESTROYS"];
const INSTANCE_COLUMNS: [&str; 6] =
    ["PROFILE", "GPU", "PCI ADDRESS", "SLICES", "ACTION", "DESTROYS"];
const ALTERNATIVE_COLUMNS: [&str; 2] = ["ALTERNATIVE", "REASON"];
const OBSTACLE_COLUMNS: [&str; 3] = ["OBSTACLE", "NODES", "MESSAGE"];
const MOVE_COLUMNS: [&str; 5] = ["RESTART", "RUNNING", "FROM", "TO", "ACTION"];

/// Formats the proposals as text; without headers, only the rows of pods.
pub(super) fn text(report: &DemandReport, printed: OutputOptions, colors: Colors) -> String {
    if report.items.is_empty() {
        return String::new();
    }
    let pods = report.items.iter().map(pod_row);
    let pods = text::table(&[&POD_COLUMNS], pods, printed.headers, colors);
    if !printed.with_headers() {
        return pods;
    }
    let mut parts = vec![summary(report), pods];
    if !report.devices.is_empty() {
        let wide: &[&str] = if printed.is_wide() { &WIDE_DEVICE_COLUMNS } else { &[] };
        let devices = report.devices.iter().map(device_row);
        parts.push(text::table(&[&DEVICE_COLUMNS, wide], devices, printed.headers, colors));
    }
    parts.join("\n")
}

/// Returns notes that apply to all proposals.
pub(super) fn notes(report: &DemandReport) -> Vec<String> {
    let mut notes = report.notes();
    if report.stale || !report.items.is_empty() {
        notes.extend(validity(report));
    }
    notes
}

/// Returns notes about the validity of the proposals.
pub(super) fn validity(report: &DemandReport) -> Vec<String> {
    let stale = report.stale.then(|| {
        "the proposals may be out of date: the aggregator cannot read the pods".to_owned()
    });
    stale.into_iter().chain([ONLY_PROPOSALS.to_owned()]).collect()
}

/// Returns the proposal for a pod: `NAME` or `NAMESPACE/NAME`.
pub(super) fn find<'a>(
    report: &'a DemandReport,
    wanted: &str,
) -> Result<&'a PodProposal, PodSelectionError> {
    let is_wanted = |pod: &&PodProposal| match wanted.split_once('/') {
        Some((namespace, name)) => pod.namespace == namespace && pod.pod == name,
        None => pod.pod == wanted,
    };
    let found: Vec<&PodProposal> = report.items.iter().filter(is_wanted).collect();
    match found.as_slice() {
        [] => Err(PodSelectionError::Unknown(printable(wanted))),
        [pod] => Ok(pod),
        several => Err(PodSelectionError::Ambiguous {
            name: printable(wanted),
            pods: several.iter().map(|pod| printable(&pod.reference())).collect(),
        }),
    }
}

/// Formats the details of a pod; without headers, only the rows of instances.
pub(super) fn details(pod: &PodProposal, printed: OutputOptions, colors: Colors) -> String {
    let headers = printed.headers;
    let instances: Vec<Vec<Cell>> = pod
        .instances
        .iter()
        .map(|one| {
            let destroyed = one.destroyed();
            vec![
                Cell::plain(&one.instance.profile),
                Cell::plain(&one.device_name),
                Cell::plain(&one.device),
                Cell::plain(&one.instance.slices()),
                Cell::plain(one.action()),
                Cell::optional((!destroyed.is_empty()).then_some(destroyed)),
            ]
        })
        .collect();
    if !printed.with_headers() {
        return text::table(&[&INSTANCE_COLUMNS], instances, headers, colors);
    }
    let alternatives: Vec<Vec<Cell>> = pod
        .alternatives
        .iter()
        .map(|one| vec![Cell::plain(&one.node), Cell::plain(&one.message)])
        .collect();
    let obstacles: Vec<Vec<Cell>> = pod
        .obstacles
        .iter()
        .map(|one| {
            vec![
                Cell::plain(one.reason.as_str()),
                Cell::plain(&one.nodes),
                Cell::plain(&one.message),
            ]
        })
        .collect();
    let found = pod.defragmentation.as_ref();
    let moves = found.map_or_else(Vec::new, |found| {
        found.moves.iter().map(|one| move_row(found, one)).collect()
    });
    let tables = [
        (&INSTANCE_COLUMNS[..], instances),
        (&ALTERNATIVE_COLUMNS[..], alternatives),
        (&OBSTACLE_COLUMNS[..], obstacles),
        (&MOVE_COLUMNS[..], moves),
    ];
    let tables = tables.into_iter().filter(|(_, rows)| !rows.is_empty());
    let tables = tables.map(|(names, rows)| text::table(&[names], rows, headers, colors));
    let parts: Vec<String> = [facts(pod, colors)].into_iter().chain(tables).collect();
    parts.join("\n")
}

fn move_row(found: &Defragmentation, one: &PodMove) -> Vec<Cell> {
    let from = format!("{} of {} on node {}", one.from.describe(), found.device_name, found.node);
    vec![
        Cell::plain(&one.reference()),
        Cell::optional(one.running_seconds.map(format::age)),
        Cell::plain(&from),
        Cell::plain(&one.to()),
        Cell::plain(one.to.action()),
    ]
}

fn facts(pod: &PodProposal, colors: Colors) -> String {
    let facts = [
        ("Pod:", Some(Cell::new(&pod.reference(), Style::Strong))),
        ("Outcome:", Some(outcome(pod))),
        ("Waiting:", pod.waiting_seconds.map(|seconds| Cell::plain(&format::age(seconds)))),
        ("Requests:", Some(Cell::plain(&pod.requests()))),
        ("Node:", pod.node.as_deref().map(Cell::plain)),
        ("Fragmentation:", pod.fragmentation_text().map(|text| Cell::plain(&text))),
        (
            "After restart:",
            pod.defragmentation.as_ref().map(|found| Cell::plain(&found.fragmentation_text())),
        ),
    ];
    let facts = facts.into_iter().filter_map(|(name, cell)| Some(vec![Cell::plain(name), cell?]));
    let facts: Vec<Vec<Cell>> = facts.collect();
    format!("{}\n{}\n", columns(&facts, colors), wrap(&pod.message, 0))
}

/// Formats `3 pods wait for MIG instances: 1 create, 2 blocked`.
fn summary(report: &DemandReport) -> String {
    let outcomes = report.outcomes();
    let outcomes = outcomes.iter().map(|(outcome, pods)| format!("{pods} {}", outcome.as_str()));
    lines([format!("{}: {}", report.waiting_text(), join(outcomes, ", "))])
}

fn pod_row(pod: &PodProposal) -> Vec<Cell> {
    vec![
        Cell::plain(&pod.reference()),
        Cell::optional(pod.waiting_seconds.map(format::age)),
        Cell::plain(&pod.requests()),
        outcome(pod),
        Cell::plain(&pod.message),
    ]
}

fn outcome(pod: &PodProposal) -> Cell {
    let tone = pod.outcome.known().map_or(Tone::Neutral, Outcome::tone);
    Cell::new(pod.outcome.as_str(), tone.into())
}

fn device_row(device: &DeviceProposal) -> Vec<Cell> {
    vec![
        Cell::plain(&device.node),
        Cell::plain(&device.device_name),
        Cell::plain(&DeviceProposal::describe(&device.before)),
        Cell::plain(&DeviceProposal::describe(&device.after)),
        Cell::plain(&device.pods),
        Cell::plain(&device.device),
        Cell::plain(&places(&device.creates)),
        Cell::plain(&places(&device.destroys)),
    ]
}

/// Formats `3g.40gb at slice 4, 1g.10gb at slice 0`.
fn places(all: &[InstancePlace]) -> String {
    let text = join(all.iter().map(InstancePlace::describe), ", ");
    if text.is_empty() { NONE.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use octavo_demand::{Alternative, Obstacle, ObstacleCount, ProposedInstance};
    use octavo_model::catalog::Placement;

    use super::*;
    use crate::error::explain;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn place(profile: &str, start: u32, size: u32) -> InstancePlace {
        InstancePlace { profile: profile.to_owned(), placement: Placement { start, size } }
    }

    fn pod(namespace: &str, name: &str, outcome: Outcome) -> PodProposal {
        PodProposal {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            waiting_seconds: Some(185),
            resources: [("nvidia.com/mig-3g.40gb".to_owned(), 1)].into(),
            outcome: outcome.into(),
            message: "instances that are in use or proposed for other pods leave no room on 2 nodes (1 GPU slice left, where no instance fits)"
                .to_owned(),
            node: None,
            instances: Vec::new(),
            fragmentation: None,
            alternatives: Vec::new(),
            obstacles: vec![ObstacleCount {
                reason: Obstacle::Occupied.into(),
                nodes: 2,
                message: "instances that are in use or proposed for other pods leave no room on 2 nodes".to_owned(),
            }],
            defragmentation: None,
        }
    }

    /// A pod that gets an instance in place of two idle ones.
    fn replaced() -> PodProposal {
        PodProposal {
            message: "create on node gpu-1: 3g.40gb at slice 4 of GPU 3; destroy idle: 1g.10gb at slice 4 of \
                      GPU 3, 1g.10gb at slice 5 of GPU 3"
                .to_owned(),
            node: Some("gpu-1".to_owned()),
            instances: vec![ProposedInstance {
                device: "0000:1b:00.0".to_owned(),
                device_name: "GPU 3".to_owned(),
                instance: place("3g.40gb", 4, 4),
                exists: false,
                destroys: vec![place("1g.10gb", 4, 1), place("1g.10gb", 5, 1)],
            }],
            fragmentation: Some(0.42),
            alternatives: vec![Alternative {
                node: "gpu-2".to_owned(),
                message: "1 more operation to create and destroy instances".to_owned(),
            }],
            ..pod("team-a", "train-0", Outcome::Replace)
        }
    }

    fn report(items: Vec<PodProposal>) -> DemandReport {
        DemandReport {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "DemandReport".to_owned(),
            as_of: "2026-01-01T00:00:00Z".to_owned(),
            stale: false,
            items,
            omitted_pods: 0,
            recent_pods: 0,
            devices: vec![DeviceProposal {
                node: "gpu-1".to_owned(),
                device: "0000:1b:00.0".to_owned(),
                device_name: "GPU 3".to_owned(),
                before: [("1g.10gb".to_owned(), 2)].into(),
                after: [("3g.40gb".to_owned(), 1)].into(),
                creates: vec![place("3g.40gb", 4, 4)],
                destroys: vec![place("1g.10gb", 4, 1), place("1g.10gb", 5, 1)],
                pods: 1,
            }],
        }
    }

    fn options(format: FleetFormat, headers: Headers) -> OutputOptions {
        OutputOptions { format, headers }
    }

    #[test]
    fn pods_precede_the_changes_of_devices() {
        let report = report(vec![replaced(), pod("team-b", "eval", Outcome::Blocked)]);
        let shown = text(&report, options(FleetFormat::Table, Headers::Shown), Colors::Off);
        assert_eq!(
            shown,
            "\
2 pods wait for MIG instances: 1 replace, 1 blocked

POD             WAITING  REQUESTS     OUTCOME  MESSAGE
team-a/train-0  3m       mig-3g.40gb  replace  create on node gpu-1: 3g.40gb at slice 4 of GPU 3; destroy idle: 1g.10gb at slice 4 of GPU 3, 1g.10gb at slice 5 of GPU 3
team-b/eval     3m       mig-3g.40gb  blocked  instances that are in use or proposed for other pods leave no room on 2 nodes (1 GPU slice left, where no instance fits)

NODE   GPU    BEFORE       AFTER    PODS
gpu-1  GPU 3  2 x 1g.10gb  3g.40gb  1
"
        );
        assert_eq!(notes(&report), [ONLY_PROPOSALS]);
        let rows = text(&report, options(FleetFormat::Table, Headers::Hidden), Colors::Off);
        assert_eq!(rows.lines().count(), 2);
        let wide = text(&report, options(FleetFormat::Wide, Headers::Shown), Colors::Off);
        let last =
            "1     0000:1b:00.0  3g.40gb at slice 4  1g.10gb at slice 4, 1g.10gb at slice 5\n";
        assert!(wide.ends_with(last), "{wide}");
    }

    #[test]
    fn details_name_instances_alternatives_and_obstacles() {
        let shown = details(&replaced(), options(FleetFormat::Table, Headers::Shown), Colors::Off);
        assert_eq!(
            shown,
            "\
Pod:            team-a/train-0
Outcome:        replace
Waiting:        3m
Requests:       mig-3g.40gb
Node:           gpu-1
Fragmentation:  0.4 more slices are unusable for an average request

create on node gpu-1: 3g.40gb at slice 4 of GPU 3; destroy idle: 1g.10gb at
slice 4 of GPU 3, 1g.10gb at slice 5 of GPU 3

PROFILE  GPU    PCI ADDRESS   SLICES      ACTION   DESTROYS
3g.40gb  GPU 3  0000:1b:00.0  slices 4-7  replace  1g.10gb at slice 4, 1g.10gb at slice 5

ALTERNATIVE  REASON
gpu-2        1 more operation to create and destroy instances

OBSTACLE  NODES  MESSAGE
occupied  2      instances that are in use or proposed for other pods leave no room on 2 nodes
"
        );
    }

    #[test]
    fn details_list_pods_whose_restart_would_make_room() {
        let to = ProposedInstance {
            device: "0000:1c:00.0".to_owned(),
            device_name: "GPU 4".to_owned(),
            instance: place("1g.10gb", 2, 1),
            exists: true,
            destroys: Vec::new(),
        };
        let found = Defragmentation {
            node: "gpu-1".to_owned(),
            device: "0000:1b:00.0".to_owned(),
            device_name: "GPU 3".to_owned(),
            instance: place("3g.40gb", 4, 4),
            moves: vec![PodMove {
                namespace: "team-c".to_owned(),
                pod: "notebook".to_owned(),
                running_seconds: Some(7_260),
                from: place("1g.10gb", 4, 1),
                node: "gpu-2".to_owned(),
                to,
            }],
            fragmentation: -1.25,
        };
        let blocked = PodProposal {
            message: "no room".to_owned(),
            obstacles: Vec::new(),
            defragmentation: Some(found),
            ..pod("team-b", "eval", Outcome::Blocked)
        };
        let shown = details(&blocked, options(FleetFormat::Table, Headers::Shown), Colors::Off);
        assert_eq!(
            shown,
            "\
Pod:            team-b/eval
Outcome:        blocked
Waiting:        3m
Requests:       mig-3g.40gb
After restart:  1.2 fewer slices are unusable for an average request

no room

RESTART          RUNNING  FROM                                       TO                                         ACTION
team-c/notebook  2h       1g.10gb at slice 4 of GPU 3 on node gpu-1  1g.10gb at slice 2 of GPU 4 on node gpu-2  use
"
        );
    }

    #[test]
    fn pod_is_found_by_name_and_by_namespace() {
        let report = report(vec![
            pod("a", "train", Outcome::Blocked),
            pod("b", "train", Outcome::Create),
            pod("b", "eval", Outcome::Create),
        ]);
        assert_eq!(find(&report, "eval").unwrap().reference(), "b/eval");
        assert_eq!(find(&report, "b/train").unwrap().outcome, Outcome::Create);
        let ambiguous = find(&report, "train").unwrap_err();
        assert_eq!(ambiguous.to_string(), "several pods have the name train: a/train, b/train");
        for unknown in ["a/eval", "b/", "gone"] {
            let error = explain(&find(&report, unknown).unwrap_err().into());
            assert!(error.contains(unknown) && error.contains("octavo demand -o name"), "{error}");
        }
    }

    #[test]
    fn empty_report_is_one_sentence() {
        let mut empty = DemandReport { devices: Vec::new(), ..report(Vec::new()) };
        let shown = options(FleetFormat::Table, Headers::Shown);
        assert_eq!(text(&empty, shown, Colors::Off), "");
        assert_eq!(notes(&empty), ["no pending pod requests MIG instances"]);
        empty.recent_pods = 2;
        assert_eq!(notes(&empty), ["2 pods are not planned yet: younger than 10 s"]);
    }

    #[test]
    fn omitted_pods_are_counted_and_names_cannot_control_the_terminal() {
        let mut report = report(vec![pod("a", "<script>\u{1b}[2J\u{202e}", Outcome::Reserve)]);
        report.omitted_pods = 3;
        report.stale = true;
        let shown = text(&report, options(FleetFormat::Wide, Headers::Shown), Colors::Off);
        assert!(shown.contains("a/<script>\u{fffd}[2J\u{fffd}"), "{shown}");
        let omitted =
            "3 pods are omitted: at most 256 pods are planned, and fewer with costly requests";
        let stale = "the proposals may be out of date: the aggregator cannot read the pods";
        assert_eq!(notes(&report), [omitted, stale, ONLY_PROPOSALS]);
    }

    #[test]
    fn fragmentation_is_rounded_to_a_tenth() {
        for (growth, text) in [
            (0.04, "unchanged"),
            (-0.04, "unchanged"),
            (1.25, "1.2 more slices are unusable for an average request"),
            (-0.5, "0.5 fewer slices are unusable for an average request"),
        ] {
            let pod = PodProposal { fragmentation: Some(growth), ..replaced() };
            assert_eq!(pod.fragmentation_text().unwrap(), text);
        }
    }
}
