//! Health of a device, and its fabric membership.

use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper_sys::bindings::{
    NVML_GPU_FABRIC_STATE_COMPLETED, field_id, nvmlGpuFabricInfo_v2_t,
};
use octavo_model::inventory::{Fabric, Health, ReadProblem, RecoveryAction, RemappedRows};

use crate::error::{DriverError, NvmlCode};
use crate::nvml::session::{DeviceSession, optional, raw, struct_version, unsigned_field};

/// Reads error counters and the recovery action.
pub(super) fn read(
    gpu: DeviceSession<'_>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Health, DriverError> {
    let ecc = gpu.query("nvmlDeviceGetEccMode", nvml_wrapper::Device::is_ecc_enabled);
    let ecc_enabled = optional(ecc, problems)?.map(|mode| mode.currently_enabled);
    let mut uncorrected_errors = None;
    if ecc_enabled == Some(true) {
        let total = gpu.query("nvmlDeviceGetTotalEccErrors", |device| {
            device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
        });
        uncorrected_errors = optional(total, problems)?;
    }
    Ok(Health {
        ecc_enabled,
        uncorrected_errors,
        remapped_rows: optional(remapped_rows(gpu), problems)?,
        recovery_action: optional(recovery_action(gpu), problems)?,
    })
}

pub(super) fn remapped_rows(gpu: DeviceSession<'_>) -> Result<RemappedRows, DriverError> {
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle comes from this library, and the four numbers are writable until the call returns.
    raw!(gpu, nvmlDeviceGetRemappedRows, |f| unsafe {
        f(
            gpu.handle.0,
            &raw mut correctable,
            &raw mut uncorrectable,
            &raw mut pending,
            &raw mut failed,
        )
    })?;
    Ok(RemappedRows { correctable, uncorrectable, pending: pending != 0, failed: failed != 0 })
}

fn recovery_action(gpu: DeviceSession<'_>) -> Result<RecoveryAction, DriverError> {
    let (status, number) = unsigned_field(gpu, field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)?;
    if status != 0 {
        let code = NvmlCode::Nvml(status);
        // A driver reports a field that it does not know as an invalid argument.
        let code = if code == NvmlCode::INVALID_ARGUMENT { NvmlCode::NOT_SUPPORTED } else { code };
        return Err(DriverError { call: "nvmlDeviceGetFieldValues", code });
    }
    Ok(RecoveryAction::from(number))
}

/// Reads the fabric membership. `None` for a device that has not joined a fabric, or whose cluster UUID is all zeros,
/// which means a fabric within this machine.
pub(super) fn fabric(
    gpu: DeviceSession<'_>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Option<Fabric>, DriverError> {
    let mut info = nvmlGpuFabricInfo_v2_t {
        version: struct_version::<nvmlGpuFabricInfo_v2_t>(2),
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
    };
    // SAFETY: the handle comes from this library; the version tells NVML the size of the structure that it may write.
    let result = raw!(gpu, nvmlDeviceGetGpuFabricInfoV, |f| unsafe {
        f(gpu.handle.0, (&raw mut info).cast())
    });
    let joined = optional(result, problems)?.is_some()
        && u32::from(info.state) == NVML_GPU_FABRIC_STATE_COMPLETED
        && info.status == 0
        && info.clusterUuid != [0; 16];
    Ok(joined
        .then(|| Fabric { cluster_uuid: uuid_text(info.clusterUuid), clique_id: info.cliqueId }))
}

/// Formats the UUID's bytes in order, in groups of the usual lengths.
fn uuid_text(bytes: [u8; 16]) -> String {
    let number = u128::from_be_bytes(bytes);
    let group = |end: u32, digits: usize| {
        let part = (number >> (end * 4)) & ((1 << (digits * 4)) - 1);
        format!("{part:0digits$x}")
    };
    [group(24, 8), group(20, 4), group(16, 4), group(12, 4), group(0, 12)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_uuid_is_formatted_in_byte_order() {
        let bytes: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap() * 17);
        assert_eq!(uuid_text(bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
