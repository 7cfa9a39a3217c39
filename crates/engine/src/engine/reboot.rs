//! GPU resets and, as the last resort, a node reboot: only if allowed, once per layout, and while no process uses a
//! GPU.

use std::sync::Arc;

use octavo_hardware::DriverHandle;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{DeviceProcesses, Inventory};
use octavo_planner::plan::Cause;
use octavo_planner::reconcile::{ApplyState, ChangeOutcome};
use octavo_toolkit::error::chain;
use tracing::{info, warn};

use super::{DesiredLayout, Engine};
use crate::executor::Outcome;
use crate::{program, usage};

impl Engine {
    /// Waits for a running reset and returns the inventory read after it. Does not wait if nothing is to be changed.
    pub(super) async fn wait_for_running_reset(
        &self,
        hardware: &DriverHandle,
        inventory: &Inventory,
        wanted: DesiredLayout<'_>,
    ) -> Result<Option<Arc<Inventory>>, String> {
        if !self.has_changes(inventory, wanted.targets) {
            return Ok(None);
        }
        self.settings.resets.wait_for_running_reset(hardware, self.reset_deadline).await
    }

    /// Resets the devices that need it, one at a time. Returns the devices that were reset.
    pub(super) async fn reset(
        &self,
        hardware: &DriverHandle,
        outcomes: &mut [Outcome],
    ) -> Vec<PciAddress> {
        let mut reset = Vec::new();
        for outcome in outcomes {
            if let ChangeOutcome::NeedsReset { scope, .. } = &outcome.result {
                let resets = &self.settings.resets;
                let inventory = hardware.latest();
                let done = resets.perform(hardware, &inventory, scope, &self.usage_probe).await;
                reset.extend(done.reset.then_some(outcome.pci));
                outcome.result = done.result;
            }
        }
        reset
    }

    /// Reboots the node if a device needs a reset and a reboot is the only method left.
    pub(super) async fn reboot(
        &mut self,
        inventory: &Inventory,
        layout: &str,
        outcomes: &mut [Outcome],
    ) {
        let Some(program) = self.settings.resets.last_resort_reboot().cloned() else {
            return;
        };
        let waits =
            |outcome: &&mut Outcome| matches!(outcome.result, ChangeOutcome::NeedsReset { .. });
        let mut waiting = outcomes.iter_mut().filter(waits);
        let Some(first) = waiting.next() else {
            return;
        };
        if let Err(cause) = self.authorize_reboot(inventory, layout).await {
            for outcome in std::iter::once(first).chain(waiting) {
                if let ChangeOutcome::NeedsReset { causes, .. } = &mut outcome.result {
                    causes.push(cause.clone());
                }
            }
            return;
        }
        info!(%layout, "rebooting the node to apply a layout");
        // This only starts the reboot, which takes effect with a delay.
        if let Err(reason) = program::run_detached(&program).await {
            warn!(error = %reason, "cannot reboot the node");
        }
    }

    /// Checks that a reboot is allowed now and returns the cause if not. Records the attempt before the reboot, so that
    /// it happens only once.
    async fn authorize_reboot(&self, inventory: &Inventory, layout: &str) -> Result<(), Cause> {
        let state_unknown = |reason: String| Cause::StateUnknown { reason };
        let (holders, unknown_reason) = usage::all_holders(&self.usage_probe, inventory).await;
        if let Some(reason) = unknown_reason {
            return Err(state_unknown(reason));
        }
        let mut devices = inventory.devices.iter();
        let unknown = devices.any(|device| {
            device.mig.state().is_some() && device.usage() == DeviceProcesses::Unknown
        });
        if unknown || !holders.is_empty() {
            return Err(Cause::DeviceInUse { holders });
        }
        let tried =
            self.store.last_reboot_layout().map_err(|error| state_unknown(chain(&error)))?;
        if tried.as_deref() == Some(layout) {
            let reason = "the node was already rebooted for this layout, without success";
            return Err(state_unknown(reason.to_owned()));
        }
        let recorded = self.store.record_reboot(layout);
        recorded.map_err(|error| state_unknown(chain(&error)))
    }

    /// Forgets the recorded reboot when every device is applied, so that a later change may reboot again.
    pub(super) fn forget_reboot(&self) {
        let mut states = self.node.states();
        if states.all(|(_, state)| *state == ApplyState::Ended(ChangeOutcome::Applied))
            && let Err(error) = self.store.clear_reboot()
        {
            warn!("{}", chain(&error));
        }
    }
}
