//! The thread that owns the driver.
//!
//! ```text
//!   DriverHandle --Observe--> inbox --> [ thread "nvml" ] --> latest inventory, state
//!                               ^          | owns GpuDriver, drives driver_link
//!                               |          v
//!                               +-Ended- [ thread "nvml-events" ] --> state
//! ```
//!
//! Only the first thread reads devices, and changes run as work on that thread, so reads and changes never overlap. The
//! second thread waits for events, which blocks for seconds at a time. It notifies listeners without the first thread,
//! so it does so even while that one hangs. A library is opened again only after both threads have released it;
//! otherwise the dynamic loader would return the old one.

mod events;
mod exclusive;
mod handle;
mod xids;

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use octavo_model::accelerators::{TypeOverride, identify_devices};
use octavo_model::driver_link::{DriverState, Effect, Event, LinkHistory};
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::reading::Reading;
use octavo_model::xid::Xid;
use octavo_toolkit::error::chain;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::calls::CallRecord;
use crate::error::{DriverError, Remedy};
use crate::merge::merge;
use crate::neuron::NeuronReader;
use crate::pci::Bus;
use crate::sysfs::Sysfs;
use crate::{DriverLoader, GpuDriver, Observation, Settings};
use events::EventsThreadState;
pub use exclusive::{DriverReleaseGuard, DriverUnavailable, ReadingsError};
use exclusive::{DriverUser, Job, ReleaseState};
pub use handle::{ChangeNotifications, DriverHandle};
use xids::XidBuffer;

/// A message to the driver thread.
enum Message {
    /// Observe the devices and reply.
    Observe(oneshot::Sender<Arc<Inventory>>),
    /// Run a unit of work with the driver.
    Work(Job),
    /// Take readings of the devices of the last observation.
    Readings(oneshot::Sender<Result<Vec<Reading>, ReadingsError>>),
    /// Release the library and reply when neither thread uses it.
    Release(oneshot::Sender<Result<DriverReleaseGuard, DriverUnavailable>>),
    /// Open the library again.
    Resume,
    /// The events thread of driver instance `driver_generation` has released the library.
    EventsEnded { driver_generation: u64, error: Option<DriverError> },
    /// The time to search for the driver has come.
    TimerElapsed,
    /// All handles were dropped.
    Stop,
}

/// State of the driver thread, published to listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct WorkerState {
    /// Incremented when a new observation is needed.
    changes: u64,
    /// Driver calls are being made, so one may stall.
    is_busy: bool,
    /// The current user of the driver.
    driver_user: DriverUser,
}

/// State shared by the threads and the handles.
#[derive(Debug)]
struct Shared {
    calls: CallRecord,
    latest: watch::Sender<Arc<Inventory>>,
    state: watch::Sender<WorkerState>,
    xids: Mutex<XidBuffer>,
    type_override: Mutex<Option<Arc<TypeOverride>>>,
}

impl Shared {
    /// Stores the Xids before it notifies, so that a listener finds them.
    fn publish_xids(&self, xids: &[Xid]) {
        self.xids().record(xids);
        self.notify_change();
    }

    fn xids(&self) -> MutexGuard<'_, XidBuffer> {
        // Every step leaves the data consistent, so it is valid even after a panic.
        self.xids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_type_override(&self) -> MutexGuard<'_, Option<Arc<TypeOverride>>> {
        // The lock only guards single assignments.
        self.type_override.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_change(&self) {
        self.state.send_modify(|state| state.changes = state.changes.wrapping_add(1));
    }
}

/// Starts the thread. It ends after the last [`DriverHandle`] is dropped, unless a driver call hangs.
pub fn spawn(loader: Box<dyn DriverLoader>, settings: &Settings) -> io::Result<DriverHandle> {
    let (outbox, inbox) = mpsc::channel();
    let first = Inventory::default();
    let shared = Arc::new(Shared {
        calls: CallRecord::new(settings.call_deadline),
        latest: watch::Sender::new(Arc::new(first)),
        state: watch::Sender::new(WorkerState::default()),
        xids: Mutex::default(),
        type_override: Mutex::default(),
    });
    let sys = Sysfs::new(settings.sys_root.clone());
    let worker = Worker {
        loader,
        neuron: NeuronReader::new(sys.clone(), settings.neuron_logical_config.clone()),
        bus: Bus::new(sys),
        shared: Arc::clone(&shared),
        self_sender: outbox.clone(),
        link: DriverState::start().0,
        next_search: None,
        candidates: Vec::new(),
        driver: None,
        observation: None,
        driver_generation: 0,
        events: EventsThreadState::None,
        release: ReleaseState::NotReleased,
    };
    thread::Builder::new().name("nvml".to_owned()).spawn(move || worker.run(&inbox))?;
    Ok(DriverHandle::new(shared, outbox))
}

struct Worker {
    loader: Box<dyn DriverLoader>,
    bus: Bus,
    neuron: NeuronReader,
    shared: Arc<Shared>,
    self_sender: mpsc::Sender<Message>,
    link: DriverState,
    /// When to search for the driver again.
    next_search: Option<Instant>,
    candidates: Vec<PathBuf>,
    driver: Option<Box<dyn GpuDriver>>,
    observation: Option<Observation>,
    /// Number of drivers opened so far; identifies late messages about an earlier one.
    driver_generation: u64,
    events: EventsThreadState,
    release: ReleaseState,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Message>) {
        self.publish();
        self.mark_busy();
        let (link, effects) = DriverState::start();
        self.link = link;
        self.perform(effects);
        self.publish();
        self.mark_idle();
        while let Some(message) = self.next(inbox) {
            self.mark_busy();
            match message {
                Message::Observe(requester) => self.observe_and_reply(requester, inbox),
                Message::Work(job) => self.work(job),
                Message::Readings(requester) => self.readings(requester),
                Message::Release(requester) => self.release(requester),
                Message::Resume => self.resume(),
                Message::EventsEnded { driver_generation, error } => {
                    self.events_ended(driver_generation, error);
                }
                Message::TimerElapsed => self.on_timer(),
                Message::Stop => break,
            }
            self.mark_idle();
        }
        self.unload();
    }

    /// Marks the start of work in which a driver call may stall.
    fn mark_busy(&self) {
        self.shared.state.send_modify(|state| state.is_busy = true);
    }

    /// Marks the end of what [`Self::mark_busy`] started. Notifies listeners if a call stalled and returned meanwhile.
    fn mark_idle(&self) {
        self.shared.state.send_modify(|state| {
            state.is_busy = false;
            if self.shared.calls.take_overran() {
                state.changes = state.changes.wrapping_add(1);
            }
        });
    }

    /// Returns the next message; `None` when all senders are gone.
    fn next(&mut self, inbox: &Receiver<Message>) -> Option<Message> {
        let Some(due) = self.next_search else {
            return inbox.recv().ok();
        };
        match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => {
                self.next_search = None;
                Some(Message::TimerElapsed)
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Observes once for all requests received before the observation starts.
    fn observe_and_reply(
        &mut self,
        requester: oneshot::Sender<Arc<Inventory>>,
        inbox: &Receiver<Message>,
    ) {
        let mut requesters = vec![requester];
        let mut others = Vec::new();
        for message in inbox.try_iter() {
            match message {
                Message::Observe(requester) => requesters.push(requester),
                other @ (Message::Work(_)
                | Message::Readings(_)
                | Message::Release(_)
                | Message::Resume
                | Message::EventsEnded { .. }
                | Message::TimerElapsed
                | Message::Stop) => others.push(other),
            }
        }
        self.observe();
        let inventory = self.publish();
        for requester in requesters {
            // A requester that timed out has used the latest inventory instead.
            let _gone = requester.send(Arc::clone(&inventory));
        }
        for other in others {
            let _ours_and_open = self.self_sender.send(other);
        }
    }

    fn observe(&mut self) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        match driver.observe(&self.shared.calls) {
            Ok(observation) => {
                self.observation = Some(observation);
                self.apply_link_event(Event::Answered);
                self.start_events_thread();
            }
            // The previous observation is still the best available.
            Err(error) if error.remedy() == Remedy::Retry && self.observation.is_some() => {}
            Err(error) => self.apply_link_event(Event::Lost(error.to_string())),
        }
    }

    /// Applies an event to the link's state machine and performs the resulting effects.
    fn apply_link_event(&mut self, event: Event) {
        let was_ready = matches!(self.link, DriverState::Ready { .. });
        let link = std::mem::replace(&mut self.link, DriverState::start().0);
        let (link, effects) = link.step(event);
        self.link = link;
        self.perform(effects);
        let is_ready = matches!(self.link, DriverState::Ready { .. });
        if was_ready != is_ready && !self.is_released() {
            self.publish();
            self.shared.notify_change();
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Search => self.search(),
                Effect::Initialize => self.initialize(),
                Effect::Unload => self.unload(),
                Effect::WakeAfter(wait) => self.next_search = Some(Instant::now() + wait),
            }
        }
    }

    fn search(&mut self) {
        // The search continues once the events thread has released the library.
        if matches!(self.events, EventsThreadState::Listening { .. }) {
            return;
        }
        match self.loader.find() {
            Ok(found) => {
                self.candidates = found;
                self.apply_link_event(Event::Found);
            }
            Err(error) => self.apply_link_event(Event::Failed(chain(&error))),
        }
    }

    /// Tries the found files in turn until one is NVML: a library of another architecture may be next to the right one.
    fn initialize(&mut self) {
        self.publish();
        let mut reasons = Vec::new();
        let mut opened = None;
        for path in std::mem::take(&mut self.candidates) {
            match self.loader.open(&path, &self.shared.calls) {
                Ok(driver) => {
                    opened = Some(driver);
                    break;
                }
                Err(error) => {
                    reasons.push(chain(&error));
                    if !error.is_file_error() {
                        break;
                    }
                }
            }
        }
        if let Some(driver) = opened {
            self.driver = Some(driver);
            self.driver_generation = self.driver_generation.wrapping_add(1);
            self.apply_link_event(Event::Initialized);
        } else {
            self.apply_link_event(Event::Failed(reasons.join("; ")));
        }
    }

    fn unload(&mut self) {
        self.observation = None;
        if let EventsThreadState::Listening { thread } = &self.events {
            thread.stop();
        } else {
            self.events = EventsThreadState::None;
        }
        let driver = self.driver.take();
        let calls = &self.shared.calls;
        calls.record("nvmlShutdown", None, || drop(driver));
    }

    /// Publishes the current inventory. While the library is released, the previous inventory stays.
    fn publish(&mut self) -> Arc<Inventory> {
        if self.is_released() {
            return Arc::clone(&self.shared.latest.borrow());
        }
        // Recorded like a driver call: reading a file of a failing device may not return either.
        let (bus, neuron) = (&mut self.bus, &mut self.neuron);
        let (functions, machine, neuron) =
            self.shared.calls.record(NvmlState::READING_SYS, None, || {
                let functions = bus.scan();
                let machine = bus.machine(&functions);
                let neuron = neuron.read(&functions);
                (functions, machine, neuron)
            });
        let mut inventory = Inventory {
            neuron,
            ..merge(machine, &functions, self.nvml(), self.observation.as_ref())
        };
        let type_override = self.shared.lock_type_override().clone();
        identify_devices(&mut inventory, type_override.as_deref());
        let inventory = Arc::new(inventory);
        self.shared.latest.send_replace(Arc::clone(&inventory));
        inventory
    }

    fn nvml(&self) -> NvmlState {
        match (&self.link, &self.observation) {
            (DriverState::Ready { .. }, Some(observation)) => {
                NvmlState::Ready(observation.driver.clone())
            }
            (DriverState::Ready { .. } | DriverState::Loading { .. }, _) => NvmlState::Loading,
            (DriverState::Absent { reason, past, .. }, _) => {
                let reason = reason.clone();
                match past {
                    LinkHistory::NeverReady => NvmlState::Absent { reason },
                    LinkHistory::WasReady => NvmlState::Lost { reason },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
