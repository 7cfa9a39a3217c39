//! In the making.
use crate::domain::inventory::{Architecture, Identity, PciIds};
use crate::domain::quantity::Mebibytes;
/// Stand-in.
pub fn identify(_: PciIds, _: Option<&str>, _: Option<Mebibytes>) -> Identity {
    Identity::Unknown
}
/// Stand-in.
pub fn architecture(_: PciIds) -> Option<Architecture> {
    None
}
