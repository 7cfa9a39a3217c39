//! History of the devices.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use octavo_history::{DeviceSample, Sample, SeriesKey};
use octavo_model::id::{NodeName, PciAddress};
use octavo_model::quantity::Mebibytes;
use octavo_store::history::{SharedHistory, timestamp};
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};

/// 2027-01-15T08:00:00Z, in seconds since 1970.
const START: u64 = 1_800_000_000;

fn sample(device: u8, kind: &str, power: u32) -> DeviceSample {
    let device = PciAddress::new(0, device, 0, 0).unwrap();
    DeviceSample {
        key: SeriesKey { device, partition: None },
        type_name: kind.parse().ok(),
        memory: Mebibytes::new(24_576),
        sample: Sample::new([Some(power / 10), Some(50), Some(power), Some(40), None]),
    }
}

/// Two samples of two nodes; the second one of gpu-2 is missing.
async fn history() -> SharedHistory {
    let history = SharedHistory::new(1 << 20);
    let (one, other): (NodeName, NodeName) = ("gpu-1".parse().unwrap(), "gpu-2".parse().unwrap());
    let of_one = [sample(1, "nvidia-l4-24gb", 80), sample(2, "nvidia-l4-24gb", 400)];
    let of_other = [sample(1, "nvidia-a30-24gb", 160)];
    let reports = [(one, of_one.into()), (other, of_other.into())];
    for (seconds, reports) in [(START, &reports[..]), (START + 15, &reports[..1])] {
        let step = history.next_step(timestamp(seconds)).unwrap();
        history.record(step, reports).await;
    }
    history
}

async fn aggregator() -> Aggregator {
    let history = history().await;
    Aggregator::viewed(&Machines::read().await, |view| view.with_history(history))
}

/// Node, type and last two values of each series.
fn rows(list: &Value) -> Vec<Value> {
    let rows = list["items"].as_array().unwrap().iter().map(|row| {
        let values = row["values"].as_array().unwrap();
        assert_eq!(values.len(), usize::try_from(list["points"].as_u64().unwrap()).unwrap());
        json!([row["node"], row["device"], row["type"], values[values.len() - 2..]])
    });
    rows.collect()
}

#[tokio::test]
async fn series_have_common_times_and_null_for_gaps() {
    let aggregator = aggregator().await;
    let power = aggregator.get("/api/v1/series?metric=power&groupBy=device").await.json();
    let head = json!([
        power["metric"],
        power["unit"],
        power["precision"],
        power["stepSeconds"],
        power["points"]
    ]);
    assert_eq!(head, json!(["power", "watts", 8, 15, 240]));
    assert_eq!(power["begins"], "2027-01-15T08:00:00Z");
    assert_eq!(power["start"], "2027-01-15T07:00:30Z");
    assert_eq!(power["notice"], "the history begins at the start of the aggregator");
    assert_eq!(
        rows(&power),
        [
            json!(["gpu-1", "0000:01:00.0", "nvidia-l4-24gb", [80, 80]]),
            json!(["gpu-1", "0000:02:00.0", "nvidia-l4-24gb", [400, 400]]),
            json!(["gpu-2", "0000:01:00.0", "nvidia-a30-24gb", [160, null]]),
        ]
    );
    let nodes = aggregator.get("/api/v1/series?metric=power&groupBy=node&node=gpu-1").await.json();
    assert_eq!(rows(&nodes), [json!(["gpu-1", null, null, [480, 480]])]);
    assert_eq!(nodes["items"][0]["devices"][239], 2);
    let types = aggregator.get("/api/v1/series?type=nvidia-a30-24gb,nvidia-l4-24gb").await.json();
    assert_eq!(
        rows(&types),
        [
            json!([null, null, "nvidia-a30-24gb", [16, null]]),
            json!([null, null, "nvidia-l4-24gb", [24, 24]])
        ]
    );
    let day =
        aggregator.get("/api/v1/series?groupBy=all&window=24h&metric=power&step=1m").await.json();
    // The minute has two samples: 640 and 480 W.
    assert_eq!(rows(&day), [json!([null, null, null, [null, 560]])]);
    let labeled = "/api/v1/series?groupBy=node&selector=octavo.dev/type%3Dnvidia-l4-24gb";
    assert_eq!(rows(&aggregator.get(labeled).await.json()).len(), 2);
}

#[tokio::test]
async fn i12_invalid_parameter_of_series_is_named() {
    let aggregator = aggregator().await;
    for (query, parameter) in [
        ("metric=load", "metric"),
        ("step=1h", "step"),
        ("groupBy=pod", "groupBy"),
        ("device=GPU-1", "device"),
        ("pool=a", "pool"),
    ] {
        let answer = aggregator.get(&format!("/api/v1/series?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(answer.json()["parameter"], parameter);
    }
}

#[tokio::test]
async fn unchanged_series_are_not_sent_again() {
    let aggregator = aggregator().await;
    let first = aggregator.get("/api/v1/series").await;
    let tag = first.header("etag").to_owned();
    assert!(!tag.is_empty());
    let request = Request::builder().method(Method::GET).uri("/api/v1/series");
    let request = request.header("if-none-match", &tag).body(Body::empty()).unwrap();
    let again = aggregator.answer(request).await;
    assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
}

#[tokio::test]
async fn totals_have_the_devices_of_their_group() {
    let aggregator = aggregator().await;
    let last = async |query: &str| {
        let list = aggregator.get(&format!("/api/v1/series?metric=power&{query}")).await.json();
        let rows = list["items"].as_array().unwrap().iter();
        let rows = rows.map(|row| json!([row["type"], row["values"][238], row["devices"][238]]));
        rows.collect::<Vec<Value>>()
    };
    assert_eq!(last("groupBy=all").await, [json!([null, 640, 3])]);
    assert_eq!(last("groupBy=all&type=nvidia-l4-24gb").await, [json!([null, 480, 2])]);
    assert_eq!(last("groupBy=all&type=nvidia-t4-16gb").await, [] as [Value; 0]);
    assert_eq!(last("type=nvidia-a30-24gb").await, [json!(["nvidia-a30-24gb", 160, 1])]);
    // A filter for nodes needs the series of the devices.
    assert_eq!(last("groupBy=all&node=gpu-2").await, [json!([null, 160, 1])]);
}

#[tokio::test]
async fn lists_have_the_configured_name_of_the_cluster() {
    let machines = Machines::read().await;
    let named =
        Aggregator::viewed(&machines, |view| view.with_site(Some("prod-eu".to_owned()), None));
    let unnamed = Aggregator::viewed(&machines, |view| view);
    for path in ["/api/v1/nodes", "/api/v1/types"] {
        assert_eq!(named.get(path).await.json()["cluster"], "prod-eu", "{path}");
        assert_eq!(unnamed.get(path).await.json().get("cluster"), None, "{path}");
    }
}

#[tokio::test]
async fn missing_history_is_explained() {
    let aggregator = Aggregator::viewed(&Machines::read().await, |view| view);
    let list = aggregator.get("/api/v1/series").await.json();
    assert_eq!(list["items"], json!([]));
    assert_eq!(list["notice"], "the history is turned off: --history-memory is 0");
}
