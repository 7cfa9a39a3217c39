//! Pods of one node, with the amounts that they hold.

use std::sync::{Arc, OnceLock};

use super::PODS;
use super::amounts::Amounts;
use super::snapshot::{ClusterPod, PodKey};

/// Pods that hold resources on one node. Successive snapshots share it until one of these pods changes, so its address
/// identifies their state.
#[derive(Debug, Clone, Default)]
pub struct NodePods {
    /// Ordered by namespace and name.
    pods: Vec<Arc<ClusterPod>>,
    /// Calculated for the first reader.
    held: OnceLock<Amounts>,
}

impl NodePods {
    /// The pods, ordered by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterPod> {
        self.pods.iter().map(AsRef::as_ref)
    }

    /// Amounts that these pods hold, including the number of pods.
    pub fn held(&self) -> &Amounts {
        self.held.get_or_init(|| {
            let mut sum = Amounts::default();
            for pod in &self.pods {
                sum.add(&pod.requirements.amounts);
            }
            let pods = u64::try_from(self.pods.len()).unwrap_or(u64::MAX);
            sum.add(&Amounts::default().with(PODS, pods));
            sum
        })
    }

    /// Returns `true` if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Adds a pod, or replaces the one with the same name.
    pub(super) fn insert(&mut self, pod: Arc<ClusterPod>) {
        self.held = OnceLock::new();
        match self.place(&pod.key) {
            Ok(at) => {
                if let Some(place) = self.pods.get_mut(at) {
                    *place = pod;
                }
            }
            Err(at) => self.pods.insert(at, pod),
        }
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, key: &PodKey) {
        if let Ok(at) = self.place(key) {
            self.held = OnceLock::new();
            self.pods.remove(at);
        }
    }

    fn place(&self, key: &PodKey) -> Result<usize, usize> {
        self.pods.binary_search_by(|pod| pod.key.cmp(key))
    }
}
