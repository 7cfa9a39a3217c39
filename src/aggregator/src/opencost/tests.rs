//! Prices of nodes, and shares of containers.

use octavo_fleet::cluster::ClusterNode;
use octavo_fleet::price::{PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_ledger::{Device, MeasuredPart, Method, Part};
use octavo_model::source_position::SourcePosition;
use prometheus_client::encoding::text::encode;

use super::*;

const L4: &str = "nvidia-l4-24gb";
const H100: &str = "nvidia-h100-80gb";
const A10: &str = "nvidia-a10-24gb";

fn prices() -> CurrentPrices {
    let mut book = PriceBook::new("EUR".parse().unwrap());
    for (type_name, per_hour, currency) in [(L4, "1", "EUR"), (H100, "4", "EUR"), (A10, "2", "USD")]
    {
        let refused = book.add(PriceEntry {
            key: PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand),
            validity: Validity::default(),
            per_hour: per_hour.parse().unwrap(),
            currency: currency.parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    CurrentPrices::new(Arc::new(book), jiff::Timestamp::UNIX_EPOCH)
}

/// A device whose parts belong to containers.
fn device(type_name: Option<&str>, parts: &[(&str, u32)]) -> DeviceState {
    let price_key = type_name
        .map(|type_name| PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand));
    let part = |(pod, ppm): &(&str, u32)| MeasuredPart {
        part: Part {
            ppm: *ppm,
            method: Method::TimeSlicingReplicas,
            ..Part::whole(Holder::Container(Arc::new(Container {
                namespace: "team-a".to_owned(),
                pod: (*pod).to_owned(),
                container: "main".to_owned(),
                ..Container::default()
            })))
        },
        percent: None,
    };
    DeviceState {
        device: Device { node: node(), id: "GPU-1".to_owned(), price_key },
        parts: parts.iter().map(part).collect(),
    }
}

fn node() -> NodeName {
    "gpu-07".parse().unwrap()
}

#[test]
fn price_of_a_node_is_the_mean_of_its_devices() {
    let of = |types: &[Option<&str>]| {
        let states: Vec<_> = types.iter().map(|one| device(*one, &[])).collect();
        mean_price(&states, &prices())
    };
    assert_eq!(of(&[Some(L4), Some(H100)]), Some(2.5));
    // The product of price and count would not be the cost of the node.
    for unpriced in [&[Some(L4), Some(A10)][..], &[Some(L4), None], &[Some("nvidia-t4-16gb")], &[]]
    {
        assert_eq!(of(unpriced), None, "{unpriced:?}");
    }
}

#[test]
fn containers_beyond_the_limit_are_counted() {
    let devices = [
        device(Some(L4), &[("train", 500_000), ("serve", 250_000)]),
        device(Some(L4), &[("train", 1_000_000)]),
    ];
    let shares = |room| {
        let mut series = OpenCostSeries::default();
        series.add(&node(), &devices, room);
        let shares = series.containers.iter().map(|(labels, share)| (labels[1].1.clone(), *share));
        (shares.collect::<Vec<_>>(), series.omitted)
    };
    let (serve, train) = (("serve".to_owned(), 0.25), ("train".to_owned(), 1.5));
    assert_eq!(shares(2), (vec![serve.clone(), train], 0));
    assert_eq!(shares(1), (vec![serve], 1));
    assert_eq!(shares(0), (vec![], 2));
}

#[test]
fn labels_are_those_of_opencost() {
    let cluster = ClusterNode {
        name: "gpu-07".to_owned(),
        provider_id: "aws:///a/i-1".to_owned(),
        labels: [(INSTANCE_TYPE, "g6.12xlarge"), (REGION, "eu-1"), (ARCHITECTURE, "amd64")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..ClusterNode::default()
    };
    let cluster = ClusterSnapshot::new([cluster], []);
    let mut series = OpenCostSeries::default();
    series.add(&node(), &[device(Some(L4), &[("\"}\n", 1_000_000)])], 1);
    series.nodes.push(NodeSeries {
        labels: node_labels(&node(), Some(&cluster)),
        devices: 4,
        hourly_cost: Some(0.8),
    });
    series.nodes.push(NodeSeries {
        labels: node_labels(&"other".parse().unwrap(), Some(&cluster)),
        devices: 1,
        hourly_cost: None,
    });
    let metrics = OpenCostMetrics::default();
    metrics.set(series);
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let known = "instance=\"gpu-07\",node=\"gpu-07\",instance_type=\"g6.12xlarge\",region=\"eu-1\",provider_id=\"aws:///a/i-1\",arch=\"amd64\"";
    let unknown = "instance=\"other\",node=\"other\",instance_type=\"\",region=\"\",provider_id=\"\",arch=\"\"";
    for line in [
        format!("node_gpu_hourly_cost{{{known}}} 0.8"),
        format!("node_gpu_count{{{known}}} 4.0"),
        format!("node_gpu_count{{{unknown}}} 1.0"),
        "container_gpu_allocation{namespace=\"team-a\",pod=\"\\\"}\\n\",container=\"main\",instance=\"gpu-07\",node=\"gpu-07\"} 1.0".to_owned(),
        "octavo_opencost_omitted_containers 0".to_owned(),
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    assert_eq!(text.matches("node_gpu_hourly_cost{").count(), 1, "{text}");
}
