//! Transactions on a device that does what drivers do, the bad things too.

mod hardware;
mod node;
mod random;
mod tables;
