//! Nodes that the aggregators of other clusters send.

use std::sync::{Arc, Weak};

use octavo_model::id::NodeName;
use octavo_stream::protocol::{Greeting, Hello};

use super::{AgentEntry, ReportPermit, Store, StoreError, StoreLimits};
use crate::clock::Moment;

impl Store {
    /// The limits.
    pub fn limits(&self) -> StoreLimits {
        self.limits
    }

    /// Handles the hello for a node that the aggregator of another cluster sends.
    ///
    /// # Errors
    /// Fails if the fleet is full, or an agent reports a node with this name.
    pub fn accept_upstream(
        &mut self,
        cluster: &Arc<str>,
        hello: &Hello,
        now: Moment,
    ) -> Result<ReportPermit, StoreError> {
        let node = hello.identity.node.clone();
        let known = self.entries.get(&node);
        if known.is_some_and(|entry| entry.upstream.as_ref() != Some(cluster)) {
            return Err(StoreError::NameInUse { node });
        }
        let (entry, greeting) = self.admit_hello(&node, hello, now)?;
        if let Greeting::Refused(_) = greeting {
            return Err(StoreError::NameInUse { node });
        }
        entry.last_message = now;
        entry.agent_version.clone_from(&hello.identity.agent_version);
        entry.upstream = Some(Arc::clone(cluster));
        let (id, superseded) = self.open_stream(&node, Weak::new());
        Ok(ReportPermit { node, id, superseded })
    }

    /// Returns whether the stream of this permit still reports its node.
    pub fn has_stream(&self, permit: &ReportPermit) -> bool {
        self.entries.get(&permit.node).is_some_and(|entry| entry.has_stream(permit))
    }

    /// Removes a node that the aggregator of another cluster has sent.
    pub fn remove_upstream(&mut self, cluster: &Arc<str>, node: &NodeName, now: Moment) {
        if self.entries.get(node).is_some_and(|entry| entry.upstream.as_ref() == Some(cluster)) {
            self.forget(node, now);
        }
    }
}

impl AgentEntry {
    /// Returns whether the stream of this permit still reports the node.
    pub(super) fn has_stream(&self, permit: &ReportPermit) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.id == permit.id)
    }
}
