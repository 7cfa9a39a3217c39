//! Latency of calls.
//!
//! The C layer waits for the latency of a call's class. `null` is for tests of logic; `real` has medians measured on
//! hardware, so that timings of a client are realistic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Class of a call by its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallClass {
    /// `nvmlInit`.
    Init,
    /// Any read.
    Query,
    /// Listing profiles, placements and instances, which takes the driver longer.
    MigQuery,
    /// `nvmlDeviceSetMigMode`.
    SetMigMode,
    /// Creating a GPU instance.
    CreateGpuInstance,
    /// Destroying a GPU instance.
    DestroyGpuInstance,
    /// Creating a compute instance.
    CreateComputeInstance,
    /// Destroying a compute instance.
    DestroyComputeInstance,
}

/// Latency per class, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// [`CallClass::Init`].
    pub init_us: u64,
    /// [`CallClass::Query`].
    pub query_us: u64,
    /// [`CallClass::MigQuery`].
    pub mig_query_us: u64,
    /// [`CallClass::SetMigMode`].
    pub set_mig_mode_us: u64,
    /// [`CallClass::CreateGpuInstance`].
    pub create_gpu_instance_us: u64,
    /// [`CallClass::DestroyGpuInstance`].
    pub destroy_gpu_instance_us: u64,
    /// [`CallClass::CreateComputeInstance`].
    pub create_compute_instance_us: u64,
    /// [`CallClass::DestroyComputeInstance`].
    pub destroy_compute_instance_us: u64,
}

impl Latency {
    /// Medians of public measurements.
    ///
    /// Creation and destruction: 300 runs per layout on an A100 (52 ms to create 7g, 120 ms to destroy it, including
    /// process start) and NVML calls timed on an A30 (130-160 ms, 100-110 ms). Init and queries: a driver log of an
    /// H100, where init took 10 ms and a walk over all profiles and placements about 200 ms. The mode change is the
    /// time of a reset.
    pub const REAL: Self = Self {
        init_us: 10_000,
        query_us: 100,
        mig_query_us: 1_000,
        set_mig_mode_us: 1_500_000,
        create_gpu_instance_us: 52_000,
        destroy_gpu_instance_us: 100_000,
        create_compute_instance_us: 20_000,
        destroy_compute_instance_us: 20_000,
    };

    /// Latency of a call of that class under a slowing fault.
    ///
    /// On a machine without latencies the factor applies to the real ones: otherwise the fault would have no effect.
    pub fn slowed(&self, class: CallClass, factor: f64) -> Duration {
        let usual = self.of(class);
        if (factor - 1.0).abs() < f64::EPSILON {
            return usual;
        }
        let base = if usual.is_zero() { Self::REAL.of(class) } else { usual };
        Duration::try_from_secs_f64(base.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    /// Latency of that class.
    pub fn of(&self, class: CallClass) -> Duration {
        Duration::from_micros(match class {
            CallClass::Init => self.init_us,
            CallClass::Query => self.query_us,
            CallClass::MigQuery => self.mig_query_us,
            CallClass::SetMigMode => self.set_mig_mode_us,
            CallClass::CreateGpuInstance => self.create_gpu_instance_us,
            CallClass::DestroyGpuInstance => self.destroy_gpu_instance_us,
            CallClass::CreateComputeInstance => self.create_compute_instance_us,
            CallClass::DestroyComputeInstance => self.destroy_compute_instance_us,
        })
    }
}

impl CallClass {
    /// The class of an NVML function by its name.
    pub fn of_function(name: &str) -> Self {
        let base = name.trim_start_matches("nvml");
        let starts = |prefix: &str| base.starts_with(prefix);
        if starts("Init") {
            Self::Init
        } else if starts("DeviceSetMigMode") {
            Self::SetMigMode
        } else if starts("DeviceCreateGpuInstance") {
            Self::CreateGpuInstance
        } else if starts("GpuInstanceDestroy") {
            Self::DestroyGpuInstance
        } else if starts("GpuInstanceCreateComputeInstance") {
            Self::CreateComputeInstance
        } else if starts("ComputeInstanceDestroy") {
            Self::DestroyComputeInstance
        } else if starts("DeviceGetGpuInstance") || starts("GpuInstanceGet") {
            Self::MigQuery
        } else {
            Self::Query
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_classified_by_their_names() {
        let classes = [
            ("nvmlInit_v2", CallClass::Init),
            ("nvmlDeviceGetUUID", CallClass::Query),
            ("nvmlDeviceGetGpuInstanceProfileInfo", CallClass::MigQuery),
            ("nvmlDeviceCreateGpuInstanceWithPlacement", CallClass::CreateGpuInstance),
            ("nvmlGpuInstanceDestroy", CallClass::DestroyGpuInstance),
            ("nvmlGpuInstanceCreateComputeInstance", CallClass::CreateComputeInstance),
            ("nvmlComputeInstanceDestroy", CallClass::DestroyComputeInstance),
        ];
        for (name, class) in classes {
            assert_eq!(CallClass::of_function(name), class, "{name}");
        }
    }

    #[test]
    fn slow_machine_without_latencies_scales_real_ones() {
        let create = CallClass::CreateGpuInstance;
        let none = Latency::default();
        assert_eq!(none.slowed(create, 1.0), Duration::ZERO);
        assert_eq!(none.slowed(create, 100.0), Duration::from_millis(5200));
        let own = Latency { query_us: 7, ..none };
        assert_eq!(own.slowed(CallClass::Query, 2.0), Duration::from_micros(14));
        assert_eq!(own.slowed(CallClass::Query, f64::MAX), Duration::MAX);
    }

    #[test]
    fn default_has_no_latency_and_real_has_one_per_class() {
        assert_eq!(Latency::default().of(CallClass::Init), Duration::ZERO);
        assert_eq!(Latency::REAL.of(CallClass::CreateGpuInstance), Duration::from_millis(52));
    }
}
