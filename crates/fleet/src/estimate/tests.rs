//! Tests of the reference provider against manually calculated values, and of rejected input.

use proptest::prelude::*;

use super::*;

fn devices(name: &str, count: u32) -> DeviceGroup {
    DeviceGroup { type_name: name.parse().unwrap(), count }
}

fn near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

#[test]
fn training_time_uses_dense_peak_and_efficiency() {
    let workload = Workload::training(7e9, 1e12, Precision::Bf16);
    // Both products of the type have 312 TFLOPS.
    let EstimateValue::Seconds(time) =
        roofline(&workload, &devices("nvidia-a100-80gb", 8)).unwrap()
    else {
        panic!("a speed");
    };
    let at_peak = 6.0 * 7e9 * 1e12 / (312e12 * 8.0);
    assert!(near(time.low(), at_peak / 0.48) && near(time.high(), at_peak / 0.20), "{time:?}");
    // SXM5 has 989 TFLOPS and PCIe 756: the interval covers both.
    let EstimateValue::Seconds(time) =
        roofline(&workload, &devices("nvidia-h100-80gb", 1)).unwrap()
    else {
        panic!("a speed");
    };
    assert!(near(time.low(), 6.0 * 7e21 / (989e12 * 0.48)), "{time:?}");
    assert!(near(time.high(), 6.0 * 7e21 / (756e12 * 0.20)), "{time:?}");
}

#[test]
fn single_sequence_is_limited_by_memory_bandwidth() {
    let workload = Workload::decoding(70e9, Precision::Fp8);
    let EstimateValue::TokensPerSecond(speed) =
        roofline(&workload, &devices("nvidia-h200-141gb", 2)).unwrap()
    else {
        panic!("a time");
    };
    assert!(
        near(speed.low(), 4800e9 * 2.0 * 0.30 / 70e9)
            && near(speed.high(), 4800e9 * 2.0 * 0.85 / 70e9)
    );
    let workload = Workload::decoding(70e9, Precision::Bf16);
    assert_eq!(
        roofline(&workload, &devices("nvidia-a100-80gb", 1)).unwrap_err().to_string(),
        "the weights alone need 140.0 GB, but 1 x nvidia-a100-80gb have 80.0 GB"
    );
}

#[test]
fn missing_figures_give_no_estimate() {
    let workload = Workload::training(7e9, 1e12, Precision::Fp8);
    for (name, expected) in [
        ("nvidia-a100-80gb", "the catalog has no dense fp8 throughput for nvidia-a100-80gb"),
        ("acme-x1", "the catalog does not contain acme-x1"),
    ] {
        assert_eq!(roofline(&workload, &devices(name, 1)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn implausible_values_are_rejected_with_field() {
    let training =
        |parameters, tokens| Workload::training(parameters, tokens, Precision::Bf16).validated();
    for (error, field) in [
        (training(0.0, 1e9).unwrap_err(), "workload.parameters"),
        (training(f64::NAN, 1e9).unwrap_err(), "workload.parameters"),
        (training(1e15, 1e9).unwrap_err(), "workload.parameters"),
        (training(1e9, f64::INFINITY).unwrap_err(), "workload.tokens"),
        (training(1e9, -1.0).unwrap_err(), "workload.tokens"),
        ("fp4".parse::<Precision>().unwrap_err(), "workload.precision"),
    ] {
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn cost_is_the_price_of_all_devices_for_both_ends_of_the_time() {
    let price = Price {
        per_hour: "1.50".parse().unwrap(),
        currency: "USD".parse().unwrap(),
        purchase_option: PurchaseOption::Spot.into(),
    };
    let time = EstimateValue::Seconds(Interval::new(3600.0, 7200.0).unwrap());
    let run = cost(time, &price, 4).unwrap();
    assert_eq!(
        (run.low.to_string(), run.high.to_string(), run.per),
        ("6.00".into(), "12.00".into(), CostUnit::Run.into())
    );
    let speed = EstimateValue::TokensPerSecond(Interval::new(100.0, 1000.0).unwrap());
    let tokens = cost(speed, &price, 1).unwrap();
    assert_eq!((tokens.low.to_string(), tokens.high.to_string()), ("0.42".into(), "4.17".into()));
}

proptest! {
    #[test]
    fn interval_is_finite_positive_and_ordered_or_rejected(low in any::<f64>(), high in any::<f64>()) {
        match Interval::new(low, high) {
            Ok(interval) => {
                prop_assert!(interval.low() > 0.0 && interval.low() <= interval.high());
                prop_assert!(interval.high().is_finite());
            }
            Err(IntervalError::Inverted { .. }) => prop_assert!(low > high),
            Err(IntervalError::NotPositive(_)) => {
                prop_assert!(!low.is_finite() || !high.is_finite() || low <= 0.0 || high <= 0.0);
            }
        }
    }

    #[test]
    fn more_devices_are_never_slower_and_every_figure_is_an_interval(
        parameters in 1e6..1e14_f64,
        tokens in 1.0..1e16_f64,
        count in 1..MAX_DEVICES,
    ) {
        let workload = Workload::training(parameters, tokens, Precision::Fp16);
        for facts in octavo_model::accelerators::products() {
            let of = |count| match roofline(&workload, &devices(facts.type_name, count)) {
                Ok(EstimateValue::Seconds(time)) => Some(time),
                Ok(EstimateValue::TokensPerSecond(_)) => panic!("a speed"),
                Err(_) => None,
            };
            if let (Some(one), Some(more)) = (of(count), of(count + 1)) {
                prop_assert!(more.low() < one.low() && more.high() < one.high());
            }
        }
    }
}

#[test]
fn human_readable_counts_are_parsed_and_others_rejected() {
    for (text, count) in [
        ("7e9", 7e9),
        ("7B", 7e9),
        (" 70 b ", 70e9),
        ("1.5T", 1.5e12),
        ("300m", 300e6),
        ("2k", 2000.0),
        ("12", 12.0),
    ] {
        let read = parse_count(text).unwrap();
        assert!((read - count).abs() < count * 1e-12, "{text}: {read}");
    }
    for text in
        ["", "B", "-7B", "nan", "inf", "1e999", "0", "0B", "7G", "7 apples", "7BB", "١٢", "é"]
    {
        assert!(parse_count(text).is_err(), "{text}");
    }
}

#[test]
fn samples_are_converted_to_tokens_and_errors_name_the_field() {
    let training = |model: &str, batch, samples, each| {
        let workload = Workload::Training {
            model: Some(model.to_owned()),
            parameters: 7e9,
            tokens: None,
            samples: Some(samples),
            tokens_per_sample: Some(each),
            batch: Some(batch),
            precision: Precision::Bf16,
        };
        match workload.validated() {
            Ok(Workload::Training { tokens, .. }) => Ok(tokens.unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.field),
        }
    };
    assert_eq!(training("llama-3-8b", 8.0, 1e6, 2048.0), Ok(2.048e9));
    for (batch, samples, each, field) in [
        (8.0, 0.0, 10.0, "workload.samples"),
        (8.0, 10.0, 1e12, "workload.tokensPerSample"),
        (8.0, 1e15, 1e9, "workload.samples"),
        (f64::NAN, 1e6, 2048.0, "workload.batch"),
    ] {
        assert_eq!(training("a", batch, samples, each), Err(field));
    }
    for name in ["", "  ", "a\nb", &"x".repeat(101)] {
        assert_eq!(training(name, 8.0, 1e6, 2048.0), Err("workload.model"));
    }
}

#[test]
fn request_is_parsed_strictly_and_errors_name_the_field() {
    let read = |text: &str| -> Result<Workload, String> {
        let request: EstimateRequest =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        request
            .validated()
            .map(|request| request.workload)
            .map_err(|error| format!("{}: {error}", error.field))
    };
    let workload = r#""workload": {"kind": "decoding", "parameters": 7e9, "precision": "fp8"}"#;
    assert_eq!(read(&format!("{{{workload}}}")), Ok(Workload::decoding(7e9, Precision::Fp8)));
    for (rest, expected) in [
        (r#", "devices": []"#, "devices: devices must have 1 to 64 entries"),
        (r#", "devices": [{"type": "A100", "count": 1}]"#, "\"A100\" is ambiguous"),
        (
            r#", "devices": [{"type": "H200", "count": 0}]"#,
            "devices: count must be an integer from 1",
        ),
        (
            r#", "devices": [{"type": "H200", "count": 1}, {"type": "nvidia-h200-141gb", "count": 1}]"#,
            "is listed twice",
        ),
        (r#", "purchaseOption": "never"#, "EOF"),
        (r#", "purchaseOption": "never""#, "\"never\" is not a purchase option"),
        (r#", "modell": 1"#, "unknown field `modell`"),
    ] {
        let error = read(&format!("{{{workload}{rest}}}")).unwrap_err();
        assert!(error.contains(expected), "{rest}: {error}");
    }
    let training = r#"{"workload": {"kind": "training", "parameters": 7e9, "tokens": 1e20, "precision": "bf16"}}"#;
    assert!(read(training).unwrap_err().starts_with("workload.tokens: "));
    assert!(read(r#"{"workload": {"kind": "prayer"}}"#).unwrap_err().contains("unknown variant"));
}
