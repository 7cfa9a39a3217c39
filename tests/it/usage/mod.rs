//! Who uses what: a simulated driver, a kubelet at a real socket with its record, and a `/proc` of files, asked by the observer that ships.

mod away;
mod kubelet;
mod many;
mod moves;
pub(crate) mod rig;
pub(crate) mod served;
