//! Tests of the driver thread with an in-memory driver. The contract tests cover NVML's own behavior.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod claim;
mod events;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Driver, PciIds};
use octavo_model::reading::Reading;

use super::*;
use crate::error::{LoadError, NvmlCode};
use crate::{EventSource, EventWait, GpuControl};

/// Long enough for a busy machine; elapses fully only if a call hangs.
const DEADLINE: Duration = Duration::from_secs(2);

const MISMATCH: DriverError =
    DriverError { call: "nvmlDeviceGetCount_v2", code: NvmlCode::Nvml(18) };

/// The response to the next call. Calls succeed when the list is empty.
enum Answer {
    Fails(DriverError),
    Hangs(Receiver<()>),
}

#[derive(Default)]
struct State {
    version: Option<&'static str>,
    starts: VecDeque<Answer>,
    reads: VecDeque<Answer>,
    reads_done: u32,
    readings: VecDeque<Answer>,
    /// Events of the next event source.
    events: Option<Receiver<Result<EventWait, DriverError>>>,
    /// Notified when an event source starts to wait.
    waiting: Option<oneshot::Sender<()>>,
    /// Number of drivers and event sources that hold the library.
    held: u32,
    /// Notified when the library is no longer held.
    let_go: Option<oneshot::Sender<()>>,
    held_at_open: Vec<u32>,
}

/// A machine with one GPU and a scripted driver.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

impl Fake {
    fn with_driver(version: &'static str) -> Self {
        let fake = Self::default();
        fake.lock().version = Some(version);
        fake
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Makes the next observation hang until the sender is used or dropped.
    fn hang(&self) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel();
        self.lock().reads.push_back(Answer::Hangs(held));
        release
    }

    fn events(&self) -> mpsc::Sender<Result<EventWait, DriverError>> {
        let (sender, receiver) = mpsc::channel();
        self.lock().events = Some(receiver);
        sender
    }

    fn spawn(&self) -> DriverHandle {
        self.spawn_with(DEADLINE)
    }

    fn spawn_with(&self, call_deadline: Duration) -> DriverHandle {
        let settings = Settings {
            library: None,
            driver_roots: Vec::new(),
            sys_root: "/nowhere".into(),
            neuron_logical_config: "/nowhere".into(),
            call_deadline,
        };
        spawn(Box::new(self.clone()), &settings).unwrap()
    }
}

/// Holds the library until dropped.
struct Hold(Fake);

impl Hold {
    fn new(fake: &Fake) -> Self {
        fake.lock().held += 1;
        Self(fake.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.held -= 1;
        if state.held == 0
            && let Some(sender) = state.let_go.take()
        {
            let _receiver_dropped = sender.send(());
        }
    }
}

fn play(answer: Option<Answer>) -> Result<(), DriverError> {
    match answer {
        None => Ok(()),
        Some(Answer::Fails(error)) => Err(error),
        Some(Answer::Hangs(held)) => {
            let _released = held.recv();
            Ok(())
        }
    }
}

impl DriverLoader for Fake {
    fn find(&mut self) -> Result<Vec<PathBuf>, LoadError> {
        self.lock().version.map(|_| vec!["libfake.so".into()]).ok_or_else(|| LoadError::NotFound {
            name: "libfake.so".to_owned(),
            searched: "memory".to_owned(),
        })
    }

    fn open(
        &mut self,
        path: &std::path::Path,
        calls: &CallRecord,
    ) -> Result<Box<dyn GpuDriver>, LoadError> {
        let mut state = self.lock();
        let held = state.held;
        state.held_at_open.push(held);
        let answer = state.starts.pop_front();
        drop(state);
        calls
            .record("nvmlInit_v2", None, || play(answer))
            .map_err(|source| LoadError::Refused { path: path.to_owned(), source })?;
        let version = self.lock().version.unwrap();
        Ok(Box::new(FakeDriver(Hold::new(self), version)))
    }
}

struct FakeDriver(Hold, &'static str);

impl GpuDriver for FakeDriver {
    fn observe(&mut self, calls: &CallRecord) -> Result<Observation, DriverError> {
        let answer = self.0.0.lock().reads.pop_front();
        calls.record("nvmlDeviceGetMigMode", Some(gpu().pci), || play(answer))?;
        self.0.0.lock().reads_done += 1;
        Ok(Observation { driver: driver(self.1), devices: vec![gpu()], unidentified: Vec::new() })
    }

    fn readings(&mut self, _: &[Device], calls: &CallRecord) -> Result<Vec<Reading>, DriverError> {
        let answer = self.0.0.lock().readings.pop_front();
        calls.record("nvmlDeviceGetMemoryInfo_v2", Some(gpu().pci), || play(answer))?;
        Ok(Vec::new())
    }

    fn events(&mut self, _: &CallRecord) -> Result<Option<Box<dyn EventSource>>, DriverError> {
        let events = self.0.0.lock().events.take();
        let source = |receiver| Box::new(FakeEvents(Hold::new(&self.0.0), receiver));
        Ok(events.map(|receiver| source(receiver) as Box<dyn EventSource>))
    }

    fn controls<'a>(&'a mut self, _: &[PciAddress]) -> Vec<Box<dyn GpuControl + 'a>> {
        Vec::new()
    }
}

struct FakeEvents(Hold, Receiver<Result<EventWait, DriverError>>);

impl EventSource for FakeEvents {
    fn wait(&mut self) -> Result<EventWait, DriverError> {
        if let Some(sender) = self.0.0.lock().waiting.take() {
            let _receiver_dropped = sender.send(());
        }
        self.1.recv().unwrap_or(Err(MISMATCH))
    }
}

fn driver(version: &str) -> Driver {
    Driver { version: version.parse().unwrap(), cuda: None }
}

fn gpu() -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0xffff,
        subsystem_vendor: 0x10de,
        subsystem_device: 0,
        class: None,
    };
    let mut gpu = Device::new(PciAddress::new(0, 0x3b, 0, 0).unwrap(), ids);
    gpu.condition = Condition::Working;
    gpu
}

fn ready(version: &str) -> NvmlState {
    NvmlState::Ready(driver(version))
}

fn stalled(call: &str, driver: Option<Driver>) -> NvmlState {
    NvmlState::Stalled { call: call.to_owned(), driver }
}

fn lost() -> NvmlState {
    NvmlState::Lost { reason: MISMATCH.to_string() }
}

/// Observes on every hint, as the agent does, until the driver is in the wanted state.
async fn follow(
    handle: &DriverHandle,
    hints: &mut ChangeNotifications,
    wanted: &NvmlState,
) -> Arc<Inventory> {
    let following = async {
        loop {
            let inventory = handle.observe().await;
            if inventory.nvml == *wanted {
                return inventory;
            }
            hints.changed().await;
        }
    };
    let found = tokio::time::timeout(Duration::from_mins(2), following).await;
    found.unwrap_or_else(|_late| panic!("{:?} and not {wanted:?}", handle.latest().nvml))
}

#[tokio::test]
async fn first_observation_includes_devices() {
    let inventory = Fake::with_driver("570.1").spawn().observe().await;
    assert_eq!(inventory.nvml, ready("570.1"));
    assert_eq!(inventory.devices, [gpu()]);
}

#[tokio::test]
async fn late_driver_triggers_a_notification() {
    let fake = Fake::default();
    let handle = fake.spawn();
    let mut hints = handle.changes();
    let absent =
        NvmlState::Absent { reason: "no NVML library libfake.so (looked in memory)".to_owned() };
    assert_eq!(handle.observe().await.nvml, absent);
    fake.lock().version = Some("570.1");
    follow(&handle, &mut hints, &ready("570.1")).await;
}

#[tokio::test]
async fn library_that_fails_to_initialize_is_absent_with_reason() {
    let fake = Fake::with_driver("570.1");
    fake.lock()
        .starts
        .push_back(Answer::Fails(DriverError { call: "nvmlInit_v2", code: NvmlCode::Nvml(9) }));
    let handle = fake.spawn();
    let mut hints = handle.changes();
    let absent = NvmlState::Absent {
        reason: "cannot initialize NVML from libfake.so: nvmlInit_v2: driver not loaded (9)"
            .to_owned(),
    };
    assert_eq!(handle.observe().await.nvml, absent);
    follow(&handle, &mut hints, &ready("570.1")).await;
}

#[tokio::test]
async fn replaced_driver_is_reloaded() {
    let fake = Fake::with_driver("570.1");
    let handle = fake.spawn();
    let mut hints = handle.changes();
    follow(&handle, &mut hints, &ready("570.1")).await;
    fake.lock().reads.push_back(Answer::Fails(MISMATCH));
    fake.lock().version = Some("580.2");
    let inventory = handle.observe().await;
    assert_eq!((&inventory.nvml, inventory.devices.len()), (&lost(), 0));
    follow(&handle, &mut hints, &ready("580.2")).await;
    assert_eq!(fake.lock().held_at_open, [0, 0]);
}

#[tokio::test]
async fn retryable_error_keeps_last_observation() {
    let fake = Fake::with_driver("570.1");
    let handle = fake.spawn();
    let before = handle.observe().await;
    fake.lock().reads.push_back(Answer::Fails(DriverError {
        call: "nvmlDeviceGetCount_v2",
        code: NvmlCode::TIMEOUT,
    }));
    assert_eq!(handle.observe().await, before);
}

#[tokio::test]
async fn hanging_call_keeps_last_observation_and_recovers() {
    let fake = Fake::with_driver("570.1");
    let handle = fake.spawn();
    let mut hints = handle.changes();
    let before = follow(&handle, &mut hints, &ready("570.1")).await;
    let release = fake.hang();
    let stalled = stalled("nvmlDeviceGetMigMode", Some(driver("570.1")));

    let during = handle.observe().await;
    assert_eq!(during.nvml, stalled);
    assert_eq!(during.machine, before.machine);
    let [device] = during.devices.as_slice() else {
        panic!("{during:?}");
    };
    let problems: Vec<String> = device.problems.iter().map(|p| format!("{p:?}")).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    hints.changed().await;
    assert_eq!(handle.latest().nvml, stalled);

    drop(release);
    follow(&handle, &mut hints, &ready("570.1")).await;
    assert_eq!(handle.observe().await, before);
}

#[tokio::test]
async fn hanging_initialization_is_stalled() {
    let fake = Fake::with_driver("570.1");
    let (release, held) = mpsc::channel();
    fake.lock().starts.push_back(Answer::Hangs(held));
    let handle = fake.spawn();
    let mut hints = handle.changes();
    hints.changed().await;
    assert_eq!(handle.observe().await.nvml, stalled("nvmlInit_v2", None));
    drop(release);
    follow(&handle, &mut hints, &ready("570.1")).await;
}

#[tokio::test]
async fn concurrent_requests_share_one_observation() {
    let fake = Fake::with_driver("570.1");
    let handle = fake.spawn();
    handle.observe().await;
    let release = fake.hang();
    let first = tokio::spawn({
        let handle = handle.clone();
        async move { handle.observe().await }
    });
    tokio::task::yield_now().await;
    let others = async { tokio::join!(handle.observe(), handle.observe(), handle.observe()) };
    let (answers, ()) = tokio::join!(others, async { drop(release) });
    assert_eq!(answers.0.nvml, ready("570.1"));
    assert_eq!(first.await.unwrap().nvml, ready("570.1"));
    assert!(fake.lock().reads_done <= 3);
}

#[tokio::test]
async fn driver_is_released_with_the_last_handle() {
    let fake = Fake::with_driver("570.1");
    let handle = fake.spawn();
    handle.observe().await;
    let (sender, let_go) = oneshot::channel();
    fake.lock().let_go = Some(sender);
    drop(handle.clone());
    assert_eq!(handle.observe().await.nvml, ready("570.1"));
    drop(handle);
    let_go.await.unwrap();
}
