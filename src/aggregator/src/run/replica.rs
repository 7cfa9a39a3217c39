//! The aggregator as the only replica, or as one of several.
//!
//! ```text
//!  standby: answers probes --Lease acquired--> leader: starts all servers, labels its pod --Lease lost--> exit
//! ```
//!
//! A standby has no state: the agents send theirs to each new leader. The process of a leader that loses the Lease exits, because
//! agents and clients stay connected to it otherwise.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::time::Duration;

use octavo_kube::client::{Program, connect};
use octavo_kube::leader_label::LeaderLabel;
use octavo_kube::lease::{LeadershipHandle, LeaseHolder};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{RunError, RunningAggregator, StartError, start, start_standby};
use crate::settings::AggregatorSettings;

/// Name of the Lease.
const LEASE_NAME: &str = "octavo-serving";
/// Interval between two checks of the labels: a delayed request of a predecessor, or a user, can change them.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Delay after a failed request.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the aggregator until `stop`.
pub async fn run(
    settings: &AggregatorSettings,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let stop = pin!(async {
        stop.await;
        info!("stopping");
    });
    match &settings.cluster.leader_election {
        None => serve(start(settings)?, stop).await,
        Some(pod) => Box::pin(run_replica(settings, pod, stop)).await,
    }
}

/// Runs one of several replicas.
async fn run_replica(
    settings: &AggregatorSettings,
    pod: &str,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), RunError> {
    let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
    let client = connect(kubeconfig, Program::Aggregator).await;
    let client = client.map_err(StartError::LeaderElection)?;
    let namespace = settings.workload.lease_namespace.as_str();
    let (lead, holder) = LeaseHolder::of_pod(client.clone(), (namespace, LEASE_NAME), pod);
    let label = LeaderLabel::new(client, namespace, pod);
    let (end, ended) = watch::channel(false);
    let mut holding = pin!(holder.run(ended));
    let mut replica = pin!(stand_by_and_lead(settings, lead, &label, stop));
    let result = tokio::select! {
        result = replica.as_mut() => result,
        () = holding.as_mut() => return replica.await,
    };
    // Servers that have not stopped end with the process, and the Lease expires after it. Two replicas never serve at the same time.
    if !matches!(result, Err(RunError::NotStopped | RunError::Thread(_))) {
        end.send_replace(true);
        holding.await;
    }
    result
}

async fn stand_by_and_lead(
    settings: &AggregatorSettings,
    mut lead: LeadershipHandle,
    label: &LeaderLabel,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), RunError> {
    info!("standing by until this replica is the leader");
    let has_to_stop = async {
        tokio::select! {
            () = stop.as_mut() => true,
            () = acquired(&mut lead) => false,
        }
    };
    if serve(start_standby(settings)?, has_to_stop).await? {
        return Ok(());
    }
    let leading = async {
        tokio::select! {
            biased;
            () = lead.lost() => Err(RunError::LeaseLost),
            () = stop => Ok(()),
            never = keep_label(label) => match never {},
        }
    };
    serve(start(settings)?, leading).await?
}

/// Waits until `running` has to stop, stops it and returns the output of `until`.
///
/// Stopping blocks this thread, and thereby the renewal of the Lease, for at most five seconds. Another replica can acquire the Lease
/// only five seconds after [`LeadershipHandle`] reports its loss.
async fn serve<T>(
    running: RunningAggregator,
    until: impl Future<Output = T>,
) -> Result<T, RunError> {
    let output = tokio::select! {
        output = until => output,
        name = running.failed() => {
            running.stop();
            return Err(RunError::Thread(name));
        }
    };
    if running.stop() { Ok(output) } else { Err(RunError::NotStopped) }
}

/// Waits until the Lease is acquired.
async fn acquired(lead: &mut LeadershipHandle) {
    while lead.until().is_none() {
        if !lead.changed().await {
            std::future::pending::<()>().await;
        }
    }
}

/// Labels the pod of this process, and no other. Runs until it is dropped.
async fn keep_label(label: &LeaderLabel) -> Infallible {
    let mut is_claimed = false;
    let mut last_error = None;
    loop {
        // The list of a large namespace can exceed the time limit unless it comes from the cache.
        let is_claiming = !is_claimed && last_error.is_none();
        let result = if is_claiming { label.claim().await } else { label.check().await };
        let wait = match result {
            Ok(is_changed) => {
                if is_changed {
                    info!("pod labeled as the leader; the Service selects it");
                }
                is_claimed = true;
                last_error = None;
                CHECK_INTERVAL
            }
            Err(error) => {
                let message = error.to_string();
                if last_error.as_ref() != Some(&message) {
                    warn!(error = %message, "cannot label the pod as the leader; retrying");
                    last_error = Some(message);
                }
                RETRY_INTERVAL
            }
        };
        sleep(wait).await;
    }
}
