//! Builds what partitions the node out of settings.

use std::path::Path;
use std::sync::Arc;

use octavo::agent::partitioning::Partitioning;
use octavo::apply::engine::Settings;
use octavo::apply::reset::Resets;
use octavo::apply::witness::{Node, Witness};
use octavo::book::{Book, BookError};
use octavo::config::agent::PartitioningSettings;
use octavo::domain::reconcile::Limits;

/// What gives the node its layout.
pub(crate) fn new(
    settings: &PartitioningSettings,
    sys_root: &Path,
) -> Result<Partitioning, BookError> {
    let book = settings
        .layouts()
        .map_or_else(|| Ok(Book::default()), Book::open)?;
    let witness: Arc<dyn Witness> = Arc::new(Node {
        proc_root: settings.proc_root().to_owned(),
        pod_resources: settings.pod_resources().to_owned(),
    });
    let program = settings.nvidia_smi();
    let how = Settings {
        policy: settings.policy(),
        drift: settings.drift(),
        limits: Limits::default(),
        resets: Resets {
            nvidia_smi: program.exists().then(|| program.to_owned()),
            sysfs: settings.sysfs_reset().then(|| sys_root.to_owned()),
        },
        by: "agent",
    };
    let folder = settings.state_dir().to_owned();
    let layout = settings.layout().map(ToOwned::to_owned);
    Ok(Partitioning::new(folder, how, witness, book, layout))
}
