//! `nvidia-mig-parted`: ours beside NVIDIA's own on the same simulated GPUs, and each defect of NVIDIA's that ours does not
//! have.
//!
//! Of the defects of nvidia-mig-manager, three are about pausing and waking its clients within one long-lived process
//! (flags that are never reset, waiting for pods for ever, a condition variable outside a loop). They cannot happen in this
//! program: it pauses nobody itself, keeps nothing from one run to the next but the journal, and its hooks have an end.

mod beside;
mod node;
