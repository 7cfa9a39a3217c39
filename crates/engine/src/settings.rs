//! Conversion of user settings to engine settings.

use std::path::Path;
use std::sync::Arc;

use octavo_planner::reconcile::{DriftPolicy, Limits};
use octavo_settings::engine::EngineSettings;

use super::engine::Settings;
use super::reset::ResetMethods;
use super::usage::{NodeProbe, UsageProbe};

impl Settings {
    /// Creates engine settings from `settings`. `sys_root` is the mount point of sysfs.
    pub fn new(
        settings: &EngineSettings,
        sys_root: &Path,
        drift: DriftPolicy,
        by: &'static str,
    ) -> Self {
        let program = &settings.nvidia_smi;
        Self {
            policy: settings.policy(),
            drift,
            limits: Limits::default(),
            resets: ResetMethods {
                nvidia_smi: program.exists().then(|| program.clone()),
                sysfs: settings.allow_sysfs_reset.then(|| sys_root.to_owned()),
                reboot: settings.reboot_program().map(Path::to_owned),
                lock: Some(settings.state_dir.join("reset.lock")),
            },
            by,
        }
    }
}

/// Creates the usage probe of this node.
pub fn usage_probe(settings: &EngineSettings) -> Arc<dyn UsageProbe> {
    Arc::new(NodeProbe::new(settings))
}
