//! Label sinks in the cluster: on this machine's Node, or in its NodeFeature.
//!
//! Publishing only hands the labels over. An unreachable API server blocks nothing, and receives the latest labels
//! when it returns.

use std::sync::Arc;
use std::time::Duration;

use octavo_kube::node::NodeHandle;
use octavo_kube::node_feature::{NodeFeatureContent, NodeFeatureHandle};
use octavo_node::labels::instance_features;
use octavo_node::node::DesiredLabels;
use tokio::time::timeout;

use crate::sink::{Evidence, LabelSink, Publication, PublishFuture, Published, SinkError};

/// Timeout for an agent that runs once to see its labels written.
pub const ONESHOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Label sink that writes to the Node.
#[derive(Debug)]
pub struct NodeSink {
    link: Arc<NodeHandle>,
    /// Whether publishing waits until the Node has the labels.
    waits: bool,
}

/// Label sink that writes labels and devices to the NodeFeature.
#[derive(Debug)]
pub struct NodeFeatureSink {
    post: NodeFeatureHandle,
    waits: bool,
}

impl NodeSink {
    /// Creates a sink that writes through `link`; with `waits`, publishing waits until the labels are written.
    pub fn new(link: Arc<NodeHandle>, waits: bool) -> Self {
        Self { link, waits }
    }

    async fn hand_over(&self, sheet: Publication<'_>) -> Result<Published, SinkError> {
        self.link.update_desired(|wanted| {
            wanted.labels = match sheet.claim {
                Evidence::Read => DesiredLabels::Exactly(sheet.labels.clone()),
                Evidence::NotRead => DesiredLabels::IfAbsent(sheet.labels.clone()),
            };
        });
        if self.waits
            && timeout(ONESHOT_TIMEOUT, self.link.wait_until_applied())
                .await
                .is_err()
        {
            return Err(SinkError::Cluster(self.link.trouble()));
        }
        Ok(Published::Unchanged)
    }
}

impl NodeFeatureSink {
    /// Creates a sink that writes through `post`; with `waits`, publishing waits until the labels are written.
    pub fn new(post: NodeFeatureHandle, waits: bool) -> Self {
        Self { post, waits }
    }

    async fn hand_over(&self, sheet: Publication<'_>) -> Result<Published, SinkError> {
        // The labels of an earlier agent are better than those of hardware that was not read.
        if sheet.claim == Evidence::Read {
            let labels = sheet.labels.iter();
            self.post.say(NodeFeatureContent {
                labels: labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                devices: instance_features(sheet.inventory),
            });
        }
        if self.waits
            && timeout(ONESHOT_TIMEOUT, self.post.wait_until_applied())
                .await
                .is_err()
        {
            let trouble = self.post.said().trouble;
            return Err(SinkError::Cluster(trouble.unwrap_or_else(no_answer)));
        }
        Ok(Published::Unchanged)
    }
}

fn no_answer() -> String {
    format!("the API server has not answered within {ONESHOT_TIMEOUT:?}")
}

impl LabelSink for NodeSink {
    fn publish<'a>(&'a mut self, sheet: Publication<'a>) -> PublishFuture<'a> {
        Box::pin(self.hand_over(sheet))
    }
}

impl LabelSink for NodeFeatureSink {
    fn publish<'a>(&'a mut self, sheet: Publication<'a>) -> PublishFuture<'a> {
        Box::pin(self.hand_over(sheet))
    }
}
