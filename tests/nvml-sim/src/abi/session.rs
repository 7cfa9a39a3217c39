//! Sessions: `nvmlInit` is counted, and the last `nvmlShutdown` ends the session and all its handles.

use std::ffi::c_uint;

use super::call::{gate_init, gate_shutdown};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> u32 {
    gate_init("nvmlInit", &[])
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    gate_init("nvmlInit_v2", &[])
}

/// The flags (`NO_GPUS`, `NO_ATTACH`) only relax requirements of the initialization, and there are none here.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(flags: c_uint) -> u32 {
    gate_init("nvmlInitWithFlags", &[&flags])
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    gate_shutdown("nvmlShutdown")
}
