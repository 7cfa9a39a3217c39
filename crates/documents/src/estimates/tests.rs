//! Valid engine responses, and each kind of invalid one.

use octavo_fleet::estimate::{EstimateValue, Precision};

use super::*;

fn asked() -> Vec<DeviceGroup> {
    let one = |name: &str, count| DeviceGroup {
        type_name: name.parse().unwrap(),
        count,
    };
    vec![one("nvidia-h100-80gb", 8), one("nvidia-a100-80gb", 8)]
}

fn read(text: &str) -> Result<EngineEstimates, String> {
    let training = Workload::training(7e9, 1e12, Precision::Bf16).unwrap();
    validate(text.as_bytes(), &training, &asked()).map_err(|lie| lie.to_string())
}

fn item(rest: &str) -> String {
    format!(
        r#"{{"source": "bench", "items": [{{"type": "nvidia-h100-80gb", "count": 8, {rest}}}]}}"#
    )
}

#[test]
fn valid_engine_response_is_accepted() {
    let said = read(&item(
        r#""seconds": {"low": 10, "high": 12.5}, "interpolated": true, "more": 1"#,
    ))
    .unwrap();
    let key = ("nvidia-h100-80gb".to_owned(), 8);
    let expected = EstimateValue::Seconds(Interval::new(10.0, 12.5).unwrap());
    assert_eq!(said.figures.get(&key), Some(&(expected, true)));
    assert_eq!(said.source, "bench");
}

#[test]
fn invalid_engine_responses_are_rejected_with_a_reason() {
    let seconds =
        |low: &str, high: &str| item(&format!(r#""seconds": {{"low": {low}, "high": {high}}}"#));
    let other = seconds("1", "2").replace("h100", "h900");
    let more = seconds("1", "2").replace("\"count\": 8", "\"count\": 9");
    let long = seconds("1", "2").replace("bench", &"x".repeat(1000));
    let same = r#"{"type": "nvidia-h100-80gb", "count": 8, "seconds": {"low": 1, "high": 2}}"#;
    let twice = format!(r#"{{"source": "s", "items": [{same}, {same}]}}"#);
    let many = format!(r#"{{"source": "s", "items": [{same}, {same}, {same}]}}"#);
    for (text, said) in [
        (seconds("NaN", "1"), "cannot be read"),
        (seconds("null", "1"), "cannot be read"),
        (seconds("1e999", "1"), "cannot be read"),
        (seconds("-1", "1"), "-1 is no amount of time"),
        (seconds("0", "1"), "0 is no amount of time"),
        (seconds("2", "1"), "from 2 to 1 is upside down"),
        (
            item(r#""tokensPerSecond": {"low": 1, "high": 2}"#),
            "says no seconds alone",
        ),
        (item(r#""interpolated": false"#), "says no seconds"),
        (other, "8 x nvidia-h900-80gb, which was not asked"),
        (more, "9 x nvidia-h100-80gb, which was not asked"),
        (long, "its source is empty or has more than 400"),
        (twice, "answers twice"),
        (many, "more than 2 lines"),
        ("<html>".to_owned(), "cannot be read"),
        ("{}".to_owned(), "missing field `source`"),
    ] {
        let lie = read(&text).unwrap_err();
        assert!(lie.contains(said), "{text}: {lie}");
    }
}

#[test]
fn request_is_parsed_strictly_and_errors_name_the_field() {
    let read = |text: &str| -> Result<Workload, String> {
        let asked: EstimateRequest =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        asked
            .devices()
            .map_err(|error| format!("{}: {error}", error.field))?;
        asked
            .purchase_option()
            .map_err(|error| format!("{}: {error}", error.field))?;
        asked
            .workload()
            .map_err(|error| format!("{}: {error}", error.field))
    };
    let workload = r#""workload": {"kind": "decoding", "parameters": 7e9, "precision": "fp8"}"#;
    assert_eq!(
        read(&format!("{{{workload}}}")),
        Ok(Workload::decoding(7e9, Precision::Fp8).unwrap())
    );
    for (rest, said) in [
        (
            r#", "devices": []"#,
            "devices: devices has from 1 to 64 lines",
        ),
        (
            r#", "devices": [{"type": "A100", "count": 1}]"#,
            "devices: \"A100\" may be any of",
        ),
        (
            r#", "devices": [{"type": "H200", "count": 0}]"#,
            "devices: count is from 1",
        ),
        (
            r#", "devices": [{"type": "H200", "count": 1}, {"type": "nvidia-h200-141gb", "count": 1}]"#,
            "is there twice",
        ),
        (r#", "purchaseOption": "never"#, "EOF"),
        (
            r#", "purchaseOption": "never""#,
            "purchaseOption: \"never\"",
        ),
        (r#", "modell": 1"#, "unknown field `modell`"),
    ] {
        let error = read(&format!("{{{workload}{rest}}}")).unwrap_err();
        assert!(error.contains(said), "{rest}: {error}");
    }
    let training = r#"{"workload": {"kind": "training", "parameters": 7e9, "tokens": 1e20, "precision": "bf16"}}"#;
    assert!(read(training).unwrap_err().starts_with("workload.tokens: "));
    assert!(
        read(r#"{"workload": {"kind": "prayer"}}"#)
            .unwrap_err()
            .contains("unknown variant")
    );
}
