//! Who uses the devices that a plan is for.

use std::path::Path;
use std::sync::Arc;

use crate::domain::error::chain;
use crate::domain::holder::{self, Holder};
use crate::domain::inventory::{Device, Inventory, Vendor};
use crate::hw::holders;

/// An inventory, who uses its devices, and what is to be said of that.
#[derive(Debug)]
pub(super) struct Users {
    pub(super) inventory: Arc<Inventory>,
    pub(super) holders: Vec<Holder>,
    pub(super) notes: String,
}

/// Those of a recording, which names the processes that the driver named then, and nobody else.
pub(super) fn recorded(inventory: Arc<Inventory>) -> Users {
    Users {
        holders: holder::of(&inventory),
        inventory,
        notes: String::new(),
    }
}

/// Those of this machine, whose process file system is at `root`: whom the driver names, and whoever has a GPU or a partition
/// open. Where the latter cannot be told it is noted for every device, so that all of it counts as in use.
pub(super) fn live(inventory: Arc<Inventory>, root: &Path) -> Users {
    let mut users = recorded(inventory);
    holders::describe(root, &mut users.holders);
    let devices: Vec<&Device> = users.inventory.devices.iter().collect();
    match holders::open(root, &devices) {
        Ok(mut open) => {
            holders::describe(root, &mut open);
            users.holders = holder::beside(users.holders, open);
        }
        Err(error) => {
            users.notes = format!(
                "warning: it cannot be told who has a GPU open, so everything counts as in use\n  because: {}\n",
                chain(&error)
            );
            untold(Arc::make_mut(&mut users.inventory), &chain(&error));
        }
    }
    users
}

fn untold(inventory: &mut Inventory, error: &str) {
    let devices = inventory.devices.iter_mut();
    for device in devices.filter(|device| device.vendor == Vendor::Nvidia) {
        device.users_untold(error.to_owned());
    }
}
