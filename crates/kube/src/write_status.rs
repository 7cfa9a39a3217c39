//! Progress of a task that keeps objects of the API server in a desired state.

use octavo_toolkit::desired::update;
use tokio::sync::watch;
use tracing::warn;

/// Progress and errors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WriteStatus {
    /// The last generation of the desired state that the API server has.
    pub(crate) generation: Option<u64>,
    /// The current error.
    pub(crate) error: Option<String>,
}

impl WriteStatus {
    /// Publishes progress or an error. A new error is logged with `message`.
    pub(crate) fn publish(
        status: &watch::Sender<Self>,
        generation: Option<u64>,
        error: Option<String>,
        message: &str,
    ) {
        update(status, |status| {
            if error != status.error
                && let Some(error) = &error
            {
                warn!(%error, "{message}");
            }
            status.generation = generation.or(status.generation);
            status.error = error;
        });
    }
}
