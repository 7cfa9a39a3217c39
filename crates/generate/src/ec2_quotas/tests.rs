//! Tests of the quotas.

use serde_json::json;

use super::*;
use crate::tests_support::{ec2, node};

fn limits(all: &[(&str, &str, f64)]) -> Limits {
    let quotas: Vec<_> = all
        .iter()
        .map(|(code, name, value)| {
            json!({"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": name, "Value": value})
        })
        .collect();
    serde_json::from_value(json!({"Quotas": quotas})).unwrap()
}

fn adding(instance_type: &str, count: u64, is_spot: bool) -> Addition {
    Addition { instance_type: instance_type.to_owned(), count, is_spot }
}

fn one(report: &QuotaReport) -> &QuotaNeed {
    let [one] = report.items.as_slice() else { panic!("{report:?}") };
    one
}

#[test]
fn f2_nodes_and_additions_of_a_class_share_its_quota() {
    let nodes = [
        node("a", &ec2("p5.48xlarge", "z"), &[]),
        node("b", &ec2("p4d.24xlarge", "z"), &[]),
        node("c", &[("node.kubernetes.io/instance-type", "Standard_NC4as_T4_v3")], &[]),
    ];
    let limits = limits(&[("L-417A185B", "Running On-Demand P instances", 480.0)]);
    let additions = [adding("p5.48xlarge", 1, false)];
    let report = check_quotas(&nodes, &additions, &limits).unwrap();
    let need = one(&report);
    assert_eq!((need.used, need.added, need.limit, need.sufficient), (288, 192, Some(480), true));
    assert_eq!(need.name, "Running On-Demand P instances");
    let report = check_quotas(&nodes, &[adding("p5.4xlarge", 13, false)], &limits).unwrap();
    assert!(!one(&report).sufficient && one(&report).needed() == 496, "{report:?}");
}

#[test]
fn f2_spot_instances_have_quotas_of_their_own() {
    let all =
        [("L-C4BD4855", "All P5 Spot Instance Requests", 192.0), ("L-7212CCBC", "Other", 0.0)];
    let spot = |name: &str, limits: &Limits| {
        one(&check_quotas(&[], &[adding(name, 1, true)], limits).unwrap()).clone()
    };
    assert!(spot("p5.48xlarge", &limits(&all)).sufficient);
    assert!(!spot("p4d.24xlarge", &limits(&all)).sufficient);
    // The code of this quota is disputed, so that its name counts.
    let unknown = spot("p6-b200.48xlarge", &limits(&all));
    assert_eq!((unknown.code, unknown.limit, unknown.sufficient), (None, None, false));
    let named = limits(&[("L-1", "All P6 Spot Instance Requests", 192.0)]);
    let named = spot("p6-b200.48xlarge", &named);
    assert_eq!((named.code.as_deref(), named.sufficient), (Some("L-1"), true));
}

#[test]
fn f2_every_accelerated_instance_type_has_a_class() {
    let catalog = Catalog::built_in();
    let offers = catalog.products().iter().flat_map(|product| product.offers);
    for offer in offers.filter(|offer| offer.cloud == "aws") {
        assert!(class(offer.instance).is_some(), "{}", offer.instance);
    }
    let name = |instance: &str| class(instance).map(|class| class.name);
    assert_eq!(name("gr6.4xlarge"), Some("G and VT"));
    assert_eq!(name("im4gn.large"), Some("Standard"));
    assert_eq!(name("p5en.48xlarge"), Some("P5"));
    assert_eq!(name("mac1.metal"), None);
}

#[test]
fn f2_unknown_limit_is_not_sufficient() {
    let report = check_quotas(&[], &[adding("inf2.xlarge", 1, false)], &limits(&[])).unwrap();
    let need = one(&report);
    assert_eq!((need.limit, need.sufficient), (None, false));
    assert_eq!(need.name, "On-Demand Inf instances");
}

#[test]
fn i12_unknown_instance_types_are_errors() {
    let error = |name: &str| {
        check_quotas(&[], &[adding(name, 1, false)], &limits(&[])).unwrap_err().to_string()
    };
    assert!(error("p9.xlarge").contains("virtual CPUs of p9.xlarge is unknown"));
    assert_eq!(error("mac1.metal"), "no EC2 quota is known for mac1.metal");
    // A node shows how many CPUs a type has that the catalog does not list.
    let nodes = [node("a", &ec2("p9.xlarge", "z"), &[])];
    let report = check_quotas(&nodes, &[adding("p9.xlarge", 1, false)], &limits(&[])).unwrap();
    assert_eq!((one(&report).used, one(&report).added), (64, 64));
}
