//! Kinds that a cluster may lack: watched while it has them, and checked periodically while it does not.

use kube::runtime::watcher;
use tokio::time::sleep;

use crate::backoff::ReconnectBackoff;

/// Server-side watch timeout in seconds. Renewing the watch confirms that it works.
const WATCH_TIMEOUT_SECONDS: u32 = 60;
/// Page size in objects.
const PAGE_SIZE: u32 = 200;

/// Configuration of all watches.
pub(crate) fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS).page_size(PAGE_SIZE)
}

/// Calls `watch` with each version in turn, forever. It returns once the cluster does not have the version, and whether
/// the cluster ever had it. Waits after the cluster had none of the versions.
pub(crate) async fn watch_versions<W: Future<Output = bool>>(
    versions: &[&str],
    watch: impl Fn(&str) -> W,
    set_absent: impl Fn(),
) {
    let mut backoff = ReconnectBackoff::default();
    let mut absent = 0;
    for version in versions.iter().cycle() {
        if watch(version).await {
            absent = 0;
            backoff = ReconnectBackoff::default();
        }
        absent += 1;
        if absent >= versions.len() {
            set_absent();
            sleep(backoff.next().unwrap_or_default()).await;
        }
    }
}

/// Returns whether the cluster does not have the kind.
pub(crate) fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 404
}
