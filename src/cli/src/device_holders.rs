//! Processes and pods that use the devices of a plan.

use std::path::Path;
use std::sync::Arc;

use octavo_hardware::holders;
use octavo_model::holder::{self, Holder};
use octavo_model::inventory::{Device, Inventory, Vendor};
use octavo_toolkit::error::chain;

/// An inventory, the holders of its devices, and notes on them.
#[derive(Debug)]
pub(super) struct DeviceHolders {
    pub(super) inventory: Arc<Inventory>,
    pub(super) holders: Vec<Holder>,
    pub(super) notes: String,
}

/// Returns the holders in a recording: only the processes that the driver reported then.
pub(super) fn recorded(inventory: Arc<Inventory>) -> DeviceHolders {
    DeviceHolders { holders: holder::of(&inventory), inventory, notes: String::new() }
}

/// Returns the holders on this machine, whose process file system is at `root`: processes that the driver reports, and
/// processes that have a GPU or a partition open. If the latter cannot be determined, that is noted for every device,
/// so that all of it counts as in use.
pub(super) fn live(inventory: Arc<Inventory>, root: &Path) -> DeviceHolders {
    let mut users = recorded(inventory);
    holders::describe(root, &mut users.holders);
    let devices: Vec<&Device> = users.inventory.devices.iter().collect();
    match holders::open(root, &devices) {
        Ok(mut open) => {
            holders::describe(root, &mut open);
            users.holders = holder::merge_holders(users.holders, open);
        }
        Err(error) => {
            users.notes = format!(
                "warning: cannot determine which processes have a GPU open, so all devices count \
                 as in use\n  because: {}\n",
                chain(&error)
            );
            mark_unknown(Arc::make_mut(&mut users.inventory), &chain(&error));
        }
    }
    users
}

fn mark_unknown(inventory: &mut Inventory, error: &str) {
    let devices = inventory.devices.iter_mut();
    for device in devices.filter(|device| device.vendor == Vendor::Nvidia) {
        device.record_unknown_users(error.to_owned());
    }
}
