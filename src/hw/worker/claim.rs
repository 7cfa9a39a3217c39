//! Exclusive use of the driver: work on the driver thread, and release for another program.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::events::Events;
use super::{Message, Shared, Worker};
use crate::domain::driver_link::{Event, Past, State};
use crate::domain::inventory::Device;
use crate::domain::reading::Reading;
use crate::hw::GpuDriver;
use crate::hw::calls::CallWatch;
use crate::hw::error::DriverError;

/// Reason why the driver is not available.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoDriver {
    /// There is none and never was.
    #[error("there is no NVIDIA driver: {reason}")]
    Absent {
        /// The reason for users.
        reason: String,
    },
    /// It is being loaded.
    #[error("the NVIDIA driver is being loaded")]
    Loading,
    /// It became unavailable.
    #[error("the NVIDIA driver is lost: {reason}")]
    Lost {
        /// The reason for users.
        reason: String,
    },
    /// It is released for another program.
    #[error("the NVIDIA driver is let go of for another program")]
    Released,
    /// It could not be released, because a wait for its events did not return in time.
    #[error("the NVIDIA driver cannot be let go of: a wait for its events does not return")]
    Held,
    /// The program is shutting down.
    #[error("the thread that talks to NVML has ended")]
    Ended,
}

/// Reason why there are no readings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unread {
    /// The driver is not available.
    #[error(transparent)]
    NoDriver(#[from] NoDriver),
    /// The driver as a whole failed.
    #[error("the NVIDIA driver does not answer")]
    Refused(#[source] DriverError),
    /// No response within the call deadline: the thread is busy, or a call hangs.
    #[error("the NVIDIA driver is busy with something else")]
    Late,
}

/// Keeps the driver library released while this value exists. Dropping it opens and reads the library again.
#[derive(Debug)]
#[must_use = "the library is opened again when this is dropped"]
pub struct Released(Sender<Message>);

impl Released {
    /// Opens and reads the library again, which notifies [`super::Handle::hints`].
    pub fn resume(self) {
        drop(self);
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let _ended_already = self.0.send(Message::Resume);
    }
}

/// A unit of work with the driver, or with the reason why it is not available.
pub(super) type Job =
    Box<dyn FnOnce(Result<&mut (dyn GpuDriver + 'static), NoDriver>, &CallWatch) -> Ended + Send>;

/// The result of a unit of work.
pub(super) struct Ended {
    /// Every device that the work changed, read after its last change; `None` if any is missing.
    pub(super) read: Option<Vec<Device>>,
    /// Sends the result to the requester.
    pub(super) reply: Box<dyn FnOnce()>,
}

/// The current user of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Claim {
    /// Observations and readings.
    #[default]
    Readings,
    /// A unit of work; observations wait.
    Work,
    /// Another program; nothing is read.
    Nobody,
}

/// Progress of releasing the library.
#[derive(Debug)]
pub(super) enum Release {
    /// It is not being released.
    No,
    /// The events thread still uses it.
    Waiting(oneshot::Sender<Result<Released, NoDriver>>),
    /// It is released.
    Done,
}

impl Shared {
    fn set_claim(&self, claim: Claim) {
        self.pulse.send_modify(|pulse| pulse.claim = claim);
    }
}

impl Worker {
    /// Runs the work, reads the devices that it may have changed unless the work has done so, and then replies.
    pub(super) fn work(&mut self, job: Job) {
        let shared = Arc::clone(&self.shared);
        if self.observation.is_none() {
            // A driver has no devices before its first observation.
            self.observe();
        }
        let lacking = self.lacking();
        let ended = match (lacking, self.driver.as_deref_mut()) {
            (None, Some(driver)) => {
                shared.set_claim(Claim::Work);
                let ended = job(Ok(driver), &shared.calls);
                if !ended.read.as_deref().is_some_and(|read| self.take_in(read)) {
                    self.observe();
                }
                self.publish();
                shared.set_claim(Claim::Readings);
                shared.say_news();
                ended
            }
            (None, None) => job(Err(NoDriver::Loading), &shared.calls),
            (Some(reason), _) => job(Err(reason), &shared.calls),
        };
        (ended.reply)();
    }

    /// Takes readings. They are not an observation, so nothing is published and no listener is notified.
    pub(super) fn readings(&mut self, asker: oneshot::Sender<Result<Vec<Reading>, Unread>>) {
        // The requester has given up.
        if asker.is_closed() {
            return;
        }
        let lacking = self.lacking();
        let answer = match (lacking, &mut self.driver, &self.observation) {
            (None, Some(driver), Some(observation)) => driver
                .readings(&observation.devices, &self.shared.calls)
                .map_err(Unread::Refused),
            (Some(reason), ..) => Err(reason.into()),
            (None, ..) => Err(NoDriver::Loading.into()),
        };
        let _gone = asker.send(answer);
    }

    /// Updates the last observation with these devices. Returns whether all of them are in it.
    fn take_in(&mut self, read: &[Device]) -> bool {
        let Some(observation) = &mut self.observation else {
            return false;
        };
        read.iter().all(|device| {
            let mut known = observation.devices.iter_mut();
            let known = known.find(|known| known.pci == device.pci);
            known.map(|known| known.clone_from(device)).is_some()
        })
    }

    fn lacking(&self) -> Option<NoDriver> {
        if self.is_released() {
            return Some(NoDriver::Released);
        }
        match &self.link {
            State::Ready { .. } => None,
            State::Loading { .. } => Some(NoDriver::Loading),
            State::Absent { reason, past, .. } => {
                let reason = reason.clone();
                Some(match past {
                    Past::NeverReady => NoDriver::Absent { reason },
                    Past::WasReady => NoDriver::Lost { reason },
                })
            }
        }
    }

    pub(super) fn is_released(&self) -> bool {
        !matches!(self.release, Release::No)
    }

    pub(super) fn release(&mut self, asker: oneshot::Sender<Result<Released, NoDriver>>) {
        if self.is_released() {
            let _gone = asker.send(Err(NoDriver::Released));
            return;
        }
        self.release = Release::Waiting(asker);
        self.shared.set_claim(Claim::Nobody);
        self.feed(Event::LetGo);
        self.due = Some(Instant::now() + self.shared.calls.deadline());
        self.confirm_release();
    }

    /// Replies that the library is released, as soon as it is.
    pub(super) fn confirm_release(&mut self) {
        if matches!(self.events, Events::Listening { .. }) {
            return;
        }
        if let Release::Waiting(asker) = std::mem::replace(&mut self.release, Release::Done) {
            self.due = None;
            // If the requester is gone, the value is dropped here, which ends the release.
            let _resumes = asker.send(Ok(Released(self.outbox.clone())));
        }
    }

    /// Handles the timer: the events thread exceeded its time to release the library, or the driver search is due.
    pub(super) fn due(&mut self) {
        match std::mem::replace(&mut self.release, Release::No) {
            Release::No => self.feed(Event::Due),
            Release::Waiting(asker) => {
                self.release = Release::Done;
                self.resume();
                let _gone = asker.send(Err(NoDriver::Held));
            }
            Release::Done => self.release = Release::Done,
        }
    }

    /// Opens and reads the library again. Publishes nothing before it is read, so that the node never appears without
    /// devices.
    pub(super) fn resume(&mut self) {
        if !self.is_released() {
            return;
        }
        self.due = None;
        self.feed(Event::Due);
        self.observe();
        self.release = Release::No;
        self.publish();
        self.shared.set_claim(Claim::Readings);
        self.shared.say_news();
    }
}
