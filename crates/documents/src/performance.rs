//! Performance rows of a model catalog that contain a decoding speed.
//!
//! The rows have the format of [`slo`](super::slo). `tps_mean` is the mean number of tokens per second. The name is the
//! one that Open Data Hub's dashboard reads (opendatahub-io/odh-dashboard, the table of hardware configurations).

use octavo_fleet::matching::{Measurement, RequestError};

use super::slo::{RowJson, rows};

/// Returns the rows with a measured speed in tokens per second, skipping the others.
pub fn measured_speeds(given: Vec<RowJson>) -> Result<Vec<Measurement>, RequestError> {
    let field = "performance";
    let speeds: Vec<Option<serde_json::Value>> = given
        .iter()
        .map(|row| row.more.get("tps_mean").cloned())
        .collect();
    let read = rows(given).map_err(|error| RequestError::new(field, error.problem))?;
    let mut all = Vec::new();
    for (at, (row, speed)) in (1..).zip(read.into_iter().zip(speeds)) {
        let Some(speed) = speed.filter(|speed| !speed.is_null()) else {
            continue;
        };
        let speed = speed.as_f64().filter(|speed| *speed >= 0.0);
        let tokens_per_second = speed.ok_or_else(|| {
            RequestError::new(field, format!("row {at}: tps_mean is a number from 0"))
        })?;
        // Zero means that the speed was not measured.
        if tokens_per_second > 0.0 {
            all.push(Measurement {
                hardware: row.hardware,
                count: row.count,
                tokens_per_second,
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<Vec<(String, u32, f64)>, String> {
        let rows = serde_json::from_str(text).unwrap();
        let all = measured_speeds(rows).map_err(|error| format!("{}: {error}", error.field))?;
        let all = all.into_iter();
        Ok(all
            .map(|one| (one.hardware, one.count, one.tokens_per_second))
            .collect())
    }

    #[test]
    fn rows_without_speed_are_skipped() {
        let row = r#"{"hardware_type": "H200", "hardware_count": 2, "tps_mean": 120, "ttft_p90": 1, "use_case": "chat"}"#;
        let expected = Ok(vec![("H200".to_owned(), 2, 120.0)]);
        assert_eq!(told(&format!("[{row}]")), expected);
        for silent in [
            r#""tps_mean": null"#,
            r#""tps_mean": 0"#,
            r#""itl_mean": 9"#,
        ] {
            let text = format!(r#"[{{"hardware_type": "H200", "hardware_count": 1, {silent}}}]"#);
            assert_eq!(told(&text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn i12_invalid_row_is_rejected_with_its_number() {
        for (text, said) in [
            (
                r#"[{"hardware_type": "H200", "hardware_count": 0}]"#,
                "performance: row 1: hardware_count",
            ),
            (
                r#"[{"hardware_type": "H200", "hardware_count": 1, "tps_mean": "fast"}]"#,
                "performance: row 1: tps_mean is a number",
            ),
            (
                r#"[{"hardware_type": "H200", "hardware_count": 1, "tps_mean": -1}]"#,
                "performance: row 1: tps_mean is a number",
            ),
        ] {
            let error = told(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }
}
