//! The thread that owns the driver.
//!
//! ```text
//!   Handle --Observe--> inbox --> [ thread "nvml" ] --> latest inventory, pulses
//!                         ^          | owns GpuDriver, drives domain::driver_link
//!                         |          v
//!                         +-Ended- [ thread "nvml-events" ] --> pulses
//! ```
//!
//! Only the first thread reads devices, so a reading never meets another one, nor a change: who changes devices does so as a
//! piece of work on that thread. The second one waits for events, which
//! blocks for seconds at a time; it says "look again" to whoever listens and needs the first thread for nothing, so it
//! does so even while that one hangs. A library is only opened again when both have let go of it, or the loader would
//! hand out the old one.

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

/// What the thread is told.
enum Message {
    /// Read the devices and answer.
    Observe(oneshot::Sender<Arc<Inventory>>),
    /// Do a piece of work with the driver.
    Work(Job),
    /// Read what changes from moment to moment, of the devices read last.
    Readings(oneshot::Sender<Result<Vec<Reading>, Unread>>),
    /// Let go of the library and say when nothing has it any more.
    Release(oneshot::Sender<Result<Released, NoDriver>>),
    /// Take the library again.
    Resume,
    /// The events thread of the driver's `life` has let go of the library.
    EventsEnded {
        life: u64,
        error: Option<DriverError>,
    },
    /// It is time to look for the driver.
    Due,
    /// Nobody holds a handle any more.
    Stop,
}

/// What the threads show to those who listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pulse {
    /// Grows when the devices are worth another look.
    news: u64,
    /// Driver calls are being made, so one may stall.
    busy: bool,
    /// Who has the driver.
    claim: Claim,
}

/// What the threads and the handles share.
#[derive(Debug)]
struct Shared {
    calls: CallWatch,
    latest: watch::Sender<Arc<Inventory>>,
    pulse: watch::Sender<Pulse>,
    xids: Mutex<Xids>,
    naming: Mutex<Naming>,
}

impl Shared {
    /// Keeps them before it says so: who looks then finds them.
    fn say_xids(&self, heard: &[Xid]) {
        self.xids().hear(heard);
        self.say_news();
    }

    fn xids(&self) -> MutexGuard<'_, Xids> {
        // What is kept is whole after each step, so that of a thread that died with the lock it is as good.
        self.xids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what devices are named now.
    fn naming(&self) -> Naming {
        self.lock_naming().clone()
    }

    fn lock_naming(&self) -> MutexGuard<'_, Naming> {
        // One assignment is all that is done with it.
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_news(&self) {
        self.pulse
            .send_modify(|pulse| pulse.news = pulse.news.wrapping_add(1));
    }
}

/// Starts the thread. It ends when the last [`Handle`] is dropped and the driver lets it.
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
    /// When to look for the driver again.
    due: Option<Instant>,
    found: Vec<PathBuf>,
    driver: Option<Box<dyn GpuDriver>>,
    observation: Option<Observation>,
    /// Counts the drivers that were opened; tells a late message about an earlier one.
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

    /// From here on a driver call may stall.
    fn begin(&self) {
        self.shared.pulse.send_modify(|pulse| pulse.busy = true);
    }

    /// The end of what [`Self::begin`] began; a call that stalled meanwhile and came back is news.
    fn rest(&self) {
        self.shared.pulse.send_modify(|pulse| {
            pulse.busy = false;
            if self.shared.calls.take_overran() {
                pulse.news = pulse.news.wrapping_add(1);
            }
        });
    }

    /// The next message; `None` when nobody is left to send one.
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

    /// Reads once for everybody who asked before the reading began.
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
            // Who gave up waiting has read the latest inventory instead.
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
            // What was read before is still the best there is.
            Err(error) if error.remedy() == Remedy::Retry && self.observation.is_some() => {}
            Err(error) => self.feed(Event::Lost(error.to_string())),
        }
    }

    /// Drives the link by one event and everything that follows from it.
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
        // The events thread says when it has let go; then it is searched.
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

    /// Tries the files in turn, until one is NVML: beside the right one there may be one for another architecture.
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

    /// Shows what is known now. While the library is let go of, that stays what was known before.
    fn publish(&mut self) -> Arc<Inventory> {
        if self.is_released() {
            return Arc::clone(&self.shared.latest.borrow());
        }
        // On record like a driver's call: a file of a dying device may not return either.
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
