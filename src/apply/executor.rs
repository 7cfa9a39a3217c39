//! Runs transactions on the hardware, with devices in parallel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::witness::Witness;
use crate::domain::call::Failure;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Device;
use crate::domain::reconcile::{Action, Answer, Ending, Job, Progress, Transaction, Users, Work};
use crate::hw::worker::NoDriver;
use crate::hw::{CallWatch, GpuControl, GpuDriver, Handle};

/// Progress of the devices that are being changed.
pub type Board = BTreeMap<PciAddress, Progress>;

/// The result of changing one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The device.
    pub pci: PciAddress,
    /// The final result.
    pub ending: Ending,
    /// The work performed.
    pub work: Work,
    /// Duration from the first to the last action.
    pub took: Duration,
    /// The part of `took` spent in driver calls.
    pub hardware: Duration,
}

/// Runs all `jobs` to completion. A failing device does not stop the others.
pub async fn run(
    hardware: &Handle,
    jobs: Vec<Job>,
    witness: Arc<dyn Witness>,
    progress: watch::Sender<Board>,
) -> Result<Vec<Outcome>, NoDriver> {
    let devices: Vec<PciAddress> = jobs.iter().map(|job| job.target.pci).collect();
    // The work continues even if the caller stops waiting, so the devices must stay closed with it.
    let closed = witness.close(&devices);
    hardware
        .work_and_read(move |driver, calls| {
            let done = perform(driver, calls, jobs, &*witness, &progress);
            drop(closed);
            done
        })
        .await
}

fn perform(
    driver: &mut dyn GpuDriver,
    calls: &CallWatch,
    jobs: Vec<Job>,
    witness: &dyn Witness,
    progress: &watch::Sender<Board>,
) -> (Vec<Outcome>, Option<Vec<Device>>) {
    let asked: Vec<PciAddress> = jobs.iter().map(|job| job.target.pci).collect();
    let mut controls: BTreeMap<PciAddress, Box<dyn GpuControl + '_>> = driver
        .controls(&asked)
        .into_iter()
        .map(|control| (control.pci(), control))
        .collect();
    let mut pairs = Vec::new();
    let mut ends = Vec::new();
    for job in jobs {
        match controls.remove(&job.target.pci) {
            Some(control) => pairs.push((job, control)),
            None => ends.push((unknown(job.target.pci), Left::Untouched)),
        }
    }
    let run = |(job, control): (Job, Box<dyn GpuControl + '_>)| {
        Runner {
            control,
            calls,
            witness,
            hardware: Duration::ZERO,
            left: Left::Untouched,
        }
        .run(job, progress)
    };
    let all = pairs.len().saturating_add(ends.len());
    if pairs.len() == 1 {
        ends.extend(pairs.into_iter().map(run));
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> = pairs
                .into_iter()
                .map(|pair| scope.spawn(move || run(pair)))
                .collect();
            // A thread that panicked leaves its device in the journal.
            ends.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    progress.send_modify(Board::clear);
    let mut read = Some(Vec::new()).filter(|_| ends.len() == all);
    let mut outcomes = Vec::new();
    for (outcome, left) in ends {
        outcomes.push(outcome);
        match left {
            Left::Untouched => {}
            Left::Read(device) => read
                .iter_mut()
                .for_each(|read| read.push((*device).clone())),
            Left::Changed => read = None,
        }
    }
    (outcomes, read)
}

/// Whether a device's state was read after its last change.
enum Left {
    /// No call changed the device.
    Untouched,
    /// The device was read after the last change.
    Read(Box<Device>),
    /// The device was changed and not read since.
    Changed,
}

fn unknown(pci: PciAddress) -> Outcome {
    Outcome {
        pci,
        ending: Ending::Failed {
            reason: "the driver does not know this device any more".to_owned(),
            rollback: None,
        },
        work: Work::default(),
        took: Duration::ZERO,
        hardware: Duration::ZERO,
    }
}

struct Runner<'a> {
    control: Box<dyn GpuControl + 'a>,
    calls: &'a CallWatch,
    witness: &'a dyn Witness,
    hardware: Duration,
    left: Left,
}

impl Runner<'_> {
    fn run(mut self, job: Job, progress: &watch::Sender<Board>) -> (Outcome, Left) {
        let pci = job.target.pci;
        // Allocations are matched by device ID, so all devices are needed: an ID of another device must not be reported
        // as unassigned.
        let mut devices = job.inventory.devices.clone();
        let Some(mut transaction) = Transaction::new(job) else {
            return (unknown(pci), Left::Untouched);
        };
        let began = Instant::now();
        let mut answer = Answer::Begin;
        let ending = loop {
            let action = transaction.next(began.elapsed(), answer);
            if !matches!(action, Action::End(_)) {
                let now = transaction.progress();
                progress.send_modify(|board| {
                    board.insert(pci, now);
                });
            }
            answer = match action {
                Action::End(ending) => break ending,
                Action::Look => Answer::Looked(self.look(&devices)),
                Action::Call(call) => {
                    self.left = Left::Changed;
                    Answer::Called(self.timed(|control, calls| control.call(call, calls)))
                }
                Action::Wait(wait) => {
                    // Nothing wakes this thread deliberately, and an early wakeup is harmless.
                    thread::park_timeout(wait);
                    Answer::Waited
                }
                Action::Read => Answer::Read(self.read(&mut devices)),
            };
        };
        let outcome = Outcome {
            pci,
            ending,
            work: transaction.work(),
            took: began.elapsed(),
            hardware: self.hardware,
        };
        (outcome, self.left)
    }

    fn timed<T>(&mut self, call: impl FnOnce(&mut dyn GpuControl, &CallWatch) -> T) -> T {
        let began = Instant::now();
        let answer = call(self.control.as_mut(), self.calls);
        self.hardware = self.hardware.saturating_add(began.elapsed());
        answer
    }

    /// Returns the users of the device. Queries the driver first, because a process that it lists may exit before the
    /// procfs scan.
    fn look(&mut self, devices: &[Device]) -> Result<Users, String> {
        let processes = self
            .timed(|control, calls| control.processes(calls))
            .map_err(|failure| format!("the driver does not say who uses it: {failure}"))?;
        let pci = self.control.pci();
        let mut holders = self.witness.holders(devices)?;
        holders.retain(|holder| holder.device == pci);
        Ok(Users { processes, holders })
    }

    fn read(&mut self, devices: &mut [Device]) -> Result<Box<Device>, Failure> {
        let read = self.timed(|control, calls| control.read(calls))?;
        let known = devices.iter_mut().find(|device| device.pci == read.pci);
        if let Some(known) = known {
            known.clone_from(&read);
        }
        let read = Box::new(read);
        if matches!(self.left, Left::Changed | Left::Read(_)) {
            self.left = Left::Read(read.clone());
        }
        Ok(read)
    }
}
