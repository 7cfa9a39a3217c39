//! Machines as their `/sys` shows them: the shipped programs on trees of files.

pub(crate) mod tree;
