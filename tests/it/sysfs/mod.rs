//! Machines as their `/sys` shows them: the shipped programs on trees of files.

mod amd;
pub(crate) mod tree;
