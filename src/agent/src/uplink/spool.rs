//! Allocations that the aggregator may not have stored, with their times, so that it can account for them later.

use std::collections::VecDeque;

use octavo_fleet::summary::{
    MAX_PAST_ITEMS, MAX_PAST_USAGES, MAX_USAGE_BYTES, allocations_only, past_items,
};
use octavo_node::sharing::usage::{PastUsage, Usage};
use octavo_stream::protocol::{Content, PartKey};
use octavo_stream::status;

/// Past usages, within the size of a part. If there are too many, the times of the earliest ones are forgotten.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// The first one contains all devices, each further one those that have changed.
    past: VecDeque<PastUsage>,
    /// Allocations of all devices since the last of them.
    latest: Usage,
}

impl Spool {
    /// Adds the usage from `at` on, in seconds since 1970, if its allocations have changed.
    pub(super) fn record(&mut self, at: i64, usage: &Usage) {
        let are_allocations_unknown = usage.are_allocations_unknown;
        let latest =
            Usage { devices: allocations_only(usage), are_allocations_unknown, ..Usage::default() };
        let known = &self.latest.devices;
        let mut changed = latest.clone();
        if let Some(last) = self.past.back() {
            changed.devices.retain(|device| !known.contains(device));
            if changed.devices.is_empty()
                && are_allocations_unknown == last.usage.are_allocations_unknown
            {
                return;
            }
        }
        // Later times are wrong: the clock was set back.
        for past in self.past.iter_mut().rev().take_while(|past| past.at > at) {
            past.at = at;
        }
        self.past.push_back(PastUsage { at, usage: changed });
        self.latest = latest;
        while self.is_too_large() && self.forget_first() {}
    }

    /// Forgets the usages before a time, because the aggregator has stored them. The usage at that time remains.
    pub(super) fn forget_before(&mut self, at: i64) {
        while self.past.get(1).is_some_and(|second| second.at <= at) {
            self.forget_first();
        }
    }

    /// The part of a status; `None` if nothing is recorded, or one usage is too large.
    pub(super) fn part(&self) -> Option<(PartKey, Content)> {
        let part = (!self.past.is_empty()).then(|| self.encode());
        part.filter(|(_, content)| content.bytes().len() <= MAX_USAGE_BYTES)
    }

    fn is_too_large(&self) -> bool {
        self.past.len() > MAX_PAST_USAGES
            || past_items(&self.past) > MAX_PAST_ITEMS
            || self.encode().1.bytes().len() > MAX_USAGE_BYTES
    }

    fn encode(&self) -> (PartKey, Content) {
        status::encode_past_usage(&self.past)
    }

    /// Merges the first usage into the second one; `false` if there is none.
    fn forget_first(&mut self) -> bool {
        let Some(first) = self.past.pop_front() else { return false };
        let Some(second) = self.past.front_mut() else {
            self.past.push_front(first);
            return false;
        };
        let devices = &mut second.usage.devices;
        for device in first.usage.devices {
            if let Err(place) = devices.binary_search_by_key(&device.pci, |other| other.pci) {
                devices.insert(place, device);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use octavo_model::id::PciAddress;
    use octavo_model::resource::ShareId;
    use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

    use super::*;

    fn device(number: u8, pod: u32) -> DeviceUsage {
        let uuid = format!("GPU-00000000-0000-0000-0000-{number:012}");
        let tenant = Tenant {
            pod: Some(format!("pod-{pod}")),
            ids: vec![ShareId::whole(&uuid)],
            ..Tenant::default()
        };
        let unit = UnitUsage { uuid, tenants: vec![tenant], ..UnitUsage::default() };
        DeviceUsage {
            pci: PciAddress::new(0, number, 0, 0).unwrap(),
            name: format!("GPU {number}"),
            memory: None,
            utilization: None,
            power_watts: Some(pod),
            temperature_celsius: None,
            units: vec![unit],
        }
    }

    /// Usage of devices, each by one pod.
    fn usage(pods: &[u32]) -> Usage {
        let numbers = 0_u8..;
        let devices = numbers.zip(pods).map(|(number, pod)| device(number, *pod)).collect();
        Usage { devices, ..Usage::default() }
    }

    /// Pods of the devices from each time on, decoded from the part.
    fn read(spool: &Spool) -> Vec<(i64, Vec<String>)> {
        let (_, content) = spool.part().unwrap();
        assert!(content.bytes().len() <= MAX_USAGE_BYTES);
        let mut devices = BTreeMap::new();
        let past = status::decode_past_usage(&content).unwrap().into_iter().map(|past| {
            devices.extend(past.usage.devices.into_iter().map(|device| (device.pci, device)));
            let tenants = devices.values().flat_map(|device| &device.units[0].tenants);
            (past.at, tenants.map(ToString::to_string).collect())
        });
        past.collect()
    }

    fn names(pods: &[u32]) -> Vec<String> {
        pods.iter().map(|pod| format!("pod-{pod}")).collect()
    }

    #[test]
    fn usage_without_changed_allocations_is_not_recorded() {
        let mut spool = Spool::default();
        assert!(spool.part().is_none());
        spool.record(10, &usage(&[1, 2]));
        let mut warmer = usage(&[1, 2]);
        warmer.devices[0].temperature_celsius = Some(80);
        spool.record(20, &warmer);
        spool.record(30, &usage(&[1, 3]));
        // The clock was set back.
        spool.record(5, &usage(&[4, 3]));
        let states = [names(&[1, 2]), names(&[1, 3]), names(&[4, 3])];
        assert_eq!(read(&spool), states.map(|names| (5, names)));
        assert_eq!(spool.past[1].usage.devices.len(), 1);
        spool.record(40, &usage(&[4, 6]));
        spool.forget_before(4);
        assert_eq!(read(&spool).len(), 4);
        spool.forget_before(39);
        assert_eq!(read(&spool), [(5, names(&[4, 3])), (40, names(&[4, 6]))]);
        spool.forget_before(40);
        assert_eq!(read(&spool), [(40, names(&[4, 6]))]);
    }

    #[test]
    fn unknown_allocations_are_recorded() {
        let mut spool = Spool::default();
        spool.record(10, &usage(&[1]));
        let unknown = Usage { are_allocations_unknown: true, ..Usage::default() };
        spool.record(20, &unknown);
        spool.record(30, &unknown);
        spool.record(40, &usage(&[1]));
        let flags: Vec<bool> =
            spool.past.iter().map(|past| past.usage.are_allocations_unknown).collect();
        assert_eq!(flags, [false, true, false]);
    }

    #[test]
    fn usage_that_is_too_large_is_left_out() {
        let mut spool = Spool::default();
        let mut large = usage(&[1; 255]);
        for device in &mut large.devices {
            device.name = "x".repeat(400);
        }
        spool.record(1, &large);
        assert!(spool.part().is_none());
    }

    #[test]
    fn latest_usages_remain_if_there_are_too_many() {
        let mut spool = Spool::default();
        let mut pods = [0; 4];
        let mut expected = Vec::new();
        for pod in 0..3000_u32 {
            pods[usize::try_from(pod * pod % 7 % 4).unwrap()] = pod;
            spool.record(pod.into(), &usage(&pods));
            expected.push((i64::from(pod), names(&pods)));
        }
        let read = read(&spool);
        assert!((400..=MAX_PAST_USAGES).contains(&read.len()), "{}", read.len());
        assert_eq!(read, expected.split_off(expected.len() - read.len()));
    }
}
