//! Tests for parsing and writing layout files.

use octavo_planner::layout::{Dialect, Rule, TimeSlicing};

use super::*;

const OCTAVO_FILE: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  serving:
  - devices: {type: nvidia-a100-80gb, index: [0-2, 5], memoryAtLeast: 40Gi}
    mig: {3g.40gb: 1, '1g.10gb+me': 1}
  - devices: rest
    mig: disabled
    timeSlicing: {replicas: 3, rename: true}
  on:
  - {devices: 0-3, mig: {}}
  - {devices: 4, mig: {}, timeSlicing: {profiles: {1g.10gb: {replicas: 2}}}, claims: dra}
";

const MIG_PARTED_FILE: &str = "version: v1
mig-configs:
  custom:
  - device-filter: ['0x20B210DE', '0x20B010DE:0x134F10DE']
    devices: [0, 1]
    mig-enabled: yes
    mig-devices: {1g.10gb: 2, 2g.20gb: 0}
  all-disabled:
  - devices: all
    mig-enabled: false
";

/// Removes source positions, so that equal layouts of different files compare equal.
fn without_places(mut layouts: Layouts) -> Layouts {
    for layout in &mut layouts.layouts {
        layout.position = SourcePosition::default();
        layout.rules.iter_mut().for_each(clear_places);
    }
    layouts
}

fn clear_places(rule: &mut Rule) {
    use octavo_planner::layout::MigSpec;
    rule.position = SourcePosition::default();
    if let Some(MigSpec::Enabled(counts)) = &mut rule.mig {
        for count in counts {
            count.position = SourcePosition::default();
        }
    }
    rule.time_slicing = rule.time_slicing.take().map(TimeSlicing::without_positions);
}

#[test]
fn layouts_round_trip_in_both_dialects_and_formats() {
    for (text, dialect) in [(OCTAVO_FILE, Dialect::Octavo), (MIG_PARTED_FILE, Dialect::MigParted)] {
        let layouts = without_places(parse(text).unwrap().layouts);
        assert_eq!((layouts.dialect, layouts.layouts.len()), (dialect, 2));
        for written in [write(&layouts, dialect), write_json(&layouts, dialect)] {
            let written = written.unwrap();
            let again = without_places(parse(&written).unwrap().layouts);
            assert_eq!(again, layouts, "{written}");
        }
    }
}

#[test]
fn zero_count_next_to_others_is_dropped_with_a_warning() {
    let parsed = parse(MIG_PARTED_FILE).unwrap();
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("2g.20gb"));
}

#[test]
fn inexpressible_layout_is_not_written() {
    let ours = parse(OCTAVO_FILE).unwrap().layouts;
    let theirs = parse(MIG_PARTED_FILE).unwrap().layouts;
    assert!(write(&ours, Dialect::MigParted).is_err());
    assert!(write(&theirs, Dialect::Octavo).is_err());
}

#[test]
fn all_errors_are_reported_with_their_position() {
    let text = "version: v1\nmig-configs:\n  a:\n  - devices: [-1, 0]\n    mig-enabled: true\n    mig-device: {1g.5gb: 7}\n  b:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {4c.3g.20gb: 1, 1g.5gb+foo: 1}\n";
    let errors = parse(text).unwrap_err();
    let errors: Vec<String> =
        errors.iter().map(|error| format!("{} {error}", error.position())).collect();
    assert_eq!(errors.len(), 5, "{errors:#?}");
    assert!(errors.contains(
        &"6:5 unknown key \"mig-device\" in a rule; did you mean \"mig-devices\"?".to_owned()
    ));
    assert!(
        errors.contains(
            &"10:34 unknown profile attribute \"+foo\"; known attributes are +me, +me.all, +gfx and -me"
                .to_owned()
        )
    );
}

#[test]
fn malformed_files_are_rejected_with_a_position() {
    let deep = "[".repeat(5000);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        let line = format!("a{level}: &a{level} [{before}]\n");
        bomb.push_str(&line);
    }
    let two = format!("{MIG_PARTED_FILE}---\n{MIG_PARTED_FILE}");
    for text in [
        "",
        "a",
        "\u{0}",
        "version: v1\u{0}",
        "version: !!str v1",
        "version: v1\nversion: v1",
        "&a [*a]",
        "apiVersion: a\nversion: v1",
        &deep,
        &bomb,
        &two,
    ] {
        let errors = parse(text).unwrap_err();
        assert!(!errors.is_empty());
        assert!(errors.iter().all(|error| error.position().line > 0));
    }
}

#[test]
fn marker_is_rendered_below_the_position() {
    let position = SourcePosition { line: 2, column: 3 };
    let shown = render(("f.yaml", "a: 1\n\tx\u{1b}b: 2\n"), position, ("error", &"no"));
    assert_eq!(shown, "f.yaml:2:3: error: no\n  |\n2 |     x\u{fffd}b: 2\n  |      ^\n");
}
