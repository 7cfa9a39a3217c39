//! Layouts derived from a node: generated ones resolve without warnings, and exported ones reproduce the node's state.

use octavo_model::catalog::ProfileCatalog;
use octavo_model::inventory::Mig;
use octavo_model::source_position::SourcePosition;

use crate::layout::tests_support::*;
use crate::layout::{
    Dialect, ExportError, MigSpec, MigTarget, Selector, compare, export, generate, resolve,
};

const DIALECTS: [Dialect; 2] = [Dialect::Octavo, Dialect::MigParted];

fn unplaced(counts: &[(&str, u32)]) -> MigSpec {
    let MigSpec::Enabled(mut all) = mig_spec(counts) else {
        panic!("counts describe partitions");
    };
    for count in &mut all {
        count.position = SourcePosition::default();
    }
    MigSpec::Enabled(all)
}

#[test]
fn generated_layouts_resolve_without_warnings() {
    let boards = || (0..).zip(ALL_BOARDS);
    let mixed = node(boards().map(|(index, board)| board.gpu(index)).chain([t4(6)]));
    let single = boards().map(|(_, board)| node([board.gpu(0), board.gpu(1), t4(2)]));
    for node in single.chain([mixed]) {
        for dialect in DIALECTS {
            for layout in &generate(&node, dialect).layouts {
                let resolved = resolve(layout, dialect, &node).unwrap();
                assert_eq!(resolved.warnings, [], "{layout:?}");
                assert!(!resolved.targets.devices.is_empty(), "{layout:?}");
            }
        }
    }
}

#[test]
fn generated_names_and_counts_match_mig_parted() {
    let layouts = generate(&node([A30.gpu(0)]), Dialect::MigParted).layouts;
    let names: Vec<&str> = layouts.iter().map(|layout| layout.name.as_str()).collect();
    let expected = [
        "all-disabled",
        "all-enabled",
        "all-1g.6gb",
        "all-2g.12gb",
        "all-4g.24gb",
        "all-1g.6gb.me",
        "all-2g.12gb.me",
        "all-balanced",
    ];
    assert_eq!(names, expected);
    assert_eq!(layouts[2].rules[0].mig, Some(unplaced(&[("1g.6gb", 4)])));
    assert_eq!(layouts[7].rules[0].mig, Some(unplaced(&[("1g.6gb", 2), ("2g.12gb", 1)])));
    assert_eq!(generate(&node([t4(0)]), Dialect::Octavo).layouts, []);
}

#[test]
fn exported_layout_reproduces_the_node() {
    let parts: &[(u32, u32, &[u32])] = &[(9, 0, &[2, 1]), (14, 4, &[2]), (19, 6, &[1])];
    let node =
        node([A100_80.with(0, parts), H100.with(1, parts), A30.with(2, &[(5, 0, &[2])]), t4(3)]);
    for dialect in DIALECTS {
        let layout = export(&node, "current", dialect).unwrap();
        let resolved = resolve(&layout, dialect, &node).unwrap();
        assert_eq!(compare(&resolved.targets, &node), []);
        assert_eq!(resolved.targets.devices.len(), 3);
        // mig-parted also lists the GPU that cannot be partitioned.
        let rules = if dialect == Dialect::MigParted { 3 } else { 2 };
        assert_eq!(layout.rules.len(), rules);
    }
}

#[test]
fn export_for_mig_parted_selects_models_in_the_order_of_their_gpus() {
    let seven: &[(u32, u32, &[u32])] = &[(19, 0, &[1]), (19, 1, &[1])];
    let selectors = |node| -> Vec<String> {
        let layout = export(&node, "current", Dialect::MigParted).unwrap();
        let rules = layout.rules.iter();
        rules.map(|rule| rule.devices.to_string()).collect()
    };
    let filter = |gpu: &octavo_model::inventory::Device| {
        format!("device-filter 0x{:04X}10DE", gpu.pci_ids.device)
    };
    let (h100, a30) = (H100.with(0, seven), A30.with(1, &[(5, 0, &[2])]));
    let expected = [filter(&h100), filter(&a30)];
    assert_eq!(selectors(node([h100.clone(), a30.clone()])), expected);
    // One GPU differs from others of its model: both rules name indices, with one model or several.
    let (other, off) = (H100.with(2, &[(9, 0, &[3])]), H100.gpu(3));
    assert_eq!(
        selectors(node([h100.clone(), other.clone(), off.clone()])),
        ["index 0", "index 2", "index 3"]
    );
    assert_eq!(
        selectors(node([h100.clone(), a30.clone(), other])),
        [
            format!("index 0 and {}", filter(&h100)),
            filter(&a30),
            format!("index 2 and {}", filter(&h100)),
        ]
    );
    assert_eq!(selectors(node([off])), ["all"]);
}

#[test]
fn duplicate_profile_name_exports_the_one_in_use() {
    let seven: &[(u32, u32, &[u32])] = &[(19, 0, &[1])];
    let twin = |instances| {
        let mut gpu = H100.with(0, instances);
        let Mig::Capable(state) = &mut gpu.mig else {
            panic!("{gpu:?}");
        };
        let mut profiles = state.catalog.profiles().to_vec();
        let mut twin = profiles.iter().find(|one| one.id == 19).unwrap().clone();
        twin.id = 77;
        profiles.push(twin);
        state.catalog = ProfileCatalog::new(profiles);
        node([gpu])
    };
    let has = twin(seven);
    for dialect in DIALECTS {
        let layout = export(&has, "current", dialect).unwrap();
        assert!(resolve(&layout, dialect, &has).is_ok());
    }
    let empty = twin(&[]);
    let wanted = resolve_octavo([partition(Selector::All, &[("1g.10gb", 1)])], &empty);
    let error = wanted.unwrap_err()[0].to_string();
    assert!(error.contains("2 profiles named 1g.10gb (ids 19, 77)"), "{error}");
    assert!(error.contains("`nvidia-smi mig -cgi 19`"), "{error}");
    for layout in generate(&has, Dialect::MigParted).layouts {
        assert_eq!(layout.rules.len(), 1, "{layout:?}");
    }
}

#[test]
fn inexpressible_state_is_not_exported() {
    let orphan = node([A100_80.with(0, &[(9, 0, &[])])]);
    let error = export(&orphan, "current", Dialect::Octavo).unwrap_err();
    assert!(matches!(error, ExportError::NoComputeInstance { .. }), "{error}");
    let apart = node([A100_80.with(0, &[(9, 0, &[1]), (9, 4, &[1])])]);
    let error = export(&apart, "current", Dialect::Octavo).unwrap_err();
    assert!(matches!(error, ExportError::NotExact(_)), "{error}");
    let error = export(&node([failing(0)]), "current", Dialect::Octavo).unwrap_err();
    assert!(matches!(error, ExportError::Unreported(_)), "{error}");
    let error = export(&node([t4(0)]), "current", Dialect::Octavo).unwrap_err();
    assert_eq!(error, ExportError::NoPartitionableDevice);
}

#[test]
fn differences_have_names_and_counts() {
    let wanted = [("3g.40gb", 1), ("1g.10gb", 3)];
    let has: &[(u32, u32, &[u32])] = &[(9, 4, &[2, 1]), (19, 0, &[1]), (19, 1, &[])];
    let node = node([A100_80.with(0, has), H100.gpu(1)]);
    let mut resolved = resolve_octavo([partition(index(&[(0, 0)]), &wanted)], &node).unwrap();
    let differences = |resolved: &crate::layout::ResolvedLayout| -> Vec<String> {
        let all = compare(&resolved.targets, &node);
        all.iter().map(ToString::to_string).collect()
    };
    let expected = [
        "GPU 0 (0000:01:00.0): unexpected: 1 x 3g.40gb, split into 2c, 1c",
        "GPU 0 (0000:01:00.0): missing: 1 x 3g.40gb",
        "GPU 0 (0000:01:00.0): unexpected: 1 x 1g.10gb without a compute instance",
        "GPU 0 (0000:01:00.0): missing: 2 x 1g.10gb",
    ];
    assert_eq!(differences(&resolved), expected);
    resolved.targets.devices[0].mig = None;
    assert_eq!(differences(&resolved), [""; 0]);
    resolved = resolve_octavo(
        [partition(Selector::Rest, &[]), partition(index(&[(0, 0)]), &wanted)],
        &node,
    )
    .unwrap();
    resolved.targets.devices[1].mig = Some(MigTarget::Disabled);
    assert_eq!(
        differences(&resolved)[4..],
        ["GPU 1 (0000:02:00.0): MIG mode is on but must be off"]
    );
}
