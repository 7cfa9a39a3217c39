//! The handle of the driver thread, which responds even if the driver hangs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use octavo_model::accelerators::{TypeOverride, identify_devices};
use octavo_model::inventory::{Device, Inventory, NvmlState};
use octavo_model::reading::Reading;
use octavo_model::xid::Xid;
use tokio::sync::{oneshot, watch};
use tokio::time::{self, Instant};

use super::exclusive::{
    DriverReleaseGuard, DriverUnavailable, DriverUser, Job, JobResult, ReadingsError,
};
use super::{Message, Shared, WorkerState};
use crate::calls::{CallRecord, RunningCall};
use crate::{GpuDriver, merge};

/// Access to the thread that owns the driver. Cheap to clone; the thread ends with the last clone.
#[derive(Debug)]
pub struct DriverHandle {
    shared: Arc<Shared>,
    inbox: Arc<WorkerSender>,
    /// Total number of Xids received when this handle last took them.
    xids_taken: AtomicU64,
}

/// Each clone takes Xids independently, starting from the position of the original.
impl Clone for DriverHandle {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            inbox: Arc::clone(&self.inbox),
            xids_taken: AtomicU64::new(self.xids_taken.load(Ordering::Relaxed)),
        }
    }
}

/// The sender to the thread. Dropping the last one stops the thread.
#[derive(Debug)]
struct WorkerSender(Sender<Message>);

impl Drop for WorkerSender {
    fn drop(&mut self) {
        let _ended_already = self.0.send(Message::Stop);
    }
}

impl DriverHandle {
    pub(super) fn new(shared: Arc<Shared>, inbox: Sender<Message>) -> Self {
        Self { shared, inbox: Arc::new(WorkerSender(inbox)), xids_taken: AtomicU64::new(0) }
    }

    /// Observes the hardware.
    ///
    /// The observation starts after this call, with three exceptions in which the last inventory is returned:
    /// - A driver call exceeds its deadline. The inventory is then marked [`NvmlState::Stalled`]. While a call is
    ///   stalled, this returns immediately and queues no request.
    /// - A unit of work takes longer than that deadline without a stalled call.
    /// - The driver is released. This returns immediately.
    ///
    /// This call never fails.
    pub async fn observe(&self) -> Arc<Inventory> {
        let calls = &self.shared.calls;
        let began = Instant::now();
        if let Some(call) = calls.stalled() {
            return self.stalled_inventory(call);
        }
        if self.driver_user() == DriverUser::OtherProgram {
            return self.latest();
        }
        let (sender, mut receiver) = oneshot::channel();
        if self.inbox.0.send(Message::Observe(sender)).is_err() {
            return self.worker_ended_inventory();
        }
        loop {
            let mut time_to_stall = calls.time_to_stall();
            if self.driver_user() == DriverUser::Work {
                time_to_stall = time_to_stall.min(calls.deadline().saturating_sub(began.elapsed()));
            }
            match time::timeout(time_to_stall, &mut receiver).await {
                Ok(Ok(inventory)) => return inventory,
                Ok(Err(_)) => return self.worker_ended_inventory(),
                Err(_) => {
                    let behind_work = self.driver_user() == DriverUser::Work;
                    if let Some(call) = calls.stalled() {
                        return self.stalled_inventory(call);
                    } else if behind_work && began.elapsed() >= calls.deadline() {
                        return self.latest();
                    }
                }
            }
        }
    }

    /// Sets the names of unknown devices, also in the last inventory.
    pub fn name_unknown_devices(&self, type_override: Option<Arc<TypeOverride>>) {
        let given = type_override.clone();
        *self.shared.lock_type_override() = type_override;
        self.shared.latest.send_if_modified(|latest| {
            let mut inventory = Inventory::clone(latest);
            identify_devices(&mut inventory, given.as_deref());
            let differs = **latest != inventory;
            if differs {
                *latest = Arc::new(inventory);
            }
            differs
        });
    }

    /// Runs `work` with the driver on its thread, between two observations. Then observes the devices again, which
    /// notifies listeners.
    ///
    /// The work is queued when the future is first polled and completes even if the future is dropped. It waits for a
    /// driver call that does not return, which [`Self::observe`] reports.
    ///
    /// # Errors
    ///
    /// Returns an error if no driver is available; nothing was done then.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn GpuDriver, &CallRecord) -> T + Send + 'static,
    ) -> Result<T, DriverUnavailable> {
        self.work_and_read(|driver, calls| (work(driver, calls), None)).await
    }

    /// Like [`Self::work`], for work that reads what it changes. It returns every changed device, read after its last
    /// change, and these devices are not read again. With `None`, all devices are read.
    pub async fn work_and_read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn GpuDriver, &CallRecord) -> (T, Option<Vec<Device>>) + Send + 'static,
    ) -> Result<T, DriverUnavailable> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |driver, calls| {
            let (done, read) = match driver.map(|driver| work(driver, calls)) {
                Ok((done, read)) => (Ok(done), read),
                Err(error) => (Err(error), None),
            };
            JobResult {
                read,
                reply: Box::new(move || {
                    let _gone = sender.send(done);
                }),
            }
        });
        self.ask(Message::Work(job), receiver).await
    }

    /// Takes readings of the devices of the last observation without notifying listeners. Omits devices that do not
    /// respond.
    ///
    /// # Errors
    ///
    /// Fails if there is no driver, if it fails, or if it does not respond within the call deadline. No request stays
    /// queued then.
    pub async fn readings(&self) -> Result<Vec<Reading>, ReadingsError> {
        let calls = &self.shared.calls;
        if calls.stalled().is_some() || self.driver_user() != DriverUser::Observation {
            return Err(ReadingsError::TimedOut);
        }
        let (sender, receiver) = oneshot::channel();
        let question = self.ask(Message::Readings(sender), receiver);
        time::timeout(calls.deadline(), question).await.unwrap_or(Err(ReadingsError::TimedOut))
    }

    /// Releases the driver library and keeps it closed until the returned value is dropped, so that another program can
    /// do what it cannot do while this one uses the driver. Meanwhile [`Self::observe`] returns the last inventory.
    ///
    /// This takes a few seconds, until a wait for events ends.
    ///
    /// # Errors
    ///
    /// Returns [`DriverUnavailable::ReleaseTimedOut`] if that wait does not end within the call deadline, and [`DriverUnavailable::Released`] if the
    /// library is already released. In both cases this call keeps nothing closed.
    pub async fn release(&self) -> Result<DriverReleaseGuard, DriverUnavailable> {
        let (sender, receiver) = oneshot::channel();
        self.ask(Message::Release(sender), receiver).await
    }

    async fn ask<T, E: From<DriverUnavailable>>(
        &self,
        message: Message,
        receiver: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        match self.inbox.0.send(message) {
            Ok(()) => receiver.await.unwrap_or(Err(DriverUnavailable::WorkerEnded.into())),
            Err(_) => Err(DriverUnavailable::WorkerEnded.into()),
        }
    }

    fn driver_user(&self) -> DriverUser {
        self.shared.state.borrow().driver_user
    }

    /// Returns the Xid errors reported since the last call on this handle, ordered by their latest occurrence. Repeated
    /// errors are returned once. [`Self::changes`] wakes when there are new ones.
    pub fn xids(&self) -> Vec<Xid> {
        let xids = self.shared.xids();
        let since = self.xids_taken.swap(xids.total(), Ordering::Relaxed);
        xids.since(since)
    }

    /// Returns the last inventory without a hardware access.
    pub fn latest(&self) -> Arc<Inventory> {
        match self.shared.calls.stalled() {
            Some(call) => self.stalled_inventory(call),
            None => Arc::clone(&self.shared.latest.borrow()),
        }
    }

    /// Returns the oldest driver call that has been running for at least `least`.
    pub fn long_running_call(&self, least: Duration) -> Option<&'static str> {
        let call = self.shared.calls.running_for(least)?;
        Some(call.function)
    }

    /// Returns a receiver of change notifications.
    pub fn changes(&self) -> ChangeNotifications {
        let mut states = self.shared.state.subscribe();
        let changes = states.borrow_and_update().changes;
        ChangeNotifications {
            states,
            calls: self.shared.calls.clone(),
            seen_changes: changes,
            reported_stall: None,
        }
    }

    fn stalled_inventory(&self, call: RunningCall) -> Arc<Inventory> {
        let latest = Arc::clone(&self.shared.latest.borrow());
        Arc::new(merge::stalled(&latest, call))
    }

    /// The thread has ended, which no code path should cause.
    fn worker_ended_inventory(&self) -> Arc<Inventory> {
        let mut inventory = Inventory::clone(&self.shared.latest.borrow());
        inventory.nvml = NvmlState::Lost { reason: "the NVML thread has exited".to_owned() };
        Arc::new(inventory)
    }
}

/// Wakes on hardware events: an Xid error, a changed partition, a driver that was loaded or lost, a call that stalls,
/// and a stalled call that returned.
#[derive(Debug)]
pub struct ChangeNotifications {
    states: watch::Receiver<WorkerState>,
    calls: CallRecord,
    seen_changes: u64,
    /// The stalled call that was already reported.
    reported_stall: Option<u64>,
}

impl ChangeNotifications {
    /// Waits until a new observation is needed. Coalesces multiple events. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            let state = *self.states.borrow_and_update();
            if state.changes != self.seen_changes {
                self.seen_changes = state.changes;
                return;
            }
            let stalled = self.calls.stalled();
            if let Some(call) = stalled.filter(|call| Some(call.serial) != self.reported_stall) {
                self.reported_stall = Some(call.serial);
                return;
            }
            let may_stall = state.is_busy && stalled.is_none();
            let time_to_stall = self.calls.time_to_stall();
            tokio::select! {
                changed = self.states.changed() => {
                    if changed.is_err() {
                        // The thread has ended, so there are no further events.
                        pending::<()>().await;
                    }
                }
                () = time::sleep(time_to_stall), if may_stall => {}
            }
        }
    }
}
