//! Handles: numbers with kind, session, GPU and instance.
//!
//! ```text
//!  63      56 55        44 43        32 31             0
//!  |  kind   | generation |    GPU     |  serial number |
//! ```
//!
//! A handle is looked up in the world each time it is used, by the instance's serial number, which is never used again.
//! So a handle outlives neither its instance nor the session and driver it was made under, and no table has to be kept
//! in step with what other processes do.

use std::fmt::{self, Write as _};

use crate::model::Code;

use super::pointer::Argument;

/// The kind of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Gpu = 0x51,
    Mig = 0x52,
    GpuInstance = 0x53,
    ComputeInstance = 0x54,
    EventSet = 0x55,
    GpmSample = 0x57,
    /// A destroyed MIG device; only the stale-handle fault creates these.
    DestroyedMig = 0x56,
}

impl Kind {
    /// Returns whether handles of this kind belong to a GPU; others are objects of the session.
    pub(crate) fn has_gpu(self) -> bool {
        match self {
            Self::Gpu
            | Self::Mig
            | Self::GpuInstance
            | Self::ComputeInstance
            | Self::DestroyedMig => true,
            Self::EventSet | Self::GpmSample => false,
        }
    }
}

/// The parts of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) kind: Kind,
    pub(crate) generation: u16,
    /// Position of the GPU in the world.
    pub(crate) gpu: usize,
    pub(crate) serial: u64,
}

const GENERATION_BITS: u32 = 12;
const GPU_BITS: u32 = 12;
const SERIAL_BITS: u32 = 32;

/// Generations wrap; twelve bits are enough to distinguish a session from its neighbors.
pub(crate) const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(u64);

        impl Handle for $name {
            fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            fn bits(self) -> u64 {
                self.0
            }
        }

        impl Argument for $name {
            fn write(&self, to: &mut String) -> fmt::Result {
                write_handle(self.0, to)
            }

            fn gpu(&self) -> Option<usize> {
                unpack(self.0).filter(|parts| parts.kind.has_gpu()).map(|parts| parts.gpu)
            }
        }
    )*};
}

handles! {
    /// `nvmlDevice_t`: a GPU or a MIG device.
    DeviceHandle,
    /// `nvmlGpuInstance_t`.
    GiHandle,
    /// `nvmlComputeInstance_t`.
    CiHandle,
    /// `nvmlEventSet_t`.
    SetHandle,
    /// `nvmlGpmSample_t`.
    SampleHandle
}

/// Common operations of the handle types.
pub(crate) trait Handle: Copy {
    fn from_bits(bits: u64) -> Self;

    fn bits(self) -> u64;

    fn new(parts: Parts) -> Self {
        Self::from_bits(pack(parts))
    }

    /// `INVALID_ARGUMENT` for null and for every number that was not created in this generation.
    fn parts(self, generation: u16) -> Result<Parts, Code> {
        unpack(self.bits())
            .filter(|parts| parts.generation == generation)
            .ok_or(Code::InvalidArgument)
    }
}

fn pack(parts: Parts) -> u64 {
    let kind = u64::from(parts.kind as u8);
    let generation = u64::from(parts.generation) & GENERATION_MASK;
    let gpu = u64::try_from(parts.gpu).unwrap_or(u64::MAX) & ((1 << GPU_BITS) - 1);
    let serial = parts.serial & ((1 << SERIAL_BITS) - 1);
    kind << (GENERATION_BITS + GPU_BITS + SERIAL_BITS)
        | generation << (GPU_BITS + SERIAL_BITS)
        | gpu << SERIAL_BITS
        | serial
}

fn unpack(bits: u64) -> Option<Parts> {
    let kind = match bits >> (GENERATION_BITS + GPU_BITS + SERIAL_BITS) {
        0x51 => Kind::Gpu,
        0x52 => Kind::Mig,
        0x53 => Kind::GpuInstance,
        0x54 => Kind::ComputeInstance,
        0x55 => Kind::EventSet,
        0x56 => Kind::DestroyedMig,
        0x57 => Kind::GpmSample,
        _ => return None,
    };
    let generation = (bits >> (GPU_BITS + SERIAL_BITS)) & GENERATION_MASK;
    let gpu = (bits >> SERIAL_BITS) & ((1 << GPU_BITS) - 1);
    Some(Parts {
        kind,
        generation: u16::try_from(generation).ok()?,
        gpu: usize::try_from(gpu).ok()?,
        serial: bits & ((1 << SERIAL_BITS) - 1),
    })
}

/// In the call log: `gpu0`, `gpu0/gi#3`; an unknown number is written as it is.
fn write_handle(bits: u64, to: &mut String) -> fmt::Result {
    let Some(parts) = unpack(bits) else {
        return if bits == 0 { to.write_str("null") } else { write!(to, "{bits:#x}") };
    };
    let Parts { gpu, serial, .. } = parts;
    match parts.kind {
        Kind::Gpu => write!(to, "gpu{gpu}"),
        Kind::Mig | Kind::DestroyedMig => write!(to, "gpu{gpu}/mig#{serial}"),
        Kind::GpuInstance => write!(to, "gpu{gpu}/gi#{serial}"),
        Kind::ComputeInstance => write!(to, "gpu{gpu}/ci#{serial}"),
        Kind::EventSet => write!(to, "set{serial}"),
        Kind::GpmSample => write!(to, "sample{serial}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_round_trips_and_no_other_number_is_valid() {
        let parts = Parts { kind: Kind::GpuInstance, generation: 4095, gpu: 300, serial: 7 };
        assert_eq!(GiHandle::new(parts).parts(4095), Ok(parts));
        assert_eq!(GiHandle::new(parts).parts(1), Err(Code::InvalidArgument), "of another session");
        for number in [0, 1, 0x1234_5678, u64::MAX] {
            assert_eq!(DeviceHandle::from_bits(number).parts(0), Err(Code::InvalidArgument));
        }
    }

    #[test]
    fn log_names_handle_by_its_kind() {
        let parts = Parts { kind: Kind::Mig, generation: 1, gpu: 2, serial: 9 };
        let mut text = String::new();
        DeviceHandle::new(parts).write(&mut text).unwrap();
        GiHandle::from_bits(0x10).write(&mut text).unwrap();
        DeviceHandle::from_bits(0).write(&mut text).unwrap();
        assert_eq!(text, "gpu2/mig#90x10null");
    }
}
