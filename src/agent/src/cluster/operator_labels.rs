//! Values in the Node's labels that NVIDIA's programs read.

use std::collections::BTreeMap;

use octavo_node::label_set::LabelSet;
use octavo_node::labels::LayoutState;
use octavo_planner::reconcile::NodeLayoutStatus;

/// Returns the value that mig-manager would set. Source: NVIDIA mig-parted, `nvidia.com/mig.config.state`.
pub(super) fn mig_config_state(status: &NodeLayoutStatus) -> Option<&'static str> {
    Some(match LayoutState::from_status(status)? {
        LayoutState::Applied => "success",
        LayoutState::Pending | LayoutState::Blocked => "pending",
        LayoutState::Failed => "failed",
    })
}

/// Returns the number of partitions by the resource name that NVIDIA's device plugin uses for each profile; `None`
/// unless its strategy is `mixed`.
pub(super) fn partitions(labels: &LabelSet) -> Option<BTreeMap<String, u64>> {
    let mixed = labels.get("nvidia.com/mig.strategy") == Some("mixed");
    let counts = labels.iter().filter_map(|(key, value)| {
        let resource = key.strip_suffix(".count")?;
        let count = value.parse().ok()?;
        resource.starts_with("nvidia.com/mig-").then(|| (resource.to_owned(), count))
    });
    mixed.then(|| counts.collect())
}
