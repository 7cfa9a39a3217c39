//! Reports observations to all outputs: the log, labels, the aggregator, commands and the Node.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_engine::executor::ProgressByDevice;
use octavo_hardware::DriverHandle;
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_model::xid::Xid;
use octavo_node::label_set::LabelSet;
use octavo_node::labels::{self, LayoutState, Options};
use octavo_node::sharing::health::XidTable;
use octavo_node::sharing::usage::Usage;
use octavo_node::sharing::{Offers, offer};
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};
use octavo_toolkit::desired::send_if_changed;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, Interval, sleep, sleep_until, timeout};
use tracing::info;

use super::{MIN_SCAN_INTERVAL, Outputs, SHUTDOWN_TIMEOUT};
use crate::cluster::NodeClient;
use crate::control_socket::ControlSocket;
use crate::metrics::LayoutMetrics;
use crate::observation_log::ObservationLog;
use crate::partitioning::Partitioning;
use crate::sharing::Observation;
use crate::sink::{Evidence, LabelSink, Publication, Published, SinkError};
use crate::type_override::PublishDelay;
use crate::xid_log::XidLog;

/// Reports observations to all outputs.
pub(super) struct StatusReporter<'a> {
    pub(super) outputs: Outputs<'a>,
    labels: Options,
    log: ObservationLog,
    metrics: Option<LayoutMetrics>,
    /// Status for commands that watch.
    status: Option<watch::Sender<Arc<NodeLayoutStatus>>>,
    /// Maximum delay until the next report.
    pub(super) next_report: Option<Duration>,
    /// When changed usage is reported that could not be reported immediately.
    usage_due: Option<Instant>,
    /// `None` if Xids are not observed.
    xids: Option<XidLog>,
    began: Instant,
    /// The offers that the sharing backend last reported as current.
    current_offers: Option<Offers>,
    unnamed: PublishDelay,
    /// The last reported inventory.
    compared: Option<Arc<Inventory>>,
    /// The labels of that inventory; `None` if they are not compiled yet.
    label_cache: Option<LabelCache>,
}

/// Labels, with what they depend on besides the inventory.
#[derive(Debug)]
struct LabelCache {
    options: Options,
    offers: Option<Offers>,
    labels: Arc<LabelSet>,
}

/// Source of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The Node: all settings may have changed.
    Node,
    /// The sharing backend or kubelet: the hardware did not change.
    Allocation,
}

impl<'a> StatusReporter<'a> {
    pub(super) fn new(
        outputs: Outputs<'a>,
        labels: Options,
        partitioning: Option<&Partitioning>,
    ) -> Self {
        Self {
            outputs,
            labels,
            log: ObservationLog::default(),
            metrics: partitioning.map(|one| one.metrics().clone()),
            status: None,
            next_report: None,
            usage_due: None,
            xids: None,
            began: Instant::now(),
            unnamed: PublishDelay::new(),
            current_offers: None,
            compared: None,
            label_cache: None,
        }
    }

    /// Also reports Xids.
    pub(super) fn with_xids(mut self, hardware: &DriverHandle, table: XidTable) -> Self {
        self.xids = Some(XidLog::new(hardware, table));
        self
    }

    /// Waits for a change of the Node or the sharing backend, and reports usage meanwhile, which needs no scan.
    pub(super) async fn changed(&mut self) -> Change {
        loop {
            let due = self.usage_due;
            let Outputs { cluster, sharing, usage, .. } = &mut self.outputs;
            let node = async {
                match cluster {
                    Some(cluster) => cluster.changed().await,
                    None => pending().await,
                }
            };
            let allocations = async {
                match sharing {
                    Some(backend) => backend.changed().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = node => return Change::Node,
                () = allocations => return Change::Allocation,
                () = usage_changed(usage) => {}
                () = sleep_until(due.unwrap_or(self.began)), if due.is_some() => {}
            }
            self.report_usage();
        }
    }

    /// Reports a change of the sharing backend, with the devices as of the last scan: pods come and go many times a
    /// minute, and no pod changes what a device is. `None` if a scan is needed nevertheless: there was none yet, or a
    /// device's change waits for pods.
    pub(super) async fn report_allocations(
        &mut self,
        hardware: &DriverHandle,
        partitioning: Option<&Partitioning>,
    ) -> Option<ControlFlow<()>> {
        let inventory = hardware.latest();
        let status = partitioning.map(|one| one.status(&inventory));
        let state = status.as_ref().and_then(|status| status.state.as_ref());
        let is_waited_for = state.is_some_and(|state| *state != Reason::Applied);
        let is_due = partitioning.is_some_and(Partitioning::has_pending_choice);
        if inventory.nvml == NvmlState::Loading || is_waited_for || is_due {
            return None;
        }
        Some(self.report(&inventory, status.as_ref()).await)
    }

    /// Reports usage to the aggregator, if it changed and the minimum interval has passed.
    fn report_usage(&mut self) {
        let Outputs { outbox, usage, .. } = &mut self.outputs;
        let (Some(outbox), Some(usage)) = (outbox, usage) else {
            return;
        };
        let latest = Arc::clone(&usage.borrow_and_update());
        let wait = outbox.set_usage(self.began.elapsed(), Timestamp::now(), &latest);
        self.usage_due = wait.map(|wait| Instant::now() + wait);
    }

    /// Applies the Node's choice of layout. Returns when to check again, if that is before the Node changes.
    pub(super) fn update_node_choice(
        &mut self,
        hardware: &DriverHandle,
        partitioning: Option<&mut Partitioning>,
    ) -> Option<Duration> {
        let cluster = self.outputs.cluster.as_mut()?;
        let (choice, again) = cluster.follow();
        cluster.name(hardware);
        partitioning?.set_node_choice(choice, again.is_some());
        again
    }

    /// Opens the socket for commands, and includes their watchers in reports.
    pub(super) fn listen(&mut self, partitioning: &Partitioning) -> Option<ControlSocket> {
        let socket = partitioning.listen(self.outputs.usage.clone())?;
        self.status = Some(socket.status.clone());
        Some(socket)
    }

    /// Stops evictions before the agent exits, and gives the current round some time to finish.
    pub(super) async fn finish_round(
        &mut self,
        round: impl Future<Output = Option<Duration>>,
    ) -> Option<Duration> {
        if let Some(cluster) = &mut self.outputs.cluster {
            cluster.stop_evictions();
        }
        timeout(SHUTDOWN_TIMEOUT, round).await.unwrap_or_default()
    }

    pub(super) async fn write_final_state(&mut self) {
        if let Some(cluster) = &mut self.outputs.cluster {
            cluster.write_final_state().await;
        }
    }

    /// Reports everything. Breaks if the labels have no reader any more.
    pub(super) async fn report(
        &mut self,
        inventory: &Arc<Inventory>,
        status: Option<&NodeLayoutStatus>,
    ) -> ControlFlow<()> {
        let before = self.compared.replace(Arc::clone(inventory));
        let is_scanned = before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, inventory));
        if before.is_none_or(|before| before != *inventory) {
            self.log.inventory(inventory);
            self.label_cache = None;
        }
        let cluster = self.outputs.cluster.as_mut();
        let drained = cluster.and_then(|cluster| cluster.drain(inventory, status));
        let status = drained.as_ref().or(status);
        let xids = self.xids.as_mut().map(XidLog::report).unwrap_or_default();
        let (shared, sharing_due) = self.reconcile_sharing(inventory, status, is_scanned, &xids);
        let status = shared.as_ref().or(status);
        self.publish_offers(inventory, status);
        self.publish_status(status);
        let labels = self.labels(inventory, status);
        let cluster = self.outputs.cluster.as_ref();
        let is_node_unread = cluster.is_some_and(NodeClient::is_node_unread);
        let is_read = evidence(inventory) == Evidence::Read;
        if let Some(dra) = &mut self.outputs.dra {
            dra.record_errors(self.began.elapsed(), inventory, is_scanned, &xids);
        }
        // The layout that the Node selects determines which GPUs are published.
        if let Some(dra) = self.outputs.dra.as_mut().filter(|_| is_read && !is_node_unread) {
            dra.publish(inventory);
        }
        let delay = self.unnamed.remaining(inventory, is_node_unread);
        if let Some(outbox) = self.outputs.outbox.as_mut().filter(|_| delay.is_none()) {
            outbox.put(inventory, &labels, status);
        }
        self.report_usage();
        self.outputs.liveness.beat();
        let cluster = self.outputs.cluster.as_mut();
        let node_due = cluster.and_then(|cluster| cluster.report(inventory, &labels, status));
        self.next_report = [node_due, sharing_due, delay].into_iter().flatten().min();
        self.publish_labels(inventory, &labels, delay.is_some()).await
    }

    /// Returns the labels of `inventory`, which must be the last reported one. Compiles them only if the inventory, the options or
    /// the offers changed.
    fn labels(
        &mut self,
        inventory: &Inventory,
        status: Option<&NodeLayoutStatus>,
    ) -> Arc<LabelSet> {
        let options = Options { layout: status.and_then(LayoutState::from_status), ..self.labels };
        let offers = &self.current_offers;
        let is_current = |one: &LabelCache| one.options == options && one.offers == *offers;
        if let Some(cached) = self.label_cache.as_ref().filter(|one| is_current(one)) {
            return Arc::clone(&cached.labels);
        }
        let labels = Arc::new(labels::compile(inventory, &options, offers.as_ref()).labels);
        let offers = offers.clone();
        self.label_cache = Some(LabelCache { options, offers, labels: Arc::clone(&labels) });
        labels
    }

    /// Publishes the labels, only where there are none if devices may still get another name. Breaks if they have no
    /// reader any more.
    async fn publish_labels(
        &mut self,
        inventory: &Inventory,
        labels: &LabelSet,
        is_provisional: bool,
    ) -> ControlFlow<()> {
        let mut publication = publication(inventory, labels);
        if is_provisional {
            publication.evidence = Evidence::NotRead;
        }
        let has_responded = self.outputs.cluster.as_ref().is_none_or(NodeClient::has_responded);
        let outcome = self.outputs.sink.publish(publication).await;
        if has_responded && outcome.is_ok() {
            self.outputs.liveness.mark_ready();
        }
        if outcome.as_ref().is_err_and(SinkError::has_no_reader) {
            info!("the process reading standard output has exited; stopping");
            return ControlFlow::Break(());
        }
        self.log.publishing(outcome);
        ControlFlow::Continue(())
    }

    /// Publishes the status as metrics and to commands.
    fn publish_status(&self, status: Option<&NodeLayoutStatus>) {
        let Some(status) = status else { return };
        if let Some(metrics) = &self.metrics {
            metrics.record_status(status);
        }
        if let Some(watched) = &self.status {
            send_if_changed(watched, Arc::new(status.for_commands()));
        }
    }

    /// Compares the current offers with the desired ones. Returns the status with the result, and when to call again.
    fn reconcile_sharing(
        &mut self,
        inventory: &Arc<Inventory>,
        status: Option<&NodeLayoutStatus>,
        is_read: bool,
        xids: &[Xid],
    ) -> (Option<NodeLayoutStatus>, Option<Duration>) {
        let Outputs { sharing, cluster, .. } = &mut self.outputs;
        let Some(backend) = sharing else {
            return (None, None);
        };
        let view = cluster.as_ref().and_then(NodeClient::view);
        let nothing = BTreeSet::new();
        let drained = cluster.as_ref().map_or(&nothing, NodeClient::drained_devices);
        let outcome = backend.reconcile(Observation {
            now: self.began.elapsed(),
            inventory,
            is_read,
            xids,
            status,
            view: view.as_deref(),
            drained,
        });
        if let Some(cluster) = cluster {
            cluster.emit_events(outcome.events);
            cluster.set_plugin_label(outcome.plugin_label);
        }
        self.current_offers = outcome.current_offers;
        let shared = outcome.status.map(|sharing| NodeLayoutStatus {
            sharing: Some(sharing),
            ..status.cloned().unwrap_or_default()
        });
        (shared, outcome.again)
    }

    /// Sends the offers to the observer of usage: the current ones if known, otherwise the layout's.
    fn publish_offers(&self, inventory: &Inventory, status: Option<&NodeLayoutStatus>) {
        let Some(offered) = &self.outputs.offered else {
            return;
        };
        let targets = status.and_then(|status| status.targets.clone());
        let strategy = self.labels.mig_strategy;
        let new = self.current_offers.clone().unwrap_or_else(|| {
            offer::compile(inventory, &targets.unwrap_or_default(), strategy).offers
        });
        send_if_changed(offered, Arc::new(new));
    }

    /// Reports progress and hanging calls while devices are being changed, without scans.
    pub(super) async fn report_progress(
        &mut self,
        hardware: &DriverHandle,
        ticks: &mut Interval,
        progress: &mut watch::Receiver<ProgressByDevice>,
        status: &NodeLayoutStatus,
    ) {
        loop {
            // A running drain is handled as often as otherwise.
            let due = self.next_report;
            tokio::select! {
                _ = ticks.tick() => {}
                () = sleep(due.unwrap_or_default()), if due.is_some() => {}
                changed = progress.changed() => if changed.is_err() {
                    pending::<()>().await;
                },
            }
            let inventory = hardware.latest();
            let now = status_during_change(status, &inventory, &progress.borrow_and_update());
            // There is nothing to report before the first scan has finished.
            if now.layout.is_some() && now.state.is_none() && now.notice.is_none() {
                sleep(MIN_SCAN_INTERVAL).await;
                continue;
            }
            if self.report(&inventory, Some(&now)).await.is_break() {
                return;
            }
            // Steps follow each other faster than any reader needs them.
            sleep(MIN_SCAN_INTERVAL).await;
        }
    }
}

/// Waits for the next observation of usage; pending forever if usage is not observed.
async fn usage_changed(usage: &mut Option<watch::Receiver<Arc<Usage>>>) {
    let Some(usage) = usage else {
        return pending().await;
    };
    if usage.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Returns the status while devices are being changed.
fn status_during_change(
    status: &NodeLayoutStatus,
    inventory: &Inventory,
    board: &ProgressByDevice,
) -> NodeLayoutStatus {
    let mut status = status.clone();
    for (pci, progress) in board {
        let now = DeviceLayoutStatus {
            progress: Some(progress.clone()),
            ..DeviceLayoutStatus::from_state(inventory, *pci, &ApplyState::Applying)
        };
        match status.devices.iter_mut().find(|device| device.pci == *pci) {
            Some(device) => *device = now,
            None => status.devices.push(now),
        }
        status.state = Some(Reason::Applying.into());
    }
    status.devices.sort_by_key(|device| device.pci);
    status
}

pub(super) async fn publish(
    inventory: &Inventory,
    sink: &mut dyn LabelSink,
    labels: &LabelSet,
) -> Result<Published, SinkError> {
    sink.publish(publication(inventory, labels)).await
}

fn publication<'a>(inventory: &'a Inventory, labels: &'a LabelSet) -> Publication<'a> {
    Publication { labels, inventory, evidence: evidence(inventory), now: Timestamp::now() }
}

/// Nothing was read if a call hangs before the driver reported its version, or if the bus was never readable.
fn evidence(inventory: &Inventory) -> Evidence {
    let hides_all = inventory.machine.bus_error.is_some() && inventory.devices.is_empty();
    let hangs = matches!(inventory.nvml, NvmlState::Stalled { driver: None, .. });
    if hides_all || hangs { Evidence::NotRead } else { Evidence::Read }
}
