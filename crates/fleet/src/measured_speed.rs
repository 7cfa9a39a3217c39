//! Performance rows of a model catalog that contain a decoding speed.
//!
//! The rows have the format of [`crate::slo`]. `tps_mean` is the mean number of tokens per second. The name is the
//! one that Open Data Hub's dashboard reads (opendatahub-io/odh-dashboard, the table of hardware configurations).

use crate::matching::{Measurement, RequestError};
use crate::slo::{MeasuredRow, validate_rows};

/// Field with the mean number of tokens per second.
const SPEED: &str = "tps_mean";

/// Returns the rows with a measured speed in tokens per second, skipping the others.
pub fn measured_speeds(rows: &[MeasuredRow]) -> Result<Vec<Measurement>, RequestError> {
    let field = "performance";
    validate_rows(rows, field)?;
    let mut all = Vec::new();
    for (at, row) in (1..).zip(rows) {
        row.validate_figure(SPEED)
            .map_err(|problem| RequestError::new(field, format!("row {at}: {problem}")))?;
        // Zero means that the speed was not measured.
        if let Some(tokens_per_second) = row.figure(SPEED).filter(|speed| *speed > 0.0) {
            all.push(Measurement {
                hardware: row.hardware_type.clone(),
                count: row.hardware_count,
                tokens_per_second,
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(text: &str) -> Result<Vec<(String, u32, f64)>, String> {
        let rows: Vec<MeasuredRow> = serde_json::from_str(text).unwrap();
        let all = measured_speeds(&rows).map_err(|error| format!("{}: {error}", error.field))?;
        let all = all.into_iter();
        Ok(all.map(|one| (one.hardware, one.count, one.tokens_per_second)).collect())
    }

    #[test]
    fn rows_without_speed_are_skipped() {
        let row = r#"{"hardware_type": "H200", "hardware_count": 2, "tps_mean": 120, "ttft_p90": 1, "use_case": "chat"}"#;
        let expected = Ok(vec![("H200".to_owned(), 2, 120.0)]);
        assert_eq!(speeds(&format!("[{row}]")), expected);
        for silent in [r#""tps_mean": null"#, r#""tps_mean": 0"#, r#""itl_mean": 9"#] {
            let text = format!(r#"[{{"hardware_type": "H200", "hardware_count": 1, {silent}}}]"#);
            assert_eq!(speeds(&text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn i12_invalid_row_is_rejected_with_its_number() {
        for (text, start) in [
            (
                r#"[{"hardware_type": "H200", "hardware_count": 0}]"#,
                "performance: row 1: hardware_count",
            ),
            (
                r#"[{"hardware_type": "H200", "hardware_count": 1, "tps_mean": "fast"}]"#,
                "performance: row 1: tps_mean must be a non-negative number",
            ),
            (
                r#"[{"hardware_type": "H200", "hardware_count": 1, "tps_mean": -1}]"#,
                "performance: row 1: tps_mean must be a non-negative number",
            ),
        ] {
            let error = speeds(text).unwrap_err();
            assert!(error.starts_with(start), "{text}: {error}");
        }
    }
}
