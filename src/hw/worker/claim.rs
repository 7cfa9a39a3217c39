//! Those who have the driver for a while instead of readings: a piece of work, and another program.

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

/// Why nothing can be done with the driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoDriver {
    /// There is none, and never was.
    #[error("there is no NVIDIA driver: {reason}")]
    Absent {
        /// Why, in words for a person.
        reason: String,
    },
    /// It is being started.
    #[error("the NVIDIA driver is being loaded")]
    Loading,
    /// It went away.
    #[error("the NVIDIA driver is lost: {reason}")]
    Lost {
        /// Why, in words for a person.
        reason: String,
    },
    /// It was let go of, for somebody else.
    #[error("the NVIDIA driver is let go of for another program")]
    Released,
    /// It could not be let go of: who waits for its events does not return in time.
    #[error("the NVIDIA driver cannot be let go of: a wait for its events does not return")]
    Held,
    /// The program ends.
    #[error("the thread that talks to NVML has ended")]
    Ended,
}

/// Why there are no readings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unread {
    /// There is nobody to ask.
    #[error(transparent)]
    NoDriver(#[from] NoDriver),
    /// The driver as a whole does not answer.
    #[error("the NVIDIA driver does not answer")]
    Refused(#[source] DriverError),
    /// No answer within the deadline of a call: the thread is busy with something else, or a call hangs.
    #[error("the NVIDIA driver is busy with something else")]
    Late,
}

/// The driver's library is let go of for as long as this lives; then it is opened and read again.
#[derive(Debug)]
#[must_use = "the library is opened again when this is dropped"]
pub struct Released(Sender<Message>);

impl Released {
    /// Has the library opened and read again, which [`super::Handle::hints`] tells.
    pub fn resume(self) {
        drop(self);
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let _ended_already = self.0.send(Message::Resume);
    }
}

/// What is done with the driver, or with the reason why there is none.
pub(super) type Job =
    Box<dyn FnOnce(Result<&mut (dyn GpuDriver + 'static), NoDriver>, &CallWatch) -> Ended + Send>;

/// The end of a piece of work.
pub(super) struct Ended {
    /// Every device that the work changed, as it was read after its last change; `None` where that is not all.
    pub(super) read: Option<Vec<Device>>,
    /// Tells who asked for it.
    pub(super) reply: Box<dyn FnOnce()>,
}

/// Who has the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Claim {
    /// Readings.
    #[default]
    Readings,
    /// A piece of work; readings wait.
    Work,
    /// Not this program; nothing is read.
    Nobody,
}

/// How far the library is let go of.
#[derive(Debug)]
pub(super) enum Release {
    /// It is not.
    No,
    /// The events thread still has it.
    Waiting(oneshot::Sender<Result<Released, NoDriver>>),
    /// It is.
    Done,
}

impl Shared {
    fn set_claim(&self, claim: Claim) {
        self.pulse.send_modify(|pulse| pulse.claim = claim);
    }
}

impl Worker {
    /// Does the work, reads the devices that it may have changed unless it has done so, and only then tells who asked for it.
    pub(super) fn work(&mut self, job: Job) {
        let shared = Arc::clone(&self.shared);
        if self.observation.is_none() {
            // A driver knows no devices before it has read them.
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

    /// Has the driver say what changes from moment to moment. That is no reading of the devices, so nothing is published by it
    /// and nobody is woken.
    pub(super) fn readings(&mut self, asker: oneshot::Sender<Result<Vec<Reading>, Unread>>) {
        // Who gave up waiting is not worth a question.
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

    /// Puts devices that were read into what was read last; whether all of them are in there.
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

    /// Says that the library is let go of, once it is.
    pub(super) fn confirm_release(&mut self) {
        if matches!(self.events, Events::Listening { .. }) {
            return;
        }
        if let Release::Waiting(asker) = std::mem::replace(&mut self.release, Release::Done) {
            self.due = None;
            // Nobody waits for it any more: then it is dropped here, which ends the release.
            let _resumes = asker.send(Ok(Released(self.outbox.clone())));
        }
    }

    /// The time is up, for the events thread to let go or to look for the driver.
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

    /// Opens and reads the library again. Nothing is shown before it is read, so that nobody sees a node without devices.
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
