//! The node's shell: looks at the hardware, compiles labels, publishes them, and does it again.
//!
//! ```text
//!   hw::Hints -----------+
//!   interval ----------+--> observe --> domain::labels::compile --> LabelSink
//!   shutdown ----------+                 |
//!                                        +--> uplink: the aggregator, in a task of its own
//! ```
//!
//! Nothing here decides anything: what the hardware is comes from `hw`, what the labels are from `domain`. The loop has
//! no state of its own but what it last said in the log, so that a long night of the same trouble is one line and not
//! ten thousand. It ends when it is told to, or when whoever read its output is gone: hardware, driver and disk may
//! fail and come back.

pub mod feature_file;
pub mod sink;
pub mod uplink;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::{Duration, MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use crate::agent::sink::{Claim, LabelSink, Published, SinkError};
use crate::agent::uplink::Outbox;
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Inventory, NvmlState};
use crate::domain::labels::{self, LabelSet, Options};
use crate::hw::Handle;

/// Between two looks at least this long, however often the hardware cries: a storm of Xids is one thing to look at.
const BREATH: Duration = Duration::from_millis(100);

/// What the loop needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often the hardware is looked at when nothing hints at a change.
    pub interval: Duration,
    /// Which labels.
    pub labels: Options,
}

/// Looks once and publishes once; an error is that of the sink.
pub async fn run_once(
    hardware: &Handle,
    sink: &mut dyn LabelSink,
    labels: &Options,
) -> Result<(), SinkError> {
    let inventory = hardware.observe().await;
    Log::default().inventory(&inventory);
    let labels = labels::compile(&inventory, labels).labels;
    publish(&inventory, sink, &labels).await.map(drop)
}

/// Looks and publishes until `shutdown` resolves. What was published stays. What an uplink shall report is put into its
/// `outbox`, which ends the uplink when this ends.
pub async fn run(
    hardware: &Handle,
    sink: &mut dyn LabelSink,
    mut outbox: Option<Outbox>,
    settings: &Settings,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut ticks = interval(settings.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hints = hardware.hints();
    let mut log = Log::default();
    loop {
        // Each arm can be dropped at any time: a tick, a hint and a signal that are not taken now are still there later.
        tokio::select! {
            () = &mut shutdown => break,
            _ = ticks.tick() => {}
            () = hints.changed() => debug!("the hardware hints at a change"),
        }
        let inventory = tokio::select! {
            () = &mut shutdown => break,
            inventory = hardware.observe() => inventory,
        };
        log.inventory(&inventory);
        let labels = labels::compile(&inventory, &settings.labels).labels;
        if let Some(outbox) = &mut outbox {
            outbox.put(&inventory, &labels);
        }
        let outcome = publish(&inventory, sink, &labels).await;
        if outcome.as_ref().is_err_and(SinkError::has_no_reader) {
            info!("nobody reads the labels any more");
            break;
        }
        log.publishing(outcome);
        tokio::select! {
            () = &mut shutdown => break,
            () = sleep(BREATH.min(settings.interval)) => {}
        }
    }
    info!("stopped; the labels stay as they are");
}

async fn publish(
    inventory: &Inventory,
    sink: &mut dyn LabelSink,
    labels: &LabelSet,
) -> Result<Published, SinkError> {
    let claim = claim(&inventory.nvml);
    sink.publish(labels, claim, Timestamp::now()).await
}

/// A call that hangs before the driver said which it is hangs before anything was read.
fn claim(nvml: &NvmlState) -> Claim {
    match nvml {
        NvmlState::Stalled { driver: None, .. } => Claim::Unread,
        NvmlState::Absent { .. }
        | NvmlState::Loading
        | NvmlState::Ready(_)
        | NvmlState::Lost { .. }
        | NvmlState::Stalled {
            driver: Some(_), ..
        } => Claim::Read,
    }
}

/// Remembers what was last said, and says only what is new.
#[derive(Debug, Default)]
struct Log {
    nvml: Option<NvmlState>,
    devices: BTreeMap<PciAddress, String>,
    failure: Option<String>,
}

impl Log {
    fn inventory(&mut self, inventory: &Arc<Inventory>) {
        if self.nvml.as_ref() != Some(&inventory.nvml) {
            say_nvml(&inventory.nvml);
            self.nvml = Some(inventory.nvml.clone());
        }
        let devices: BTreeMap<PciAddress, String> = inventory
            .devices
            .iter()
            .map(|device| (device.pci, describe(device)))
            .collect();
        for (pci, device) in &devices {
            match self.devices.get(pci) {
                None => info!("device: {device}"),
                Some(before) if before != device => info!("device now: {device}"),
                Some(_) => {}
            }
        }
        for (_, gone) in self
            .devices
            .iter()
            .filter(|(pci, _)| !devices.contains_key(pci))
        {
            info!("device gone: {gone}");
        }
        self.devices = devices;
    }

    fn publishing(&mut self, outcome: Result<Published, SinkError>) {
        match outcome {
            Ok(published) => {
                if self.failure.take().is_some() {
                    info!("labels can be published again");
                }
                match published {
                    Published::Changed => info!("labels published"),
                    Published::Refreshed => debug!("the labels' time of expiry moved"),
                    Published::Unchanged => {}
                }
            }
            Err(error) => {
                let failure = chain(&error);
                if self.failure.as_ref() != Some(&failure) {
                    warn!("{failure}; what was published before stays, and it is tried again");
                    self.failure = Some(failure);
                }
            }
        }
    }
}

fn say_nvml(state: &NvmlState) {
    match state {
        NvmlState::Absent { reason } => info!("nvml: absent: {reason}"),
        NvmlState::Loading => info!("nvml: loading"),
        NvmlState::Ready(driver) => info!("nvml: ready, driver {}", driver.version),
        NvmlState::Lost { reason } => warn!("nvml: lost: {reason}"),
        NvmlState::Stalled { call, .. } => {
            warn!("nvml: stalled: {call} does not return; the labels stay as they are");
        }
    }
}

fn describe(device: &crate::domain::inventory::Device) -> String {
    let place = format!("{} {}", device.pci, device.identity);
    match &device.condition {
        Condition::Working => place,
        Condition::Failing { reason } => format!("{place}, failing: {reason}"),
        Condition::PciOnly { kernel_driver } => {
            let driver = kernel_driver.as_deref().unwrap_or("none");
            format!("{place}, seen on the PCI bus only (kernel driver: {driver})")
        }
    }
}
