//! The custom resource definition in the chart.

use octavo_policy::crd::definition;

use crate::golden::golden;

const HEAD: &str = "# Generated from crates/policy by `make golden`.\n";

#[test]
fn p5_definition_in_the_chart_is_generated_from_the_types() {
    let yaml = serde_saphyr::to_string(&definition()).unwrap();
    golden("../../deploy/chart/octavo/files/acceleratorpolicies.yaml", &format!("{HEAD}{yaml}"));
}
