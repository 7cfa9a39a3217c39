//! Usage by pod: a simulated driver, a kubelet at a real socket with its checkpoint, and a `/proc` of files, read by
//! the shipped observer.

mod claims;
mod gpm;
mod kubelet;
mod many;
mod process_moves;
pub(crate) mod rig;
pub(crate) mod served;
mod unresponsive;
