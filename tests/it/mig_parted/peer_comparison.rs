//! Both programs with the same configuration on the same machine: where NVIDIA's works correctly, the results are
//! equal.

use super::node::{CommandResult, Node};
use crate::time_limits::Finish;

/// Expected results of both programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Both succeed with the same result.
    Same,
    /// NVIDIA's reports success although it removed partitions without replacement; ours reports the reason and changes
    /// nothing.
    TheyLie,
    /// NVIDIA's fails and has removed something; ours fails and changes nothing.
    TheyBreak,
    /// NVIDIA's fails; ours succeeds.
    OnlyOurs,
}

use Expect::{OnlyOurs, Same, TheyBreak, TheyLie};

/// Runs NVIDIA's program or ours.
type Program = fn(&Node, &[&str]) -> CommandResult;

/// Name, GPUs, rules and expectation.
type Row = (&'static str, &'static str, &'static str, Expect);

const ROWS: &[Row] = &[
    (
        "mode off, seven small ones",
        "  - {board: A100_40GB}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n",
        Same,
    ),
    (
        "one GPU instance split in three",
        "  - {board: A100_40GB, mig: enabled}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 3, 1g.5gb: 1}}\n",
        Same,
    ),
    (
        "one GPU instance split unevenly",
        "  - {board: A100_40GB, mig: enabled}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {2c.3g.20gb: 1, 1c.3g.20gb: 1}}\n",
        Same,
    ),
    (
        "two GPUs, three profiles",
        "  - {board: A100_80GB, count: 2}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}\n",
        Same,
    ),
    (
        "media engines, others there before",
        "  - {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 1g.10gb, count: 2}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb+me: 1, 1g.10gb: 4}}\n",
        Same,
    ),
    (
        "twice the memory",
        "  - {board: H100_80GB_SXM}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.20gb: 2, 3g.40gb: 1}}\n",
        Same,
    ),
    (
        "a board of four slices",
        "  - {board: A30_24GB}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.6gb: 2, 2g.12gb: 1}}\n",
        Same,
    ),
    (
        "each GPU otherwise",
        "  - {board: A100_40GB, count: 2, mig: enabled}\n",
        "  - {devices: [0], mig-enabled: true, mig-devices: {7g.40gb: 1}}\n  - {devices: [1], mig-enabled: true, mig-devices: {4g.20gb: 1, 3g.20gb: 1}}\n",
        Same,
    ),
    (
        "one on and one off",
        "  - {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 2g.10gb}]}\n",
        "  - {devices: [0], mig-enabled: false}\n  - {devices: [1], mig-enabled: true, mig-devices: {2g.10gb: 3}}\n",
        Same,
    ),
    (
        "one GPU only, the other is unchanged",
        "  - {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 2g.10gb}]}\n",
        "  - {devices: [1], mig-enabled: true, mig-devices: {1g.5gb: 4}}\n",
        Same,
    ),
    (
        "a GPU beside that cannot be partitioned",
        "  - {board: T4}\n  - {board: A100_40GB}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {2g.10gb: 2}}\n",
        Same,
    ),
    (
        "nothing but a GPU that cannot be partitioned, and nothing asked",
        "  - {board: T4}\n",
        "  - {devices: all, mig-enabled: false}\n",
        Same,
    ),
    (
        "all off",
        "  - {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb}]}\n",
        "  - {devices: all, mig-enabled: false}\n",
        Same,
    ),
    (
        "on and empty",
        "  - {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {}}\n",
        Same,
    ),
    (
        "as it is already",
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb}, {profile: 1g.5gb}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 3g.20gb: 1}}\n",
        Same,
    ),
    (
        "of rules that overlap the last counts",
        "  - {board: A100_40GB, count: 2, mig: enabled}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n  - {devices: [1], mig-enabled: true, mig-devices: {3g.20gb: 2}}\n",
        Same,
    ),
    (
        "filters for each of two models",
        "  - {board: A100_40GB}\n  - {board: H100_80GB_SXM}\n",
        "  - {device-filter: '0x20B010DE', devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}\n  - {device-filter: ['0x233010DE'], devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}\n",
        Same,
    ),
    (
        "a name that two boards have with two profiles",
        "  - {board: A100_40GB}\n  - {board: A100_80GB}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2}}\n",
        OnlyOurs,
    ),
    (
        "an unknown profile",
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2, 1g.12gb: 1}}\n",
        TheyLie,
    ),
    (
        "more than fit",
        "  - {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 2g.10gb}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}\n",
        TheyBreak,
    ),
    (
        "a profile of one of two models",
        "  - {board: A100_40GB, mig: enabled}\n  - {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n",
        TheyBreak,
    ),
    (
        "a blocking GPU instance without a compute instance",
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 4g.20gb, compute: []}]}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n",
        OnlyOurs,
    ),
    (
        "an instance in use that may stay",
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\nprocesses:\n- {pid: 4711, gpu: 0, gi: 13, ci: 0}\n",
        "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}\n",
        OnlyOurs,
    ),
];

fn apply(node: &Node, rules: &str, who: Program) -> CommandResult {
    let config = node.config(rules);
    who(node, &["apply", "--config-file", &config, "-c", "wanted"])
}

#[test]
fn results_equal_nvidia_mig_parted_where_it_is_correct() {
    for (name, gpus, rules, expect) in ROWS {
        let (theirs, ours) = (Node::new(gpus), Node::new(gpus));
        let before = ours.geometry();
        let reported = [apply(&theirs, rules, Node::theirs), apply(&ours, rules, Node::ours)];
        let codes = [reported[0].code, reported[1].code];
        let (has, have) = (ours.geometry(), theirs.geometry());
        let seen = format!("{name}: {reported:#?}\ntheirs {have:?}\nours {has:?}");
        match expect {
            Same => {
                assert_eq!(codes, [0, 0], "{seen}");
                assert_eq!(has, have, "{seen}");
                assert_eq!(reported[0].out, reported[1].out, "{seen}");
                let config = ours.config(rules);
                ours.ours(&["assert", "-f", &config]).expect_code(0);
            }
            TheyLie | TheyBreak => {
                assert_eq!(codes, [i32::from(*expect == TheyBreak), 1], "{seen}");
                assert_ne!(have, before, "{seen}");
                assert_eq!(has, before, "{seen}");
            }
            OnlyOurs => {
                assert_eq!(codes, [1, 0], "{seen}");
                let config = ours.config(rules);
                ours.ours(&["assert", "-f", &config]).expect_code(0);
            }
        }
    }
}

#[test]
fn each_program_reads_exports_and_restores_checkpoints_of_the_other() {
    let gpus = "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, compute: [2c.3g.20gb, 1c.3g.20gb]}, {profile: 1g.5gb}]}\n  - {board: A100_40GB}\n";
    let programs: [(Program, Program); 2] =
        [(Node::theirs, Node::ours), (Node::ours, Node::theirs)];
    for (one, other) in programs {
        let node = Node::new(gpus);
        let before = node.geometry();
        for format in ["yaml", "json"] {
            let exported = one(&node, &["export", "-o", format, "-l", "now"]).expect_code(0);
            let file = node.file("exported", &exported.out);
            other(&node, &["assert", "-f", &file, "-c", "now"]).expect_code(0);
        }
        let file = node.file("checkpoint.json", "");
        one(&node, &["checkpoint", "-f", &file])
            .expect_code(0)
            .expect_output("MIG configuration checkpointed successfully");
        let config =
            node.config("  - {devices: [0], mig-enabled: true, mig-devices: {7g.40gb: 1}}\n");
        one(&node, &["apply", "-f", &config]).expect_code(0);
        assert_ne!(node.geometry(), before);
        other(&node, &["restore", "-f", &file])
            .expect_code(0)
            .expect_output("MIG configuration restored successfully");
        assert_eq!(node.geometry(), before);
    }
}

#[test]
fn usage_errors_exit_as_in_nvidia_mig_parted() {
    let node = Node::new("  - {board: A100_40GB}\n");
    let config = node.file(
        "two.yaml",
        "version: v1\nmig-configs:\n  a: [{devices: all, mig-enabled: false}]\n  b: [{devices: all, mig-enabled: true, mig-devices: {}}]\n",
    );
    for (arguments, code) in [
        (&["apply"][..], 1),
        (&["apply", "--frob"], 1),
        (&["apply", "-f", "/nonexistent"], 1),
        (&["apply", "-f", &config], 1),
        (&["apply", "-f", &config, "-c", "c"], 1),
        (&["assert", "-f", &config, "-c", "a"], 0),
        (&["assert", "-f", &config, "-c", "b"], 1),
        (&["assert", "-f", &config, "-c", "b", "-a"], 0),
        (&["assert", "-f", &config, "-c", "b", "--valid-config=true"], 0),
        (&["assert", "-config-file", &config, "-selected-config=a"], 0),
        (&["-d", "assert", "-f", &config, "-c", "a", "-m"], 0),
        (&["export", "-o", "xml"], 1),
        (&["checkpoint"], 1),
        (&["restore", "-f", "/nonexistent"], 1),
        (&["assert", "--help"], 0),
        (&["--version"], 0),
        (&["help"], 0),
    ] {
        let codes = [node.theirs(arguments).code, node.ours(arguments).code];
        assert_eq!(codes, [code, code], "{arguments:?}");
    }
}

#[test]
fn variables_and_standard_input_act_like_flags() {
    let node = Node::new("  - {board: A100_40GB}\n");
    let text = "version: v1\nmig-configs:\n  a: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 1}}]\n  b: [{devices: all, mig-enabled: false}]\n";
    let file = node.file("config.yaml", text);
    let code = |node: &Node, variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = node.command(arguments);
        command.envs(variables.iter().copied());
        let input = std::fs::File::open(&file).unwrap();
        command.finish_reading(input).status.code()
    };
    let variables = [
        ("MIG_PARTED_CONFIG_FILE", file.as_str()),
        ("MIG_PARTED_SELECTED_CONFIG", "a"),
        ("MIG_PARTED_MODE_CHANGE_ONLY", "True"),
        ("MIG_PARTED_SKIP_RESET", ""),
        ("MIG_PARTED_DEBUG", "1"),
    ];
    assert_eq!(code(&node, &variables, &["apply"]), Some(0));
    assert!(node.geometry()[0].mode);
    assert_eq!(node.serials(0).len(), 0);
    assert_eq!(code(&node, &[], &["apply", "-f", "-", "-c", "a"]), Some(0));
    assert_eq!(node.serials(0).len(), 1);
    let wrong = [("MIG_PARTED_DEBUG", "perhaps")];
    assert_eq!(code(&node, &wrong, &["assert", "-f", "-", "-c", "a"]), Some(1));
}

/// Nodes whose configuration is exported.
const EXPORTED: [&str; 5] = [
    "  - {board: A100_40GB}\n",
    "  - {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\n  - {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 1g.10gb, count: 2}]}\n",
    "  - {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\n  - {board: A100_40GB}\n",
    "  - {board: T4}\n  - {board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb}]}\n  - {board: A100_40GB}\n",
    "  - {board: H100_80GB_SXM, count: 2, mig: enabled}\n  - {board: A100_40GB, mig: enabled}\n",
];

#[test]
fn export_equals_output_of_nvidia_mig_parted() {
    for gpus in EXPORTED {
        let node = Node::new(gpus);
        let [theirs, ours] =
            [node.theirs(&["export", "-o", "json"]), node.ours(&["export", "-o", "json"])].map(
                |ran| {
                    let document = serde_json::from_str::<serde_json::Value>(&ran.out);
                    document.unwrap_or_else(|error| panic!("{gpus}: {error}: {ran:#?}"))
                },
            );
        assert_eq!(ours, theirs, "{gpus}");
        let text = node.ours(&["export"]).out;
        let again: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, theirs, "{gpus}");
    }
}
