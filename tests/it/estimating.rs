//! `octavo estimate`, `slo` and `usage` with a real aggregator: with a price book, with profiles from a file, and
//! without an engine.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::engine::{EngineBehavior, TestEngine};
use crate::process::Aggregator;
use crate::time_limits::Finish;

const PRICES: &str = "
apiVersion: octavo.dev/v1
kind: PriceBook
currency: USD
prices:
- {type: nvidia-h100-80gb, perHour: \"2\"}
- {type: nvidia-l4-24gb, perHour: \"0.70\"}
- {type: nvidia-l4-24gb, option: spot, perHour: \"0.20\"}
";

const PROFILES: &str = "
apiVersion: infrastructure.opendatahub.io/v1
kind: HardwareProfile
metadata: {name: premium, namespace: opendatahub}
spec:
  identifiers:
  - {displayName: GPU, identifier: nvidia.com/gpu, minCount: 1, defaultCount: 4}
  scheduling: {type: Node, node: {nodeSelector: {octavo.dev/type: nvidia-h100-80gb}}}
---
apiVersion: infrastructure.opendatahub.io/v1
kind: HardwareProfile
metadata: {name: slice, namespace: opendatahub}
spec:
  identifiers:
  - {displayName: Slice, identifier: nvidia.com/mig-1g.10gb, minCount: 1, defaultCount: 1}
  scheduling: {type: Node, node: {nodeSelector: {octavo.dev/type: nvidia-h100-80gb}}}
";

/// An aggregator with prices and profiles and without agents.
struct PricedAggregator {
    aggregator: Aggregator,
    _directory: tempfile::TempDir,
}

impl PricedAggregator {
    fn new(more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let prices = file("prices.yaml", PRICES);
        let profiles = file("profiles.yaml", PROFILES);
        let arguments = ["--plaintext", "--price-book", &prices, "--profiles", &profiles];
        Self { aggregator: Aggregator::start(&[&arguments, more].concat()), _directory: directory }
    }

    /// Output, notes and exit code.
    fn octavo(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        run(&format!("http://{}", self.aggregator.http), arguments)
    }
}

/// Runs `octavo` with the aggregator at `server`.
fn run(server: &str, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(arguments)
        .env("OCTAVO_SERVER", server)
        .stdin(Stdio::null())
        .finish();
    shown(&output)
}

/// The same for tests that run the server on the same thread.
pub(crate) async fn run_beside(server: &str, arguments: &[&str]) -> (String, String, Option<i32>) {
    let server = server.to_owned();
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let running = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&server, &arguments)
    });
    running.await.unwrap()
}

fn shown(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn training_is_estimated_for_types_and_for_a_profile_with_cost() {
    let fixture = PricedAggregator::new(&[]);
    let training = ["estimate", "training", "--parameters", "7B", "--tokens", "1T"];
    let on = ["--type", "H100 80GB,a100-40gb", "--count", "64"];
    let (out, notes, code) = fixture.octavo(&[&training[..], &on].concat());
    assert_eq!(code, Some(0), "{out}{notes}");
    let mut lines = out.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["TYPE", "COUNT", "ESTIMATE", "COST"]);
    let row = lines.next().unwrap();
    assert!(row.starts_with("nvidia-h100-80gb  64     16 to "), "{out}");
    assert!(row.contains(" days") && row.ends_with(" USD per run"), "{out}");
    // No cost without a price.
    assert!(lines.next().unwrap().ends_with("  -"), "{out}");
    assert!(out.contains("\nsource: octavo roofline"), "{out}");
    assert!(out.contains("\nassumptions:\n  a dense transformer"), "{out}");
    assert_eq!(notes, "note: estimates only; nothing was measured on this fleet\n");

    let of_profile = ["--profile", "premium", "-n", "opendatahub", "--no-headers"];
    let (out, _, code) = fixture.octavo(&[&training[..], &of_profile].concat());
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with("nvidia-h100-80gb  4  "), "{out}");
    let (_, notes, code) = fixture.octavo(&[&training[..], &["--profile", "slice"]].concat());
    assert_eq!(code, Some(1));
    assert!(
        notes.contains("cannot estimate for the profile slice")
            && notes.contains("nvidia.com/mig-1g.10gb, which is less than a whole device"),
        "{notes}"
    );
    let (_, notes, code) = fixture.octavo(&[&training[..], &["--profile", "nobody"]].concat());
    assert_eq!(code, Some(1), "{notes}");
}

#[test]
fn model_throughput_is_shown_as_table_and_documents() {
    let fixture = PricedAggregator::new(&[]);
    let base = ["estimate", "decoding", "--parameters", "30e9", "--precision", "fp16"];
    let ask = |more: &[&str]| fixture.octavo(&[&base[..], more].concat());
    let (out, _, code) = ask(&["--type", "nvidia-h100-80gb,nvidia-l4-24gb", "-o", "wide"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains(" tokens/s  ") && out.contains(" USD per 10^6 tokens  yes\n"), "{out}");
    assert!(
        out.contains("no estimate:\n  1 x nvidia-l4-24gb: the weights alone need 60.0 GB"),
        "{out}"
    );
    // Unknown values are omitted.
    let (_, _, code) = ask(&["--type", "nvidia-l4-24gb"]);
    assert_eq!(code, Some(5));
    let (out, _, _) = ask(&["--type", "nvidia-h100-80gb", "-o", "json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&document["kind"], &document["isEstimate"]),
        (&json!("EstimateAnswer"), &json!(true))
    );
    let (out, _, _) = ask(&["--type", "nvidia-h100-80gb,nvidia-l4-24gb", "-o", "name"]);
    assert_eq!(out, "nvidia-h100-80gb\n");
    // An empty fleet has no types.
    let (out, _, code) = ask(&[]);
    assert_eq!(code, Some(5), "{out}");
    for (wrong, why) in [
        (&["--count", "8"][..], "--type"),
        (&["--type", "nvidia-l4-24gb", "--profile", "y"][..], "cannot be used with"),
        (&["--type", "nvidia-l4-24gb", "--count", "many"][..], "invalid value 'many'"),
    ] {
        let (_, notes, code) = ask(wrong);
        assert_eq!(code, Some(2), "{notes}");
        assert!(notes.contains(why), "{wrong:?}: {notes}");
    }
}

#[tokio::test]
async fn hanging_engine_leaves_table_without_times_within_deadline() {
    let engine = TestEngine::new(EngineBehavior::Hangs).await;
    let fixture =
        PricedAggregator::new(&["--estimate-engine", &engine.url, "--estimate-timeout", "100ms"]);
    let training = ["estimate", "training", "--parameters", "7B", "--tokens", "1T"];
    let on = ["--type", "nvidia-h100-80gb"];
    let server = format!("http://{}", fixture.aggregator.http);
    let (out, _, code) = run_beside(&server, &[&training[..], &on].concat()).await;
    assert_eq!(code, Some(4), "{out}");
    assert!(out.contains("nvidia-h100-80gb  1      no estimate  -"), "{out}");
    assert!(
        out.contains("no estimate:\n  the estimate engine did not respond within 100ms"),
        "{out}"
    );
}

#[test]
fn invalid_count_is_a_usage_error_with_valid_examples() {
    let (_, notes, code) =
        run("http://127.0.0.1:1", &["estimate", "decoding", "--parameters", "seven"]);
    assert_eq!(code, Some(2));
    assert!(notes.contains("\"seven\" is not a count such as 7B, 1.5T or 7e9"), "{notes}");
}

/// Response of a model catalog.
const CATALOG: &str = r#"{"items": [
    {"artifactType": "metrics-artifact", "metricsType": "performance-metrics", "customProperties": {
        "hardware_type": {"string_value": "H100 80GB"}, "hardware_count": {"int_value": "2"},
        "requests_per_second": {"double_value": 7.0}, "ttft_p90": {"double_value": 180.5}}},
    {"artifactType": "metrics-artifact", "metricsType": "performance-metrics", "customProperties": {
        "hardware_type": {"string_value": "L4"}, "hardware_count": {"int_value": "1"},
        "requests_per_second": {"double_value": 1.5}, "ttft_p90": {"double_value": 250}}},
    {"artifactType": "metrics-artifact", "metricsType": "performance-metrics", "customProperties": {
        "hardware_type": {"string_value": "RTX 4090"}, "hardware_count": {"int_value": "1"},
        "requests_per_second": {"double_value": 3.0}, "ttft_p90": {"double_value": 400}}},
    {"artifactType": "metrics-artifact", "metricsType": "accuracy-metrics", "customProperties": {
        "overall_average": {"double_value": 0.6}}}
]}"#;

fn slo(fixture: &PricedAggregator, file: &Path, more: &[&str]) -> (String, String, Option<i32>) {
    let objectives = ["--requests-per-second", "10", "--latency", "ttft_p90=300"];
    let file = ["slo", "-f", file.to_str().unwrap()];
    fixture.octavo(&[&file[..], &objectives, more].concat())
}

#[test]
fn model_catalog_rows_are_ranked_with_replicas_and_prices() {
    let fixture = PricedAggregator::new(&[]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(CATALOG.as_bytes()).unwrap();
    let (out, notes, code) = slo(&fixture, file.path(), &[]);
    assert_eq!(code, Some(0), "{out}{notes}");
    assert!(
        out.starts_with(
            "\
HARDWARE   DEVICES  REPLICAS  COST/H    IN FLEET  PROFILE              FREE  MET  REQ/S  TTFT_P90
L4         1        7         4.90 USD  no        -                    -     yes  1.5    250
H100 80GB  2        2         8.00 USD  no        opendatahub/premium  -     yes  7      180.5
RTX 4090   1        4         -         no        -                    -     no   3      400

matching profiles:
  2 x H100 80GB: premium (opendatahub/premium) - availability unknown - 8.00
    USD/h - meets all

misses objectives:
  1 x RTX 4090: "
        ),
        "{out}"
    );
    assert_eq!(
        notes,
        "note: 1 item skipped: no measurement on hardware\nnote: 2 of 3 rows meet all objectives\n"
    );
    let (out, _, _) = slo(&fixture, file.path(), &["-o", "name"]);
    assert_eq!(out, "L4\nH100 80GB\n");
    let (out, _, _) =
        slo(&fixture, file.path(), &["--purchase", "spot", "--max-price", "2", "--no-headers"]);
    assert!(out.starts_with("L4         1  7  1.40 USD  no  -                    -  yes"), "{out}");
    let (_, _, code) = slo(&fixture, file.path(), &["--max-price", "1"]);
    assert_eq!(code, Some(5));
    let (out, _, _) = slo(&fixture, file.path(), &["-o", "json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&document["kind"], &document["met"]), (&json!("SloAnswer"), &json!(2)));

    let (_, notes, code) = slo(&fixture, file.path(), &["--latency", "speed=1"]);
    assert_eq!(code, Some(1));
    assert!(notes.contains("\"speed\" is not a latency"), "{notes}");
    fs::write(file.path(), "[{\"hardware_type\": \"H100\"}]").unwrap();
    let (_, notes, code) = slo(&fixture, file.path(), &[]);
    assert_eq!(code, Some(1));
    assert!(
        notes.contains("cannot use the rows in ")
            && notes.contains("missing field `hardware_count`"),
        "{notes}"
    );
}

#[test]
fn missing_allocation_reports_from_agents_are_reported() {
    let fixture = PricedAggregator::new(&[]);
    let (out, notes, code) = fixture.octavo(&["usage"]);
    assert_eq!((out.as_str(), code), ("", Some(0)));
    assert!(
        notes.starts_with(
            "note: no allocations: no pod has a device, or no agent runs with --usage-interval"
        ),
        "{notes}"
    );
}
