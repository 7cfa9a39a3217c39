//! Frame of every page: its files, and the name of the cluster.

use std::sync::Arc;

use octavo_store::view::FleetView;

use super::assets::Assets;

/// Data of the template `base.html`.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) assets: Assets,
    /// Name of the cluster, if it is configured.
    pub(super) cluster: Option<Arc<str>>,
    /// True if the aggregator has a usage ledger.
    pub(super) has_ledger: bool,
}

impl Frame {
    /// Frame of a page of this fleet.
    pub(super) fn new(view: &FleetView) -> Self {
        Self {
            assets: Assets::links(),
            cluster: view.cluster_name().cloned(),
            has_ledger: view.ledger().is_some(),
        }
    }

    /// Frame without the name of the cluster, for clients that may not be authorized to see it.
    pub(super) fn without_cluster() -> Self {
        Self { assets: Assets::links(), cluster: None, has_ledger: false }
    }
}
