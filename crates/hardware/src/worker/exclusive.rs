//! Exclusive use of the driver: work on the driver thread, and release for another program.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use octavo_model::driver_link::{DriverState, Event, LinkHistory};
use octavo_model::inventory::Device;
use octavo_model::reading::Reading;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::events::EventsThreadState;
use super::{Message, Shared, Worker};
use crate::GpuDriver;
use crate::calls::CallRecord;
use crate::error::DriverError;

/// Reason why the driver is not available.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DriverUnavailable {
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
    #[error("the NVIDIA driver library is released for another program")]
    Released,
    /// It could not be released, because a wait for its events did not return in time.
    #[error("cannot release the NVIDIA driver library: a wait for its events does not return")]
    ReleaseTimedOut,
    /// The program is shutting down.
    #[error("the NVML thread has exited")]
    WorkerEnded,
}

/// Reason why there are no readings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadingsError {
    /// The driver is not available.
    #[error(transparent)]
    NoDriver(#[from] DriverUnavailable),
    /// The driver as a whole failed.
    #[error("the NVIDIA driver does not respond")]
    Refused(#[source] DriverError),
    /// No response within the call deadline: the thread is busy, or a call hangs.
    #[error("the NVIDIA driver is busy with another call")]
    TimedOut,
}

/// Keeps the driver library released while this value exists. Dropping it opens and reads the library again, which
/// notifies [`super::DriverHandle::changes`].
#[derive(Debug)]
#[must_use = "the library is opened again when this is dropped"]
pub struct DriverReleaseGuard(Sender<Message>);

impl Drop for DriverReleaseGuard {
    fn drop(&mut self) {
        let _ended_already = self.0.send(Message::Resume);
    }
}

/// A unit of work with the driver, or with the reason why it is not available.
pub(super) type Job = Box<
    dyn FnOnce(Result<&mut (dyn GpuDriver + 'static), DriverUnavailable>, &CallRecord) -> JobResult
        + Send,
>;

/// The result of a unit of work.
pub(super) struct JobResult {
    /// Every device that the work changed, read after its last change; `None` if any is missing.
    pub(super) read: Option<Vec<Device>>,
    /// Sends the result to the requester.
    pub(super) reply: Box<dyn FnOnce()>,
}

/// The current user of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum DriverUser {
    /// Observations and readings.
    #[default]
    Observation,
    /// A unit of work; observations wait.
    Work,
    /// Another program; nothing is read.
    OtherProgram,
}

/// Progress of releasing the library.
#[derive(Debug)]
pub(super) enum ReleaseState {
    /// It is not being released.
    NotReleased,
    /// The events thread still uses it.
    Waiting(oneshot::Sender<Result<DriverReleaseGuard, DriverUnavailable>>),
    /// It is released.
    Done,
}

impl Shared {
    fn set_driver_user(&self, claim: DriverUser) {
        self.state.send_modify(|state| state.driver_user = claim);
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
        let lacking = self.unavailable_reason();
        let ended = match (lacking, self.driver.as_deref_mut()) {
            (None, Some(driver)) => {
                shared.set_driver_user(DriverUser::Work);
                let ended = job(Ok(driver), &shared.calls);
                if !ended.read.as_deref().is_some_and(|read| self.update_observation(read)) {
                    self.observe();
                }
                self.publish();
                shared.set_driver_user(DriverUser::Observation);
                shared.notify_change();
                ended
            }
            (None, None) => job(Err(DriverUnavailable::Loading), &shared.calls),
            (Some(reason), _) => job(Err(reason), &shared.calls),
        };
        (ended.reply)();
    }

    /// Takes readings. They are not an observation, so nothing is published and no listener is notified.
    pub(super) fn readings(
        &mut self,
        requester: oneshot::Sender<Result<Vec<Reading>, ReadingsError>>,
    ) {
        // The requester has given up.
        if requester.is_closed() {
            return;
        }
        let lacking = self.unavailable_reason();
        let result = match (lacking, &mut self.driver, &self.observation) {
            (None, Some(driver), Some(observation)) => driver
                .readings(&observation.devices, &self.shared.calls)
                .map_err(ReadingsError::Refused),
            (Some(reason), ..) => Err(reason.into()),
            (None, ..) => Err(DriverUnavailable::Loading.into()),
        };
        let _gone = requester.send(result);
    }

    /// Updates the last observation with these devices. Returns whether all of them are in it.
    fn update_observation(&mut self, read: &[Device]) -> bool {
        let Some(observation) = &mut self.observation else {
            return false;
        };
        read.iter().all(|device| {
            let mut known = observation.devices.iter_mut();
            let known = known.find(|known| known.pci == device.pci);
            known.map(|known| known.clone_from(device)).is_some()
        })
    }

    fn unavailable_reason(&self) -> Option<DriverUnavailable> {
        if self.is_released() {
            return Some(DriverUnavailable::Released);
        }
        match &self.link {
            DriverState::Ready { .. } => None,
            DriverState::Loading { .. } => Some(DriverUnavailable::Loading),
            DriverState::Absent { reason, past, .. } => {
                let reason = reason.clone();
                Some(match past {
                    LinkHistory::NeverReady => DriverUnavailable::Absent { reason },
                    LinkHistory::WasReady => DriverUnavailable::Lost { reason },
                })
            }
        }
    }

    pub(super) fn is_released(&self) -> bool {
        !matches!(self.release, ReleaseState::NotReleased)
    }

    pub(super) fn release(
        &mut self,
        requester: oneshot::Sender<Result<DriverReleaseGuard, DriverUnavailable>>,
    ) {
        if self.is_released() {
            let _gone = requester.send(Err(DriverUnavailable::Released));
            return;
        }
        self.release = ReleaseState::Waiting(requester);
        self.shared.set_driver_user(DriverUser::OtherProgram);
        self.apply_link_event(Event::Release);
        self.next_search = Some(Instant::now() + self.shared.calls.deadline());
        self.confirm_release();
    }

    /// Replies that the library is released, as soon as it is.
    pub(super) fn confirm_release(&mut self) {
        if matches!(self.events, EventsThreadState::Listening { .. }) {
            return;
        }
        if let ReleaseState::Waiting(requester) =
            std::mem::replace(&mut self.release, ReleaseState::Done)
        {
            self.next_search = None;
            // If the requester is gone, the value is dropped here, which ends the release.
            let _resumes = requester.send(Ok(DriverReleaseGuard(self.self_sender.clone())));
        }
    }

    /// Handles the timer: the events thread exceeded its time to release the library, or the driver search is due.
    pub(super) fn on_timer(&mut self) {
        match std::mem::replace(&mut self.release, ReleaseState::NotReleased) {
            ReleaseState::NotReleased => self.apply_link_event(Event::TimerElapsed),
            ReleaseState::Waiting(requester) => {
                self.release = ReleaseState::Done;
                self.resume();
                let _gone = requester.send(Err(DriverUnavailable::ReleaseTimedOut));
            }
            ReleaseState::Done => self.release = ReleaseState::Done,
        }
    }

    /// Opens and reads the library again. Publishes nothing before it is read, so that the node never appears without
    /// devices.
    pub(super) fn resume(&mut self) {
        if !self.is_released() {
            return;
        }
        self.next_search = None;
        self.apply_link_event(Event::TimerElapsed);
        self.observe();
        self.release = ReleaseState::NotReleased;
        self.publish();
        self.shared.set_driver_user(DriverUser::Observation);
        self.shared.notify_change();
    }
}
