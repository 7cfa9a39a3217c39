//! Interconnect of Neuron devices, from the neighbors that each device reports.
//!
//! In a ring or torus, devices forward data for others, so all connected devices form one domain over which
//! collectives run. If only one end reports a link, the whole interconnect is unknown.

use std::collections::BTreeMap;

use super::{Interconnect, InterconnectKind, clique, components};
use crate::inventory::{Device, Neuron, Vendor};

pub(super) fn of(neuron: &Neuron, devices: &[Device]) -> Option<Interconnect> {
    // The topology is known only if all devices report their links and agree.
    neuron.topology()?;
    if !(2..=64).contains(&neuron.devices.len()) {
        return None;
    }
    let place: BTreeMap<u32, usize> =
        neuron.devices.iter().map(|one| one.number).zip(0..).collect();
    let near = neuron.devices.iter().enumerate();
    let linked: Vec<u64> = near
        .map(|(at, device)| {
            let near = device.connected.iter().flatten();
            let near = near.filter_map(|number| place.get(number));
            near.filter(|other| **other != at).fold(0, |bits, other| bits | 1 << other)
        })
        .collect();
    let kind = if linked.iter().any(|near| *near != 0) {
        InterconnectKind::NeuronLink
    } else {
        let is_complete = devices.iter().all(|device| device.vendor == Vendor::Aws);
        is_complete.then_some(InterconnectKind::Pcie)?
    };
    let sizes = components(&linked).into_iter();
    let largest = sizes.map(|members| clique::bits(members).count()).max();
    Some(Interconnect { kind, domain_size: largest.unwrap_or(1), domains: Vec::new() })
}
