//! Expected throughput of a type other than the preferred one, from measurements only.

use octavo_model::accelerators::Catalog;

use super::super::*;
use super::{needs, offer};

fn speeds(rows: &[(&str, u32, f64)]) -> ThroughputTable {
    let rows: Vec<Measurement> = rows
        .iter()
        .map(|(hardware, count, tokens_per_second)| Measurement {
            hardware: (*hardware).to_owned(),
            count: *count,
            tokens_per_second: *tokens_per_second,
        })
        .collect();
    ThroughputTable::from_rows(&rows, &Catalog::built_in())
}

fn found(rows: &[(&str, u32, f64)]) -> MatchAnswer {
    let fleet = vec![offer("nvidia-a100-80gb", 80, 8, 8), offer("nvidia-h200-141gb", 140, 8, 0)];
    let request = Request {
        throughput: speeds(rows),
        ..needs("80GB").with_preferred("nvidia-h200-141gb").unwrap()
    };
    answer(&request, fleet)
}

#[test]
fn fallback_warning_has_expected_throughput_and_source() {
    let found = found(&[("A100 80GB", 1, 75.0), ("H200", 1, 120.0)]);
    let best = &found.matches[0];
    assert_eq!(
        best.warnings[0],
        "nvidia-a100-80gb instead of the preferred nvidia-h200-141gb, of which not enough are free: expect 75 instead of 120 tokens/s (benchmark results: A100 80GB, H200)"
    );
    // The other warning concerns the same pair of types.
    assert!(!best.warnings[1].contains("tokens/s"), "{:?}", best.warnings);
    assert!(
        best.reasons.contains(&"expect 75 tokens/s of 1 (benchmark results: A100 80GB)".to_owned()),
        "{:?}",
        best.reasons
    );
    assert_eq!(best.tokens_per_second.as_ref().map(ToString::to_string), Some("75".to_owned()));
}

#[test]
fn throughput_requires_rows_for_both_types_and_counts() {
    for rows in [
        &[][..],
        &[("A100 80GB", 1, 75.0)],
        &[("H200", 1, 120.0)],
        &[("A100 80GB", 2, 150.0), ("H200", 1, 120.0)],
        &[("A100 80GB", 1, 75.0), ("RTX 9999", 1, 120.0)],
    ] {
        let best = &found(rows).matches[0];
        let warnings = best.warnings.join(" ");
        assert!(!warnings.contains("tokens/s"), "{rows:?}: {warnings}");
    }
}

#[test]
fn newer_unavailable_chip_is_compared_without_preferences() {
    let fleet = vec![offer("nvidia-a100-80gb", 80, 8, 8), offer("nvidia-h200-141gb", 140, 8, 0)];
    let request = Request {
        throughput: speeds(&[("A100 80GB", 1, 74.96), ("H200", 1, 120.04)]),
        ..needs("80GB")
    };
    let warnings = answer(&request, fleet).matches[0].warnings.clone();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0]
            .ends_with("expect 75 instead of 120 tokens/s (benchmark results: A100 80GB, H200)"),
        "{warnings:?}"
    );
}

#[test]
fn rows_form_a_range_and_unambiguous_rows_take_precedence() {
    let h100: octavo_model::id::TypeName = "nvidia-h100-80gb".parse().unwrap();
    let open = speeds(&[("H100", 1, 100.0)]);
    assert_eq!(open.get(&h100, 1).map(ToString::to_string).as_deref(), Some("100"));
    for rows in [
        [("H100", 1, 100.0), ("nvidia-h100-80gb", 1, 80.0), ("nvidia-h100-80gb", 1, 90.5)],
        [("nvidia-h100-80gb", 1, 90.5), ("H100", 1, 100.0), ("nvidia-h100-80gb", 1, 80.0)],
    ] {
        let exact = speeds(&rows);
        let found = exact.get(&h100, 1).unwrap();
        assert_eq!(found.to_string(), "80 to 90.5", "{rows:?}");
    }
    let unknown = speeds(&[("RTX 9999", 1, 1.0)]);
    assert!(unknown.unknown().contains("RTX 9999"));
}
