//! Encoding and decoding of the part `sharing`. Decoding limits every text and list.

use octavo_fleet::fleet::{
    MAX_CONFIG_BYTES, MAX_RESOURCES, MAX_RETAINED, MAX_TEXT_BYTES, MAX_UNITS, MAX_WORD_BYTES,
    SharingReport,
};
use octavo_model::holder::DeviceAllocation;
use octavo_model::resource::ShareId;
use octavo_model::sharing_status::{HandOff, Health, ResourceStatus, RetainedId, UnitStatus};

use super::error::{FieldError, StatusProblem};
use super::field::{FieldResult, bounded_text, each, optional_text, parse_field};
use crate::proto::v1;

pub(super) fn write(report: &SharingReport) -> v1::Sharing {
    let hand_off = report.hand_off.as_ref();
    v1::Sharing {
        mode: report.mode.clone(),
        state: report.state.clone(),
        message: report.message.clone(),
        resources: report.resources.iter().map(write_resource).collect(),
        kept: report.retained.iter().map(write_kept).collect(),
        plugin_config_key: hand_off.map(|told| told.key.clone()),
        plugin_config: hand_off.map(|told| told.config.clone()),
        plugin_config_named: report.named.clone(),
    }
}

fn write_resource(resource: &ResourceStatus) -> v1::SharedResource {
    let units = resource.units.iter().map(|unit| v1::SharedUnit {
        uuid: unit.uuid.clone(),
        replicas: unit.replicas,
        unhealthy: match &unit.health {
            Health::Healthy => None,
            Health::Unhealthy { reason } => Some(reason.clone()),
        },
    });
    v1::SharedResource {
        name: resource.name.to_string(),
        wanted: resource.wanted,
        allocatable: resource.allocatable,
        units: units.collect(),
    }
}

fn write_kept(kept: &RetainedId) -> v1::KeptShare {
    v1::KeptShare {
        id: kept.id.to_string(),
        namespace: kept.by.namespace.clone(),
        pod: kept.by.pod.clone(),
        container: kept.by.container.clone(),
        resource: kept.by.resource.clone(),
    }
}

pub(super) fn read(sharing: v1::Sharing) -> FieldResult<SharingReport> {
    Ok(SharingReport {
        mode: bounded_text("mode", MAX_WORD_BYTES, sharing.mode)?,
        state: bounded_text("state", MAX_WORD_BYTES, sharing.state)?,
        message: optional_text("message", MAX_TEXT_BYTES, sharing.message)?,
        resources: each("resources", MAX_RESOURCES, sharing.resources, read_resource)?,
        retained: each("kept", MAX_RETAINED, sharing.kept, read_kept)?,
        hand_off: hand_off(sharing.plugin_config_key, sharing.plugin_config)?,
        named: optional_text(
            "plugin_config_named",
            MAX_WORD_BYTES,
            sharing.plugin_config_named,
        )?,
    })
}

/// Requires both or neither: a key without a configuration would refer to nothing, and a configuration without a key
/// could not be stored.
fn hand_off(key: Option<String>, config: Option<String>) -> FieldResult<Option<HandOff>> {
    let missing = |field| Err(FieldError::new(field, StatusProblem::Missing));
    match (key, config) {
        (None, None) => Ok(None),
        (Some(_), None) => missing("plugin_config"),
        (None, Some(_)) => missing("plugin_config_key"),
        (Some(key), Some(config)) => Ok(Some(HandOff {
            key: bounded_text("plugin_config_key", MAX_WORD_BYTES, key)?,
            config: bounded_text("plugin_config", MAX_CONFIG_BYTES, config)?,
        })),
    }
}

fn read_resource(resource: v1::SharedResource) -> FieldResult<ResourceStatus> {
    Ok(ResourceStatus {
        name: parse_field("name", &resource.name)?,
        wanted: resource.wanted,
        allocatable: resource.allocatable,
        units: each("units", MAX_UNITS, resource.units, read_unit)?,
    })
}

fn read_unit(unit: v1::SharedUnit) -> FieldResult<UnitStatus> {
    let reason = optional_text("unhealthy", MAX_TEXT_BYTES, unit.unhealthy)?;
    Ok(UnitStatus {
        uuid: bounded_text("uuid", MAX_WORD_BYTES, unit.uuid)?,
        replicas: unit.replicas,
        health: reason.map_or(Health::Healthy, |reason| Health::Unhealthy { reason }),
    })
}

fn read_kept(kept: v1::KeptShare) -> FieldResult<RetainedId> {
    let id: ShareId = parse_field("id", &kept.id)?;
    Ok(RetainedId {
        by: DeviceAllocation {
            namespace: bounded_text("namespace", MAX_WORD_BYTES, kept.namespace)?,
            pod: bounded_text("pod", MAX_WORD_BYTES, kept.pod)?,
            container: bounded_text("container", MAX_WORD_BYTES, kept.container)?,
            resource: bounded_text("resource", MAX_WORD_BYTES, kept.resource)?,
            device_id: id.to_string(),
        },
        id,
    })
}
