//! What callers hold: it answers whatever the driver does.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{self, Instant};

use super::claim::{Claim, Ended, Job, NoDriver, Released, Unread};
use super::{Message, Pulse, Shared};
use crate::domain::accelerators::Given;
use crate::domain::inventory::{Device, Inventory, NvmlState};
use crate::domain::reading::Reading;
use crate::domain::sharing::health::Xid;
use crate::hw::GpuDriver;
use crate::hw::calls::{CallWatch, InFlight};
use crate::hw::merge;

/// Access to the thread that owns the driver. Cheap to clone; the thread ends with the last clone.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    /// How many errors of devices had been heard when this handle took what there was.
    taken: AtomicU64,
}

/// Each clone takes the errors of devices for itself, from where the one that it is a clone of stands.
impl Clone for Handle {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            inbox: Arc::clone(&self.inbox),
            taken: AtomicU64::new(self.taken.load(Ordering::Relaxed)),
        }
    }
}

/// The way to the thread, which is told when nobody is left.
#[derive(Debug)]
struct Inbox(Sender<Message>);

impl Drop for Inbox {
    fn drop(&mut self) {
        let _ended_already = self.0.send(Message::Stop);
    }
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, inbox: Sender<Message>) -> Self {
        Self {
            shared,
            inbox: Arc::new(Inbox(inbox)),
            taken: AtomicU64::new(0),
        }
    }

    /// Reads the hardware.
    ///
    /// The reading began after this was called, with three exceptions, in which the answer is what was read last. When a
    /// driver call does not return within its deadline, it is marked [`NvmlState::Stalled`]; while a call is stalled it
    /// comes at once and leaves no request behind. When a piece of work takes longer than that deadline, no call of which
    /// stalls. And at once while the driver is released. It never fails.
    pub async fn observe(&self) -> Arc<Inventory> {
        let calls = &self.shared.calls;
        let began = Instant::now();
        if let Some(call) = calls.stalled() {
            return self.stalled(call);
        }
        if self.claim() == Claim::Nobody {
            return self.latest();
        }
        let (asker, mut answer) = oneshot::channel();
        if self.inbox.0.send(Message::Observe(asker)).is_err() {
            return self.abandoned();
        }
        loop {
            let mut patience = calls.patience();
            if self.claim() == Claim::Work {
                patience = patience.min(calls.deadline().saturating_sub(began.elapsed()));
            }
            match time::timeout(patience, &mut answer).await {
                Ok(Ok(inventory)) => return inventory,
                Ok(Err(_)) => return self.abandoned(),
                Err(_) => {
                    let behind_work = self.claim() == Claim::Work;
                    if let Some(call) = calls.stalled() {
                        return self.stalled(call);
                    } else if behind_work && began.elapsed() >= calls.deadline() {
                        return self.latest();
                    }
                }
            }
        }
    }

    /// What devices are called from now on that nobody knows, those that were read last among them.
    pub fn call_unknown(&self, given: Option<Arc<Given>>) {
        let naming = {
            let mut naming = self.shared.lock_naming();
            naming.given = given;
            naming.clone()
        };
        self.shared.latest.send_if_modified(|latest| {
            let mut inventory = Inventory::clone(latest);
            naming.apply(&mut inventory);
            let differs = **latest != inventory;
            if differs {
                *latest = Arc::new(inventory);
            }
            differs
        });
    }

    /// Does `work` with the driver, on its thread and between two readings; then reads the devices anew, which is news.
    ///
    /// It begins when this is first polled, and is done to its end even when this is dropped then. A driver call that does
    /// not return holds it up, and [`Self::observe`] says so.
    ///
    /// # Errors
    ///
    /// There is no driver to work with: nothing was done.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn GpuDriver, &CallWatch) -> T + Send + 'static,
    ) -> Result<T, NoDriver> {
        self.work_and_read(|driver, calls| (work(driver, calls), None))
            .await
    }

    /// The same for work that reads what it changes: every device that it changed, as it was read after its last change.
    /// These then need not be read once more; where it is `None`, all are.
    pub async fn work_and_read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn GpuDriver, &CallWatch) -> (T, Option<Vec<Device>>) + Send + 'static,
    ) -> Result<T, NoDriver> {
        let (asker, answer) = oneshot::channel();
        let job: Job = Box::new(move |driver, calls| {
            let (done, read) = match driver.map(|driver| work(driver, calls)) {
                Ok((done, read)) => (Ok(done), read),
                Err(error) => (Err(error), None),
            };
            Ended {
                read,
                reply: Box::new(move || {
                    let _gone = asker.send(done);
                }),
            }
        });
        self.ask(Message::Work(job), answer).await
    }

    /// Reads what changes from moment to moment, of the devices that were read last; it is news to nobody. One that does not
    /// answer is left out.
    ///
    /// # Errors
    ///
    /// There is no driver, it does not answer, or not within the deadline of a call. Then no question is left behind.
    pub async fn readings(&self) -> Result<Vec<Reading>, Unread> {
        let calls = &self.shared.calls;
        if calls.stalled().is_some() || self.claim() != Claim::Readings {
            return Err(Unread::Late);
        }
        let (asker, answer) = oneshot::channel();
        let question = self.ask(Message::Readings(asker), answer);
        time::timeout(calls.deadline(), question)
            .await
            .unwrap_or(Err(Unread::Late))
    }

    /// Lets go of the driver's library, and keeps it closed until the answer is dropped: for another program to do what it
    /// cannot while this one has the driver open. Meanwhile [`Self::observe`] answers what was read last.
    ///
    /// It takes until a wait for events ends, some seconds.
    ///
    /// # Errors
    ///
    /// [`NoDriver::Held`] when that wait does not end within the deadline of a call, [`NoDriver::Released`] when it is let
    /// go of already. In both cases nothing stays closed for it.
    pub async fn release(&self) -> Result<Released, NoDriver> {
        let (asker, answer) = oneshot::channel();
        self.ask(Message::Release(asker), answer).await
    }

    async fn ask<T, E: From<NoDriver>>(
        &self,
        message: Message,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        match self.inbox.0.send(message) {
            Ok(()) => answer.await.unwrap_or(Err(NoDriver::Ended.into())),
            Err(_) => Err(NoDriver::Ended.into()),
        }
    }

    fn claim(&self) -> Claim {
        self.shared.pulse.borrow().claim
    }

    /// The errors that devices have reported since this handle was asked last, in the order in which each was last heard of. One
    /// that was reported many times is told once; [`Self::hints`] wakes when there are some.
    pub fn xids(&self) -> Vec<Xid> {
        let kept = self.shared.xids();
        let since = self.taken.swap(kept.heard(), Ordering::Relaxed);
        kept.since(since)
    }

    /// What was read last, without asking the hardware.
    pub fn latest(&self) -> Arc<Inventory> {
        match self.shared.calls.stalled() {
            Some(call) => self.stalled(call),
            None => Arc::clone(&self.shared.latest.borrow()),
        }
    }

    /// The driver call that has been running for at least this long; of several the oldest.
    pub fn unanswered(&self, least: Duration) -> Option<&'static str> {
        let call = self.shared.calls.running(least)?;
        Some(call.function)
    }

    /// Tells when the hardware is worth another look.
    pub fn hints(&self) -> Hints {
        let mut pulses = self.shared.pulse.subscribe();
        let news = pulses.borrow_and_update().news;
        Hints {
            pulses,
            calls: self.shared.calls.clone(),
            news,
            stall: None,
        }
    }

    fn stalled(&self, call: InFlight) -> Arc<Inventory> {
        let latest = Arc::clone(&self.shared.latest.borrow());
        Arc::new(merge::stalled(&latest, call))
    }

    /// The thread is gone, which no path of it leads to.
    fn abandoned(&self) -> Arc<Inventory> {
        let mut inventory = Inventory::clone(&self.shared.latest.borrow());
        inventory.nvml = NvmlState::Lost {
            reason: "the thread that talks to NVML has ended".to_owned(),
        };
        Arc::new(inventory)
    }
}

/// Wakes when the hardware said something: an error or a changed partition, a driver that came or went, a call that
/// stalls, and one that returned after all.
#[derive(Debug)]
pub struct Hints {
    pulses: watch::Receiver<Pulse>,
    calls: CallWatch,
    news: u64,
    /// The stalled call that was told already.
    stall: Option<u64>,
}

impl Hints {
    /// Returns when the hardware is worth another look; several reasons at once are one. Safe to drop and call again.
    pub async fn changed(&mut self) {
        loop {
            let pulse = *self.pulses.borrow_and_update();
            if pulse.news != self.news {
                self.news = pulse.news;
                return;
            }
            let stalled = self.calls.stalled();
            if let Some(call) = stalled.filter(|call| Some(call.serial) != self.stall) {
                self.stall = Some(call.serial);
                return;
            }
            let may_stall = pulse.busy && stalled.is_none();
            let patience = self.calls.patience();
            tokio::select! {
                changed = self.pulses.changed() => {
                    if changed.is_err() {
                        // The thread is gone, and with it all news.
                        pending::<()>().await;
                    }
                }
                () = time::sleep(patience), if may_stall => {}
            }
        }
    }
}
