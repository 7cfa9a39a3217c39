//! How a container gets what it was given.

use std::collections::BTreeSet;
use std::fmt;

use crate::domain::sharing::ShareId;
use crate::proto::device_plugin::ContainerAllocateResponse;

/// Makes kubelet's answer of what a container was given.
pub trait Answer: fmt::Debug + Send + Sync {
    /// What the runtime is told so that the container has these; why it cannot be told, in words for a person.
    fn answer(&self, ids: &[ShareId]) -> Result<ContainerAllocateResponse, String>;
}

/// By the variable that NVIDIA's container runtime reads. Source: NVIDIA Container Toolkit, "Environment variables".
#[derive(Debug, Clone, Copy, Default)]
pub struct Envvar;

/// The name of that variable.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";

impl Answer for Envvar {
    fn answer(&self, ids: &[ShareId]) -> Result<ContainerAllocateResponse, String> {
        Ok(ContainerAllocateResponse {
            envs: [(VISIBLE.to_owned(), uuids(ids).join(","))].into(),
            ..ContainerAllocateResponse::default()
        })
    }
}

/// The units of these ids, each once, in their order: two replicas of a device are one device.
pub fn uuids(ids: &[ShareId]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let all = ids.iter().map(ShareId::uuid);
    all.filter(|uuid| seen.insert(*uuid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_replicas_of_a_device_are_one_device() {
        let gpu = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        let other = "GPU-5fd4087b-86f3-7a43-b711-4771313afc51";
        let ids = [
            ShareId::replica(other, 3),
            ShareId::replica(gpu, 1),
            ShareId::replica(other, 0),
        ];
        let answer = Envvar.answer(&ids).unwrap();
        let expected = format!("{other},{gpu}");
        assert_eq!(answer.envs.get(VISIBLE), Some(&expected));
    }
}
