//! The thread that owns the driver.
//!
//! ```text
//!   Handle --Observe--> inbox --> [ thread "nvml" ] --> latest inventory, pulses
//!                         ^          | owns GpuDriver, drives domain::driver_link
//!                         |          v
//!                         +-Ended- [ thread "nvml-events" ] --> pulses
//! ```
//!
//! Only the first thread reads devices, and changes run as work on that thread, so reads and changes never overlap. The
//! second thread waits for events, which blocks for seconds at a time. It notifies listeners without the first thread,
//! so it does so even while that one hangs. A library is opened again only after both threads have released it;
//! otherwise the dynamic loader would return the old one.

mod claim;
mod events;
mod handle;
mod xids;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

pub use claim::{NoDriver, Released, Unread};
pub use handle::{Handle, Hints};

use crate::domain::accelerators::Naming;
use crate::domain::driver_link::{Effect, Event, Past, State};
use crate::domain::error::chain;
use crate::domain::inventory::{Inventory, Machine, NvmlState};
use crate::domain::reading::Reading;
use crate::domain::sharing::health::Xid;
use crate::hw::calls::CallWatch;
use crate::hw::error::{DriverError, Remedy};
use crate::hw::merge::merge;
use crate::hw::neuron::Reader;
use crate::hw::pci::Bus;
use crate::hw::sysfs::Sysfs;
use crate::hw::{DriverLoader, GpuDriver, Observation, Settings};

use claim::{Claim, Job, Release};
use events::Events;
use xids::Xids;

/// A message to the driver thread.
enum Message {
    /// Observe the devices and reply.
    Observe(oneshot::Sender<Arc<Inventory>>),
    /// Run a unit of work with the driver.
    Work(Job),
    /// Take readings of the devices of the last observation.
    Readings(oneshot::Sender<Result<Vec<Reading>, Unread>>),
    /// Release the library and reply when neither thread uses it.
    Release(oneshot::Sender<Result<Released, NoDriver>>),
    /// Open the library again.
    Resume,
    /// The events thread of driver instance `life` has released the library.
    EventsEnded {
        life: u64,
        error: Option<DriverError>,
    },
    /// The time to search for the driver has come.
    Due,
    /// All handles were dropped.
    Stop,
}

/// State of the driver thread, published to listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pulse {
    /// Incremented when a new observation is needed.
    news: u64,
    /// Driver calls are being made, so one may stall.
    busy: bool,
    /// The current user of the driver.
    claim: Claim,
}

/// State shared by the threads and the handles.
#[derive(Debug)]
struct Shared {
    calls: CallWatch,
    latest: watch::Sender<Arc<Inventory>>,
    pulse: watch::Sender<Pulse>,
    xids: Mutex<Xids>,
    naming: Mutex<Naming>,
}

impl Shared {
    /// Stores the Xids before it notifies, so that a listener finds them.
    fn say_xids(&self, heard: &[Xid]) {
        self.xids().hear(heard);
        self.say_news();
    }

    fn xids(&self) -> MutexGuard<'_, Xids> {
        // Every step leaves the data consistent, so it is valid even after a panic.
        self.xids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current naming of devices.
    fn naming(&self) -> Naming {
        self.lock_naming().clone()
    }

    fn lock_naming(&self) -> MutexGuard<'_, Naming> {
        // The lock only guards single assignments.
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_news(&self) {
        self.pulse
            .send_modify(|pulse| pulse.news = pulse.news.wrapping_add(1));
    }
}

/// Starts the thread. It ends after the last [`Handle`] is dropped, unless a driver call hangs.
pub fn spawn(loader: Box<dyn DriverLoader>, settings: &Settings) -> io::Result<Handle> {
    let (outbox, inbox) = mpsc::channel();
    let first = Inventory {
        neuron: None,
        machine: Machine::default(),
        nvml: NvmlState::Loading,
        devices: Vec::new(),
    };
    let shared = Arc::new(Shared {
        calls: CallWatch::new(settings.call_deadline),
        latest: watch::Sender::new(Arc::new(first)),
        pulse: watch::Sender::new(Pulse::default()),
        xids: Mutex::default(),
        naming: Mutex::new(Naming {
            own: Arc::clone(&settings.own),
            given: None,
        }),
    });
    let sys = Sysfs::new(settings.sys_root.clone());
    let worker = Worker {
        loader,
        neuron: Reader::new(sys.clone(), settings.neuron_logical_config.clone()),
        bus: Bus::new(sys, Arc::clone(&settings.own)),
        shared: Arc::clone(&shared),
        outbox: outbox.clone(),
        link: State::start().0,
        due: None,
        found: Vec::new(),
        driver: None,
        observation: None,
        life: 0,
        events: Events::None,
        release: Release::No,
    };
    thread::Builder::new()
        .name("nvml".to_owned())
        .spawn(move || worker.run(&inbox))?;
    Ok(Handle::new(shared, outbox))
}

struct Worker {
    loader: Box<dyn DriverLoader>,
    bus: Bus,
    neuron: Reader,
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Message>,
    link: State,
    /// When to search for the driver again.
    due: Option<Instant>,
    found: Vec<PathBuf>,
    driver: Option<Box<dyn GpuDriver>>,
    observation: Option<Observation>,
    /// Number of drivers opened so far; identifies late messages about an earlier one.
    life: u64,
    events: Events,
    release: Release,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Message>) {
        self.publish();
        self.begin();
        let (link, effects) = State::start();
        self.link = link;
        self.perform(effects);
        self.publish();
        self.rest();
        while let Some(message) = self.next(inbox) {
            self.begin();
            match message {
                Message::Observe(asker) => self.answer(asker, inbox),
                Message::Work(job) => self.work(job),
                Message::Readings(asker) => self.readings(asker),
                Message::Release(asker) => self.release(asker),
                Message::Resume => self.resume(),
                Message::EventsEnded { life, error } => self.events_ended(life, error),
                Message::Due => self.due(),
                Message::Stop => break,
            }
            self.rest();
        }
        self.unload();
    }

    /// Marks the start of work in which a driver call may stall.
    fn begin(&self) {
        self.shared.pulse.send_modify(|pulse| pulse.busy = true);
    }

    /// Marks the end of what [`Self::begin`] started. Notifies listeners if a call stalled and returned meanwhile.
    fn rest(&self) {
        self.shared.pulse.send_modify(|pulse| {
            pulse.busy = false;
            if self.shared.calls.take_overran() {
                pulse.news = pulse.news.wrapping_add(1);
            }
        });
    }

    /// Returns the next message; `None` when all senders are gone.
    fn next(&mut self, inbox: &Receiver<Message>) -> Option<Message> {
        let Some(due) = self.due else {
            return inbox.recv().ok();
        };
        match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => {
                self.due = None;
                Some(Message::Due)
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Observes once for all requests received before the observation starts.
    fn answer(&mut self, asker: oneshot::Sender<Arc<Inventory>>, inbox: &Receiver<Message>) {
        let mut askers = vec![asker];
        let mut others = Vec::new();
        for message in inbox.try_iter() {
            match message {
                Message::Observe(asker) => askers.push(asker),
                other @ (Message::Work(_)
                | Message::Readings(_)
                | Message::Release(_)
                | Message::Resume
                | Message::EventsEnded { .. }
                | Message::Due
                | Message::Stop) => others.push(other),
            }
        }
        self.observe();
        let inventory = self.publish();
        for asker in askers {
            // A requester that timed out has used the latest inventory instead.
            let _gone = asker.send(Arc::clone(&inventory));
        }
        for other in others {
            let _ours_and_open = self.outbox.send(other);
        }
    }

    fn observe(&mut self) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        match driver.observe(&self.shared.calls) {
            Ok(observation) => {
                self.observation = Some(observation);
                self.feed(Event::Answered);
                self.listen();
            }
            // The previous observation is still the best available.
            Err(error) if error.remedy() == Remedy::Retry && self.observation.is_some() => {}
            Err(error) => self.feed(Event::Lost(error.to_string())),
        }
    }

    /// Applies an event to the link's state machine and performs the resulting effects.
    fn feed(&mut self, event: Event) {
        let was_ready = matches!(self.link, State::Ready { .. });
        let link = std::mem::replace(&mut self.link, State::start().0);
        let (link, effects) = link.step(event);
        self.link = link;
        self.perform(effects);
        let is_ready = matches!(self.link, State::Ready { .. });
        if was_ready != is_ready && !self.is_released() {
            self.publish();
            self.shared.say_news();
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Search => self.search(),
                Effect::Initialise => self.initialise(),
                Effect::Unload => self.unload(),
                Effect::WakeAfter(wait) => self.due = Some(Instant::now() + wait),
            }
        }
    }

    fn search(&mut self) {
        // The search continues once the events thread has released the library.
        if matches!(self.events, Events::Listening { .. }) {
            return;
        }
        match self.loader.find() {
            Ok(found) => {
                self.found = found;
                self.feed(Event::Found);
            }
            Err(error) => self.feed(Event::Failed(chain(&error))),
        }
    }

    /// Tries the found files in turn until one is NVML: a library of another architecture may be next to the right one.
    fn initialise(&mut self) {
        self.publish();
        let mut reasons = Vec::new();
        let mut opened = None;
        for path in std::mem::take(&mut self.found) {
            match self.loader.open(&path, &self.shared.calls) {
                Ok(driver) => {
                    opened = Some(driver);
                    break;
                }
                Err(error) => {
                    reasons.push(chain(&error));
                    if !error.is_about_the_file() {
                        break;
                    }
                }
            }
        }
        if let Some(driver) = opened {
            self.driver = Some(driver);
            self.life = self.life.wrapping_add(1);
            self.feed(Event::Initialised);
        } else {
            self.feed(Event::Failed(reasons.join("; ")));
        }
    }

    fn unload(&mut self) {
        self.observation = None;
        if let Events::Listening { thread } = &self.events {
            thread.stop();
        } else {
            self.events = Events::None;
        }
        let driver = self.driver.take();
        let calls = &self.shared.calls;
        calls.during("nvmlShutdown", None, || drop(driver));
    }

    /// Publishes the current inventory. While the library is released, the previous inventory stays.
    fn publish(&mut self) -> Arc<Inventory> {
        if self.is_released() {
            return Arc::clone(&self.shared.latest.borrow());
        }
        // Recorded like a driver call: reading a file of a failing device may not return either.
        let (bus, neuron) = (&mut self.bus, &mut self.neuron);
        let (functions, machine, neuron) =
            self.shared.calls.during(NvmlState::READING_SYS, None, || {
                let functions = bus.scan();
                let machine = bus.machine(&functions);
                let neuron = neuron.read(&functions);
                (functions, machine, neuron)
            });
        let mut inventory = Inventory {
            neuron,
            ..merge(machine, &functions, self.nvml(), self.observation.as_ref())
        };
        self.shared.naming().apply(&mut inventory);
        let inventory = Arc::new(inventory);
        self.shared.latest.send_replace(Arc::clone(&inventory));
        inventory
    }

    fn nvml(&self) -> NvmlState {
        match (&self.link, &self.observation) {
            (State::Ready { .. }, Some(observation)) => {
                NvmlState::Ready(observation.driver.clone())
            }
            (State::Ready { .. } | State::Loading { .. }, _) => NvmlState::Loading,
            (State::Absent { reason, past, .. }, _) => {
                let reason = reason.clone();
                match past {
                    Past::NeverReady => NvmlState::Absent { reason },
                    Past::WasReady => NvmlState::Lost { reason },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
