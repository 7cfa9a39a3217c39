//! Tests of the migration with the configurations of a small cluster.

use octavo_files::layouts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Two rules select by PCI ids: the first by those of A100 80GB, the second by those of H100 80GB and A100 40GB.
const MIG: &str = r#"
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  balanced:
  - {device-filter: ["0x20B210DE", "0x20B510DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
  - {device-filter: ["0x20B010DE", "0x233010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 2, "3g.20gb": 1}}
  half:
  - {devices: all, mig-enabled: false}
  - {devices: [0, 1], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  - {devices: [1], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
"#;
const A100: &str = "NVIDIA-A100-SXM4-80GB";
const H100: &str = "NVIDIA-H100-80GB-HBM3";

fn sharing(text: &str) -> String {
    format!("version: v1\nsharing:\n  timeSlicing:\n    resources:\n{text}")
}

fn shared(resource: &str, replicas: u32) -> String {
    sharing(&format!("    - {{name: {resource}, replicas: {replicas}}}\n"))
}

fn node(name: &str, labels: &[(&str, &str)]) -> Value {
    let present = [("gpu.present", "true")];
    let all = present.iter().chain(labels);
    let labels: serde_json::Map<String, Value> =
        all.map(|(key, value)| (format!("nvidia.com/{key}"), json!(value))).collect();
    json!({"kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"}}})
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "operators"}, "data": data})
}

fn policy() -> Value {
    json!({
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {
            "mig": {"strategy": "mixed"},
            "migManager": {"enabled": true, "config": {"name": "mig", "default": "all-disabled"}},
            "devicePlugin": {"config": {"name": "plugin", "default": "whole"}},
        },
        "status": {"namespace": "operators"},
    })
}

/// Objects of a cluster with these configurations of the device plugin and these nodes.
fn objects(plugin: Value, nodes: Vec<Value>) -> Vec<Value> {
    let mut plugin = plugin;
    plugin["whole"] = json!("version: v1\n");
    let maps = [config_map("mig", &json!({"config.yaml": MIG})), config_map("plugin", &plugin)];
    [policy()].into_iter().chain(maps).chain(nodes).collect()
}

fn parsed(text: &str) -> Result<(Layouts, Vec<String>), Vec<String>> {
    let parsed = layouts::parse(text);
    let parsed = parsed.map_err(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok((parsed.layouts, parsed.warnings.iter().map(ToString::to_string).collect()))
}

fn migrated(all: impl IntoIterator<Item = Value>) -> Migration {
    let all: Vec<Value> = all.into_iter().collect();
    let mut objects = OperatorObjects::default();
    objects.add(json!({"kind": "List", "items": all})).unwrap();
    migrate(&objects, &parsed).unwrap()
}

fn text(migration: &Migration) -> String {
    layouts::write(&migration.layouts, migration.layouts.dialect).unwrap()
}

/// Name, layout and selector of each policy.
fn policies(migration: &Migration) -> Vec<Value> {
    let all = migration.policies.iter();
    all.map(|one| json!([one.metadata.name, one.spec.layout, one.spec.node_selector])).collect()
}

/// Layout and change of each node.
fn rows(migration: &Migration) -> Vec<(&str, String)> {
    let rows = migration.nodes.iter().map(|node| match &node.managed {
        Some(managed) => (managed.layout.as_str(), managed.comparison.to_string()),
        None => ("-", "-".to_owned()),
    });
    rows.collect()
}

fn findings(migration: &Migration) -> Vec<(&str, &str)> {
    let all = migration.findings.iter();
    all.map(|one| (one.object.as_str(), one.path.as_str())).collect()
}

/// A node whose labels match `all-1g.10gb`, with this number of replicas of each partition.
fn partitioned(name: &str, replicas: &str, more: &[(&str, &str)]) -> Value {
    let labels = [
        ("mig.config", "all-1g.10gb"),
        ("mig.config.state", "success"),
        ("gpu.product", A100),
        ("gpu.count", "2"),
        ("gpu.replicas", "0"),
        ("mig-1g.10gb.count", "14"),
        ("mig-1g.10gb.replicas", replicas),
    ];
    node(name, &[&labels[..], more].concat())
}

#[test]
fn p5_one_layout_and_policy_per_combination_of_labels() {
    let quad = [("device-plugin.config", "quad")];
    let whole = [("gpu.product", H100), ("gpu.count", "8"), ("gpu.replicas", "4")];
    let migration = migrated(objects(
        json!({"quad": shared("nvidia.com/gpu", 4), "pair": shared("nvidia.com/mig-1g.10gb", 2)}),
        vec![
            node("c", &[&whole[..], &quad[..]].concat()),
            partitioned("b", "2", &[("device-plugin.config", "pair")]),
            partitioned("a", "1", &[]),
            node("d", &[("gpu.count", "8"), ("gpu.replicas", "1")]),
        ],
    ));
    assert_eq!(
        text(&migration),
        "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  \
         all-1g.10gb:\n  - devices: all\n    mig: {1g.10gb: 7}\n  \
         all-1g.10gb-pair:\n  - devices: all\n    mig: {1g.10gb: 7}\n    \
         timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}\n  \
         quad:\n  - devices: all\n    timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}\n"
    );
    let absent = |key: &str| json!([{"key": key, "operator": "DoesNotExist"}]);
    assert_eq!(
        policies(&migration),
        [
            json!(["all-1g.10gb", "all-1g.10gb", {
                "matchLabels": {MIG_CONFIG_LABEL: "all-1g.10gb"}, "matchExpressions": absent(PLUGIN_CONFIG_LABEL),
            }]),
            json!(["all-1g.10gb-pair", "all-1g.10gb-pair", {
                "matchLabels": {MIG_CONFIG_LABEL: "all-1g.10gb", PLUGIN_CONFIG_LABEL: "pair"},
            }]),
            json!(["quad", "quad", {
                "matchLabels": {PLUGIN_CONFIG_LABEL: "quad"}, "matchExpressions": absent(MIG_CONFIG_LABEL),
            }]),
        ]
    );
    let same = || "no change".to_owned();
    assert_eq!(
        rows(&migration),
        [
            ("all-1g.10gb", same()),
            ("all-1g.10gb-pair", same()),
            ("quad", same()),
            ("-", "-".to_owned())
        ]
    );
    assert_eq!((findings(&migration), migration.notes.len()), (Vec::new(), 0));
    for one in &migration.policies {
        assert_eq!(octavo_policy::validation::problems(&one.spec), []);
    }
    for value in ["migStrategy: mixed", "compat: mig-manager", "mode: \"off\""] {
        assert!(migration.values.contains(value), "{}", migration.values);
    }
}

#[test]
fn p5_used_configurations_of_mig_parted_stay_unchanged_without_time_slicing() {
    let balanced = [("mig.config", "balanced"), ("gpu.product", "unknown"), ("gpu.count", "8")];
    let migration =
        migrated(objects(json!({}), vec![partitioned("a", "1", &[]), node("b", &balanced)]));
    // The filter of `balanced` cannot be resolved for the unknown product.
    assert_eq!(rows(&migration), [("all-1g.10gb", "no change".to_owned()), ("-", "-".to_owned())]);
    assert_eq!(migration.layouts.dialect, Dialect::MigParted);
    let known = [("mig.config", "balanced"), ("gpu.product", A100), ("gpu.count", "8")];
    let migration =
        migrated(objects(json!({}), vec![partitioned("a", "1", &[]), node("b", &known)]));
    let names: Vec<&str> =
        migration.layouts.layouts.iter().map(|layout| layout.name.as_str()).collect();
    assert_eq!(names, ["all-1g.10gb", "balanced"]);
    let expected = parsed(MIG).unwrap().0;
    let expected = expected.by_name("balanced").unwrap();
    assert_eq!(migration.layouts.by_name("balanced"), Some(expected));
    assert!(text(&migration).contains("0x20B210DE"), "{}", text(&migration));
}

#[test]
fn p5_filters_by_pci_ids_give_one_layout_per_type_with_time_slicing() {
    let labels = |product| {
        [
            ("mig.config", "balanced"),
            ("device-plugin.config", "quad"),
            ("gpu.product", product),
            ("gpu.count", "1"),
        ]
    };
    let plugin = json!({"quad": shared("nvidia.com/mig-1g.10gb", 4)});
    let one = migrated(objects(plugin.clone(), vec![node("a", &labels(A100))]));
    assert_eq!(rows(&one)[0].0, "balanced-quad");
    let both = objects(plugin, vec![node("a", &labels(A100)), node("b", &labels(H100))]);
    let both = migrated(both);
    let text = text(&both);
    let (first, second) = ("balanced-quad-nvidia-a100-80gb", "balanced-quad-nvidia-h100-80gb");
    for part in [
        format!("{first}:\n  - devices: all\n    mig: {{1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}"),
        format!("{second}:\n  - devices: all\n    mig: {{1g.5gb: 2, 3g.20gb: 1}}"),
    ] {
        assert!(text.contains(&part), "{text}");
    }
    let types = policies(&both);
    let types = types.iter().map(|one| &one[2]["matchLabels"][TYPE_LABEL]);
    assert_eq!(types.collect::<Vec<_>>(), ["nvidia-a100-80gb", "nvidia-h100-80gb"]);
    assert_eq!(rows(&both).iter().map(|row| row.0).collect::<Vec<_>>(), [first, second]);
}

#[test]
fn p5_last_rule_of_mig_parted_takes_precedence() {
    let labels = [
        ("mig.config", "half"),
        ("device-plugin.config", "quad"),
        ("gpu.product", A100),
        ("gpu.count", "4"),
        ("gpu.replicas", "4"),
        ("mig-1g.10gb.count", "7"),
        ("mig-1g.10gb.replicas", "1"),
        ("mig-3g.40gb.count", "2"),
        ("mig-3g.40gb.replicas", "1"),
    ];
    let plugin = json!({"quad": shared("nvidia.com/gpu", 4)});
    let migration = migrated(objects(plugin, vec![node("a", &labels)]));
    let sharing = "timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}";
    let expected = format!(
        "  half-quad:\n  - devices: {{index: 0}}\n    mig: {{1g.10gb: 7}}\n    {sharing}\n  \
         - devices: {{index: 1}}\n    mig: {{3g.40gb: 2}}\n    {sharing}\n  \
         - devices: rest\n    mig: disabled\n    {sharing}\n"
    );
    assert!(text(&migration).ends_with(&expected), "{}", text(&migration));
    assert_eq!(rows(&migration), [("half-quad", "no change".to_owned())]);
}

#[test]
fn p5_unsupported_settings_are_findings_and_their_nodes_are_not_selected() {
    let mut all = objects(
        json!({
            "mps": "version: v1\nsharing:\n  mps:\n    resources: [{name: nvidia.com/gpu, replicas: 2}]\n",
            "typo": "version: v1\nsharing:\n  timeslicing: {}\n",
            "unused": "nonsense",
        }),
        vec![
            node("a", &[("device-plugin.config", "mps")]),
            node("b", &[("device-plugin.config", "typo")]),
            node("c", &[("device-plugin.config", "gone")]),
            node("d", &[("mig.config", "gone")]),
            node("e", &[("mig.config", "all-disabled"), ("gpu.workload.config", "vm-vgpu")]),
            partitioned("f", "1", &[("mig.config.state", "failed")]),
        ],
    );
    all[0]["spec"]["sandboxWorkloads"] = json!({"enabled": true});
    let migration = migrated(all);
    assert_eq!(
        findings(&migration),
        [
            ("ClusterPolicy cluster-policy", "spec.sandboxWorkloads.enabled"),
            ("ConfigMap operators/plugin", "data[mps]"),
            ("ConfigMap operators/plugin", "data[typo]"),
            ("Node c", "metadata.labels[nvidia.com/device-plugin.config]"),
            ("Node d", "metadata.labels[nvidia.com/mig.config]"),
            ("Node e", "metadata.labels[nvidia.com/gpu.workload.config]"),
            ("Node f", "metadata.labels[nvidia.com/mig.config.state]"),
        ]
    );
    let layouts = rows(&migration).into_iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!(layouts, ["-", "-", "-", "-", "-", "all-1g.10gb"]);
}

#[test]
fn p5_missing_config_maps_and_settings_are_named() {
    let all = vec![policy(), partitioned("a", "1", &[])];
    assert_eq!(
        findings(&migrated(all)),
        [
            ("ClusterPolicy cluster-policy", "spec.devicePlugin.config.name"),
            ("ClusterPolicy cluster-policy", "spec.migManager.config.name"),
        ]
    );
    let errors = [Vec::new(), vec![policy(), policy()], vec![policy()]].map(|all| {
        let mut objects = OperatorObjects::default();
        for one in all {
            objects.add(one).unwrap();
        }
        migrate(&objects, &parsed).unwrap_err()
    });
    assert!(matches!(
        errors,
        [MigrationError::NoPolicy, MigrationError::SeveralPolicies(_), MigrationError::NoNodes]
    ));
    let invalid = json!({"kind": "Node", "metadata": {"name": "x", "labels": 1}});
    let error = OperatorObjects::default().add(invalid).unwrap_err();
    assert_eq!(error.to_string(), "cannot read Node x");
}

#[test]
fn p5_configurations_that_mig_manager_generates_belong_to_their_node() {
    let generated = |count: u32| {
        json!({"config.yaml": format!(
            "version: v1\nmig-configs:\n  all-1g.10gb: [{{devices: all, mig-enabled: true, mig-devices: {{1g.10gb: {count}}}}}]\n"
        )})
    };
    let mut own = policy();
    own["spec"]["migManager"] = json!({});
    let all = |second: u32| {
        vec![
            own.clone(),
            config_map("plugin", &json!({"whole": "version: v1\n"})),
            config_map("a-mig-config", &generated(7)),
            config_map("b-mig-config", &generated(second)),
            partitioned("a", "1", &[]),
            partitioned("b", "1", &[]),
        ]
    };
    let same = migrated(all(7));
    assert_eq!((rows(&same).len(), same.policies.len(), findings(&same)), (2, 1, Vec::new()));
    // A policy cannot select the nodes separately.
    let other = migrated(all(6));
    let label = "metadata.labels[nvidia.com/mig.config]";
    assert_eq!(findings(&other), [("Node a", label), ("Node b", label)]);
    assert_eq!((rows(&other)[0].0, rows(&other)[1].0, other.policies.len()), ("-", "-", 0));
}

#[test]
fn p5_labels_that_differ_from_the_layout_are_listed() {
    let changed = |labels: &[(&str, &str)]| {
        let plugin = json!({"pair": shared("nvidia.com/mig-1g.10gb", 2)});
        let plain = [
            ("mig.config", "all-1g.10gb"),
            ("device-plugin.config", "pair"),
            ("gpu.product", A100),
        ];
        let migration = migrated(objects(plugin, vec![node("a", &[&plain[..], labels].concat())]));
        rows(&migration)[0].1.clone()
    };
    assert_eq!(
        changed(&[
            ("gpu.count", "1"),
            ("mig-1g.10gb.count", "6"),
            ("mig-1g.10gb.replicas", "4"),
            ("mig-2g.20gb.count", "1")
        ]),
        "1g.10gb: 6 in labels, 7 in layout; 2g.20gb: 1 in labels, 0 in layout; \
         nvidia.com/mig-1g.10gb: 4 replicas in labels, 2 in layout"
    );
    assert_eq!(changed(&[]), "unknown: GPU Feature Discovery has not labeled the node");
}

#[test]
fn p5_labels_of_the_single_strategy_are_compared() {
    let changed = |product: &str, count: &str| {
        let labels =
            [("mig.config", "all-1g.10gb"), ("gpu.product", product), ("gpu.count", count)];
        let mut all = objects(json!({}), vec![node("a", &labels)]);
        all[0]["spec"]["mig"] = json!({"strategy": "single"});
        rows(&migrated(all))[0].1.clone()
    };
    assert_eq!(changed("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "14"), "no change");
    assert_eq!(
        changed("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "4"),
        "1g.10gb: 0 in labels, 7 in layout; 3g.40gb: 4 in labels, 0 in layout"
    );
    assert_eq!(changed(A100, "2"), "1g.10gb: 0 in labels, 7 in layout");
}

#[test]
fn p5_settings_that_the_plugin_of_nvidia_ignores_are_omitted_and_noted() {
    let plugin = json!({"odd": sharing(
        "    - {name: nvidia.com/gpu, replicas: 4, rename: nvidia.com/small, devices: [0]}\n"
    )});
    let migration = migrated(objects(plugin, vec![node("a", &[("device-plugin.config", "odd")])]));
    let expected = "timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}\n";
    assert!(text(&migration).ends_with(expected), "{}", text(&migration));
    assert_eq!(migration.notes.len(), 2, "{:?}", migration.notes);
    assert!(migration.findings.is_empty());
}

#[test]
fn p5_order_of_the_objects_has_no_influence() {
    let all = || {
        objects(
            json!({"quad": shared("nvidia.com/gpu", 4)}),
            vec![
                partitioned("a", "1", &[]),
                node("b", &[("device-plugin.config", "quad")]),
                node("c", &[("mig.config", "gone")]),
            ],
        )
    };
    let mut reversed = all();
    reversed.reverse();
    let printed = |migration: &Migration| {
        (text(migration), policies(migration), migration.nodes.clone(), migration.findings.clone())
    };
    assert_eq!(printed(&migrated(all())), printed(&migrated(reversed)));
}

proptest! {
    #[test]
    fn p5_names_of_policies_are_valid_and_unique(
        labels in prop::collection::btree_set(("[a-cA-C0]([a-cA-C0_.-]{0,61}[a-cA-C0])?", prop::option::of("[a-c]{1,30}")), 1..20)
    ) {
        let mut names = Names::default();
        let mut known = BTreeSet::new();
        for (mig, plugin) in &labels {
            let policy = super::policy((Some(mig), plugin.as_deref()), None, "x", &mut names);
            let policy = policy.metadata.name.unwrap();
            prop_assert!(octavo_model::id::is_subdomain(&policy) && policy.len() <= 63, "{policy}");
            prop_assert!(known.insert(policy.clone()), "{policy} of {labels:?}");
        }
    }
}
