//! Profile name lookup, packing of compute instances, and maximum counts.

use octavo_model::source_position::SourcePosition;

use crate::layout::tests_support::*;
use crate::layout::{InstanceTarget, MigTarget, Selector};

/// Returns the profile ids and splits that the counts resolve to on one GPU, or the errors; then the warnings.
fn resolve_counts(board: TestDevice, counts: &[(&str, u32)]) -> (String, Vec<String>) {
    let node = node([board.gpu(0)]);
    let answer = resolve_octavo([partition(Selector::All, counts)], &node);
    match answer {
        Ok(resolved) => {
            let device = &resolved.targets.devices[0];
            let Some(MigTarget::Enabled(instances)) = &device.mig else {
                panic!("{device:?}");
            };
            let words: Vec<String> = instances.iter().map(shown).collect();
            let warnings = resolved.warnings.iter();
            (words.join(" "), warnings.map(ToString::to_string).collect())
        }
        Err(errors) => {
            let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
            (words.join("; "), Vec::new())
        }
    }
}

fn shown(instance: &InstanceTarget) -> String {
    format!("{}{:?}", instance.profile_id, instance.compute).replace(' ', "")
}

#[track_caller]
fn exactly(board: TestDevice, counts: &[(&str, u32)], expected: &str) {
    assert_eq!(resolve_counts(board, counts), (expected.to_owned(), Vec::new()));
}

#[track_caller]
fn with_warning(board: TestDevice, counts: &[(&str, u32)], expected: &str, warning: &str) {
    let (found, warnings) = resolve_counts(board, counts);
    assert_eq!(found, expected);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].ends_with(warning), "{warnings:?}");
}

#[track_caller]
fn fails(board: TestDevice, counts: &[(&str, u32)], reason: &str) {
    let expected = format!("layout \"test\", rule 1: GPU 0 (0000:01:00.0): {reason}");
    assert_eq!(resolve_counts(board, counts), (expected, Vec::new()));
}

#[test]
fn profile_name_resolves_per_board() {
    exactly(A30, &[("2g.12gb", 1), ("1g.6gb", 2)], "5[2] 14[1] 14[1]");
    exactly(A100_80, &[("1g.10gb", 2)], "19[1] 19[1]");
    exactly(A100_40, &[("1g.10gb", 2)], "15[1] 15[1]");
    exactly(RTX_PRO_6000, &[("1g.24gb-me", 1), ("1g.24gb+me.all", 1)], "65[1] 67[1]");
}

#[test]
fn explicit_full_compute_part_is_the_whole_gpu_instance() {
    exactly(A100_40, &[("3c.3g.20gb", 1)], "9[3]");
    exactly(A100_40, &[("1c.1g.5gb", 1)], "19[1]");
}

#[test]
fn rounded_memory_matches_with_a_warning() {
    for (board, requested, id, own) in [
        (A100_80, "3g.39gb", "9[3]", "3g.39gb is read as 3g.40gb, the name on this device"),
        (H100, "7g.79gb", "0[7]", "7g.79gb is read as 7g.80gb, the name on this device"),
        (A100_40, "3g.21gb", "9[3]", "3g.21gb is read as 3g.20gb, the name on this device"),
        (
            A100_80,
            "1g.11gb+me",
            "20[1]",
            "1g.11gb+me is read as 1g.10gb+me, the name on this device",
        ),
        (H200, "7g.143gb", "0[7]", "7g.143gb is read as 7g.141gb, the name on this device"),
        (
            A100_80,
            "1c.3g.39gb",
            "9[1]",
            "1c.3g.39gb is read as 1c.3g.40gb, the name on this device",
        ),
    ] {
        with_warning(board, &[(requested, 1)], id, own);
    }
}

#[test]
fn small_profiles_are_not_rounded_into_each_other() {
    fails(
        A30,
        &[("1g.5gb", 4)],
        "it does not offer 1g.5gb; it offers 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb",
    );
    let (found, _) = resolve_counts(A100_40, &[("1g.6gb", 1)]);
    assert!(
        found.contains("does not offer 1g.6gb; it offers 1g.5gb, 1g.10gb, 1g.5gb+me, "),
        "{found}"
    );
}

#[test]
fn attributes_are_never_rounded() {
    let (found, _) = resolve_counts(A100_80, &[("1g.10gb+gfx", 1)]);
    assert!(found.contains("does not offer 1g.10gb+gfx; it offers 1g.10gb, "), "{found}");
    let (found, _) = resolve_counts(A100_80, &[("3g.39gb+me", 1)]);
    assert!(found.contains("does not offer 3g.39gb+me"), "{found}");
}

#[test]
fn compute_instances_of_one_profile_share_gpu_instances() {
    for (counts, expected) in [
        (&[("1c.3g.20gb", 3_u32)] as &[(&str, u32)], "9[1,1,1]"),
        (&[("1c.3g.20gb", 4)], "9[1] 9[1,1,1]"),
        (&[("2c.3g.20gb", 1), ("1c.3g.20gb", 1)], "9[2,1]"),
        (&[("1c.3g.20gb", 1), ("2c.3g.20gb", 1)], "9[2,1]"),
        (&[("2c.3g.20gb", 2)], "9[2] 9[2]"),
        (&[("3g.20gb", 1), ("1c.3g.20gb", 1)], "9[1] 9[3]"),
        (&[("4c.7g.40gb", 1), ("3c.7g.40gb", 1)], "0[4,3]"),
        (&[("2c.7g.40gb", 3), ("1c.7g.40gb", 1)], "0[2,2,2,1]"),
        (&[("1c.4g.20gb", 2), ("2c.4g.20gb", 1), ("1g.5gb", 3)], "5[2,1,1] 19[1] 19[1] 19[1]"),
    ] {
        exactly(A100_40, counts, expected);
    }
}

#[test]
fn gpu_instance_is_split_only_into_valid_sizes() {
    fails(
        A100_40,
        &[("3c.4g.20gb", 1)],
        "3c.4g.20gb is not available: a GPU instance 4g.20gb can be split into 1c.4g.20gb, 2c.4g.20gb, 4g.20gb",
    );
    fails(
        A100_40,
        &[("5c.7g.40gb", 1)],
        "5c.7g.40gb is not available: a GPU instance 7g.40gb can be split into 1c.7g.40gb, 2c.7g.40gb, 3c.7g.40gb, 4c.7g.40gb, 7g.40gb",
    );
}

#[test]
fn counts_beyond_an_empty_device_are_rejected() {
    for (board, counts, reason) in [
        (H100, ("3g.40gb", 3), "3g.40gb: 3 requested, but at most 2 fit on an empty device"),
        (
            H100,
            ("1g.10gb", u32::MAX),
            "1g.10gb: 4294967295 requested, but at most 7 fit on an empty device",
        ),
        (
            H100,
            ("1c.3g.40gb", u32::MAX),
            "1c.3g.40gb: 4294967295 requested, but at most 6 fit on an empty device",
        ),
        (H100, ("1g.10gb+me", 2), "1g.10gb+me: 2 requested, but at most 1 fit on an empty device"),
        (H100, ("1g.20gb", 5), "1g.20gb: 5 requested, but at most 4 fit on an empty device"),
        (A30, ("1g.6gb", 5), "1g.6gb: 5 requested, but at most 4 fit on an empty device"),
        (
            RTX_PRO_6000,
            ("1g.24gb+me.all", 2),
            "1g.24gb+me.all: 2 requested, but at most 1 fit on an empty device",
        ),
        (
            RTX_PRO_6000,
            ("2g.48gb-me", 3),
            "2g.48gb-me: 3 requested, but at most 2 fit on an empty device",
        ),
    ] {
        fails(board, &[counts], reason);
    }
    fails(
        H100,
        &[("2c.3g.40gb", 2), ("3g.40gb", 1)],
        "the compute instances in 3g.40gb need 3 GPU instances, but at most 2 fit on an empty device",
    );
}

#[test]
fn counts_of_two_spellings_are_added() {
    let (found, _) = resolve_counts(H100, &[("3g.40gb", 1), ("3g.39gb", 2)]);
    assert!(
        found.ends_with("3g.40gb: 3 requested, but at most 2 fit on an empty device"),
        "{found}"
    );
}

#[test]
fn all_errors_are_returned_with_their_position() {
    let node = node([A100_40.gpu(0), A100_40.gpu(1)]);
    let counts = [("9g.999gb", 1), ("1g.5gb", 1), ("3g.20gb", 3)];
    let errors = resolve_octavo([partition(Selector::All, &counts)], &node).unwrap_err();
    let places: Vec<(SourcePosition, usize)> =
        errors.iter().map(|error| (error.position, error.devices.len())).collect();
    let at = |column| SourcePosition { line: 9, column };
    assert_eq!(places, [(at(1), 2), (at(3), 2)]);
}
