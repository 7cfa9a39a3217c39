//! Label sinks in the cluster: on this machine's Node, or in its NodeFeature.
//!
//! Publishing only hands the labels over. An unreachable API server blocks nothing, and receives the latest labels
//! when it returns.

use std::sync::Arc;
use std::time::Duration;

use octavo_kube::node::NodeHandle;
use octavo_kube::node_feature::{NodeFeatureContent, NodeFeatureHandle};
use octavo_node::labels::instance_features;
use octavo_node::node_object::DesiredLabels;
use tokio::time::timeout;

use crate::sink::{Evidence, LabelSink, Publication, Published, SinkError};

/// Timeout for an agent that runs once to see its labels written.
pub const ONESHOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Label sink that writes to the Node.
#[derive(Debug)]
pub struct NodeSink {
    /// The Node.
    pub node: Arc<NodeHandle>,
    /// Whether publishing waits until the Node has the labels.
    pub waits: bool,
}

/// Label sink that writes labels and devices to the NodeFeature.
#[derive(Debug)]
pub struct NodeFeatureSink {
    /// The NodeFeature.
    pub feature: NodeFeatureHandle,
    /// Whether publishing waits until the NodeFeature has the labels.
    pub waits: bool,
}

#[tonic::async_trait]
impl LabelSink for NodeSink {
    async fn publish(&mut self, publication: Publication<'_>) -> Result<Published, SinkError> {
        self.node.task.update(|desired| {
            desired.labels = match publication.evidence {
                Evidence::Read => DesiredLabels::Exactly(publication.labels.clone()),
                Evidence::NotRead => DesiredLabels::IfAbsent(publication.labels.clone()),
            };
        });
        if self.waits && timeout(ONESHOT_TIMEOUT, self.node.wait_until_applied()).await.is_err() {
            return Err(SinkError::Cluster(self.node.error()));
        }
        Ok(Published::Unchanged)
    }
}

#[tonic::async_trait]
impl LabelSink for NodeFeatureSink {
    async fn publish(&mut self, publication: Publication<'_>) -> Result<Published, SinkError> {
        // The labels of an earlier agent are better than those of hardware that was not read.
        if publication.evidence == Evidence::Read {
            let labels = publication.labels.iter();
            self.feature.set(&NodeFeatureContent {
                labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                devices: instance_features(publication.inventory),
            });
        }
        if self.waits && timeout(ONESHOT_TIMEOUT, self.feature.wait_until_applied()).await.is_err()
        {
            let error = self.feature.error().unwrap_or_else(|| {
                format!("no response from the API server within {ONESHOT_TIMEOUT:?}")
            });
            return Err(SinkError::Cluster(error));
        }
        Ok(Published::Unchanged)
    }
}
