//! Check that the agent serves resource claims: its driver is registered with the kubelet, its devices are published, and
//! no claim fails.

use std::collections::BTreeSet;

use octavo_model::claim::DRIVER;

use super::drivers::NVIDIA;
use super::facts::Facts;
use super::{Check, Finding};

const NO_SERVICE: &str = "no agent serves resource claims on this node";

pub(super) fn finding(facts: &Facts<'_>) -> Finding {
    let check = Check::ResourceClaims;
    let layout = facts.layout.as_ref();
    let service = layout.map(|layout| layout.as_ref().and_then(|layout| layout.claims.clone()));
    let drivers = match &facts.kubelet {
        Ok(Some(kubelet)) => kubelet.claim_drivers.as_ref().ok().cloned(),
        Ok(None) => Some(BTreeSet::new()),
        Err(_) => None,
    };
    let has_directory = drivers.as_ref().is_some_and(|drivers| drivers.contains(DRIVER));
    match service {
        Ok(Some(Ok(()))) => check.ok(format!(
            "the devices of this node are published, and the kubelet registered the driver {DRIVER}"
        )),
        Ok(Some(Err(message))) => check.failing(
            message,
            "docs/tasks/dra-claims.md#troubleshooting describes each error with its remedy; \
             `kubectl describe pod` shows the errors of a pod",
        ),
        Ok(None) if has_directory => check.warning(
            format!(
                "{DRIVER} has a directory in {}/plugins, but no running agent serves resource claims",
                facts.roots.kubelet
            ),
            "start the agent with --dra; if it was turned off on purpose, remove the directory",
        ),
        Ok(None) => check.not_applicable(NO_SERVICE),
        Err(_) if drivers.is_some() && !has_directory => check.not_applicable(NO_SERVICE),
        Err(_) if !NVIDIA.status(facts).is_working() => check.not_applicable(
            "no NVIDIA driver is known to be loaded, and only NVIDIA devices are allocated to claims",
        ),
        Err(why) => check.unknown(why.clone()),
    }
}
