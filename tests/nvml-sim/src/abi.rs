//! The C interface: every function of NVML's header, by name, on top of the model.
//!
//! ```text
//!  C caller ── exported function ── call::gate ── body ── World
//!                   │                  │
//!                pointer            log, faults, latency
//! ```
//!
//! A simulated function is a few lines in the module of its subject; [`stubs`] has all others. The wrappers of
//! [`pointer`] hold nearly all of the `unsafe`: bodies see checked values and answer a `Code`.

mod call;
mod compute_instance;
mod event;
mod event_set;
mod export;
mod field_value;
mod gpm;
mod gpm_sample;
mod gpu_instance;
mod handle;
mod health;
mod identity;
mod library;
mod log;
mod memory;
mod mig;
mod pointer;
mod session;
mod setting;
mod strings;
mod stubs;
mod system;
mod topology;
mod watch;
