//! Runs transactions on the hardware, with devices in parallel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use octavo_hardware::worker::DriverUnavailable;
use octavo_hardware::{CallRecord, DriverHandle, GpuControl, GpuDriver};
use octavo_model::call::CallFailure;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_planner::reconcile::{
    ActionResult, ChangeOutcome, ChangeProgress, ChangeRequest, NextAction, ObservedUsers,
    OperationCounts, Transaction,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::usage::UsageProbe;

/// Progress of the devices that are being changed.
pub type ProgressByDevice = BTreeMap<PciAddress, ChangeProgress>;

/// The result of changing one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The device.
    pub pci: PciAddress,
    /// The final result.
    pub result: ChangeOutcome,
    /// The work performed.
    pub work: OperationCounts,
    /// Duration from the first to the last action.
    pub took: Duration,
    /// The part of `took` spent in driver calls.
    pub driver_time: Duration,
}

impl Outcome {
    /// Returns the outcome of a device that could not be changed at all.
    pub(crate) fn not_started(pci: PciAddress, reason: &str) -> Self {
        Self {
            pci,
            result: ChangeOutcome::Failed { reason: reason.to_owned(), rollback: None },
            work: OperationCounts::default(),
            took: Duration::ZERO,
            driver_time: Duration::ZERO,
        }
    }
}

/// Runs all `jobs` to completion. A failing device does not stop the others.
pub async fn run(
    hardware: &DriverHandle,
    jobs: Vec<ChangeRequest>,
    usage_probe: Arc<dyn UsageProbe>,
    progress: watch::Sender<ProgressByDevice>,
) -> Result<Vec<Outcome>, DriverUnavailable> {
    let devices: Vec<PciAddress> = jobs.iter().map(|job| job.target.pci).collect();
    // The work continues even if the caller stops waiting, so the devices must stay closed with it.
    let closed = usage_probe.block_allocation(&devices);
    hardware
        .work_and_read(move |driver, calls| {
            let done = perform(driver, calls, jobs, &*usage_probe, &progress);
            drop(closed);
            done
        })
        .await
}

fn perform(
    driver: &mut dyn GpuDriver,
    calls: &CallRecord,
    jobs: Vec<ChangeRequest>,
    usage_probe: &dyn UsageProbe,
    progress: &watch::Sender<ProgressByDevice>,
) -> (Vec<Outcome>, Option<Vec<Device>>) {
    let devices: Vec<PciAddress> = jobs.iter().map(|job| job.target.pci).collect();
    let mut controls: BTreeMap<PciAddress, Box<dyn GpuControl + '_>> =
        driver.controls(&devices).into_iter().map(|control| (control.pci(), control)).collect();
    let mut pairs = Vec::new();
    let mut ends = Vec::new();
    for job in jobs {
        match controls.remove(&job.target.pci) {
            Some(control) => pairs.push((job, control)),
            None => ends.push((unknown_device(job.target.pci), ReadState::Untouched)),
        }
    }
    let run = |(job, control): (ChangeRequest, Box<dyn GpuControl + '_>)| {
        Runner {
            control,
            calls,
            usage_probe,
            driver_time: Duration::ZERO,
            read_state: ReadState::Untouched,
        }
        .run(job, progress)
    };
    let all = pairs.len().saturating_add(ends.len());
    if pairs.len() == 1 {
        ends.extend(pairs.into_iter().map(run));
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> =
                pairs.into_iter().map(|pair| scope.spawn(move || run(pair))).collect();
            // A thread that panicked leaves its device in the journal.
            ends.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    progress.send_modify(ProgressByDevice::clear);
    let mut read = Some(Vec::new()).filter(|_| ends.len() == all);
    let mut outcomes = Vec::new();
    for (outcome, left) in ends {
        outcomes.push(outcome);
        match left {
            ReadState::Untouched => {}
            ReadState::Read(device) => {
                if let Some(read) = &mut read {
                    read.push((*device).clone());
                }
            }
            ReadState::Changed => read = None,
        }
    }
    (outcomes, read)
}

/// Whether a device's state was read after its last change.
enum ReadState {
    /// No call changed the device.
    Untouched,
    /// The device was read after the last change.
    Read(Box<Device>),
    /// The device was changed and not read since.
    Changed,
}

fn unknown_device(pci: PciAddress) -> Outcome {
    Outcome::not_started(pci, "the driver no longer lists this device")
}

struct Runner<'a> {
    control: Box<dyn GpuControl + 'a>,
    calls: &'a CallRecord,
    usage_probe: &'a dyn UsageProbe,
    driver_time: Duration,
    read_state: ReadState,
}

impl Runner<'_> {
    fn run(
        mut self,
        job: ChangeRequest,
        progress: &watch::Sender<ProgressByDevice>,
    ) -> (Outcome, ReadState) {
        let pci = job.target.pci;
        // Allocations are matched by device ID, so all devices are needed: an ID of another device must not be reported
        // as unassigned.
        let mut devices = job.inventory.devices.clone();
        let Some(mut transaction) = Transaction::new(job) else {
            return (unknown_device(pci), ReadState::Untouched);
        };
        let began = Instant::now();
        let mut answer = ActionResult::Start;
        let result = loop {
            let action = transaction.next(began.elapsed(), answer);
            if !matches!(action, NextAction::End(_)) {
                let now = transaction.progress();
                progress.send_modify(|board| {
                    board.insert(pci, now);
                });
            }
            answer = match action {
                NextAction::End(result) => break result,
                NextAction::FindUsers => ActionResult::UsersFound(self.users(&devices)),
                NextAction::Call(call) => {
                    self.read_state = ReadState::Changed;
                    ActionResult::Called(self.timed(|control, calls| control.call(call, calls)))
                }
                NextAction::Wait(wait) => {
                    // Nothing wakes this thread deliberately, and an early wakeup is harmless.
                    thread::park_timeout(wait);
                    ActionResult::Waited
                }
                NextAction::Read => ActionResult::Read(self.read(&mut devices)),
            };
        };
        let outcome = Outcome {
            pci,
            result,
            work: transaction.work(),
            took: began.elapsed(),
            driver_time: self.driver_time,
        };
        (outcome, self.read_state)
    }

    fn timed<T>(&mut self, call: impl FnOnce(&mut dyn GpuControl, &CallRecord) -> T) -> T {
        let began = Instant::now();
        let result = call(self.control.as_mut(), self.calls);
        self.driver_time = self.driver_time.saturating_add(began.elapsed());
        result
    }

    /// Returns the users of the device. Queries the driver first, because a process that it lists may exit before the
    /// procfs scan.
    fn users(&mut self, devices: &[Device]) -> Result<ObservedUsers, String> {
        let processes =
            self.timed(|control, calls| control.processes(calls)).map_err(|failure| {
                format!("the driver does not report the processes on it: {failure}")
            })?;
        let pci = self.control.pci();
        let mut holders = self.usage_probe.holders(devices)?;
        holders.retain(|holder| holder.device == pci);
        Ok(ObservedUsers { processes, holders })
    }

    fn read(&mut self, devices: &mut [Device]) -> Result<Box<Device>, CallFailure> {
        let read = self.timed(|control, calls| control.read(calls))?;
        let known = devices.iter_mut().find(|device| device.pci == read.pci);
        if let Some(known) = known {
            known.clone_from(&read);
        }
        let read = Box::new(read);
        if matches!(self.read_state, ReadState::Changed | ReadState::Read(_)) {
            self.read_state = ReadState::Read(read.clone());
        }
        Ok(read)
    }
}
