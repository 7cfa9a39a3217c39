//! Event sets of clients.

use std::ffi::c_ulonglong;

use crate::model::{Event, Slot, World};

/// Registrations of a client.
#[derive(Debug, Clone, Default)]
pub(super) struct EventSet {
    pub(super) registered: Vec<Registration>,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Registration {
    pub(super) slot: Slot,
    pub(super) types: c_ulonglong,
    /// The newest event at registration: only later ones count.
    pub(super) since: u64,
}

impl EventSet {
    /// The next event that the client registered for; skipped ones stay skipped.
    pub(super) fn next(&mut self, world: &World) -> Option<(Slot, Event)> {
        let events = world.events_after(self.last);
        let hit = events.iter().find_map(|event| Some((self.wanted(world, event)?, event.clone())));
        self.last = hit.as_ref().map_or(world.last_event, |(_, event)| event.sequence);
        hit
    }

    fn wanted(&self, world: &World, event: &Event) -> Option<Slot> {
        let registered = self.registered.iter().find(|one| {
            let here = world.gpu(one.slot).is_ok_and(|gpu| gpu.uuid == event.gpu_uuid);
            here && one.types & event.kind.bit() != 0 && event.sequence > one.since
        });
        registered.map(|one| one.slot)
    }
}
