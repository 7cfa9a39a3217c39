//! Encoding and decoding of the part `sharing`. Decoding limits every text and list.

use super::error::{FieldError, StatusProblem};
use super::field::{Read, each, parsed, text, text_if_there};
use crate::domain::fleet::{
    LONGEST_CONFIG, LONGEST_TEXT, LONGEST_WORD, MOST_KEPT, MOST_RESOURCES, MOST_UNITS,
    SharingReport,
};
use crate::domain::holder::PodDevice;
use crate::domain::sharing::ShareId;
use crate::domain::sharing::health::Health;
use crate::domain::sharing::status::{HandOff, Kept, ResourceStatus, UnitStatus};
use crate::proto::v1;

pub(super) fn write(report: &SharingReport) -> v1::Sharing {
    let hand_off = report.hand_off.as_ref();
    v1::Sharing {
        mode: report.mode.clone(),
        state: report.state.clone(),
        message: report.message.clone(),
        resources: report.resources.iter().map(write_resource).collect(),
        kept: report.kept.iter().map(write_kept).collect(),
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

fn write_kept(kept: &Kept) -> v1::KeptShare {
    v1::KeptShare {
        id: kept.id.to_string(),
        namespace: kept.by.namespace.clone(),
        pod: kept.by.pod.clone(),
        container: kept.by.container.clone(),
        resource: kept.by.resource.clone(),
    }
}

pub(super) fn read(sharing: v1::Sharing) -> Read<SharingReport> {
    Ok(SharingReport {
        mode: text("mode", LONGEST_WORD, sharing.mode)?,
        state: text("state", LONGEST_WORD, sharing.state)?,
        message: text_if_there("message", LONGEST_TEXT, sharing.message)?,
        resources: each(
            "resources",
            MOST_RESOURCES,
            sharing.resources,
            read_resource,
        )?,
        kept: each("kept", MOST_KEPT, sharing.kept, read_kept)?,
        hand_off: hand_off(sharing.plugin_config_key, sharing.plugin_config)?,
        named: text_if_there(
            "plugin_config_named",
            LONGEST_WORD,
            sharing.plugin_config_named,
        )?,
    })
}

/// Requires both or neither: a key without a configuration would refer to nothing, and a configuration without a key
/// could not be stored.
fn hand_off(key: Option<String>, config: Option<String>) -> Read<Option<HandOff>> {
    let missing = |field| Err(FieldError::new(field, StatusProblem::Missing));
    match (key, config) {
        (None, None) => Ok(None),
        (Some(_), None) => missing("plugin_config"),
        (None, Some(_)) => missing("plugin_config_key"),
        (Some(key), Some(config)) => Ok(Some(HandOff {
            key: text("plugin_config_key", LONGEST_WORD, key)?,
            config: text("plugin_config", LONGEST_CONFIG, config)?,
        })),
    }
}

fn read_resource(resource: v1::SharedResource) -> Read<ResourceStatus> {
    Ok(ResourceStatus {
        name: parsed("name", &resource.name)?,
        wanted: resource.wanted,
        allocatable: resource.allocatable,
        units: each("units", MOST_UNITS, resource.units, read_unit)?,
    })
}

fn read_unit(unit: v1::SharedUnit) -> Read<UnitStatus> {
    let reason = text_if_there("unhealthy", LONGEST_TEXT, unit.unhealthy)?;
    Ok(UnitStatus {
        uuid: text("uuid", LONGEST_WORD, unit.uuid)?,
        replicas: unit.replicas,
        health: reason.map_or(Health::Healthy, |reason| Health::Unhealthy { reason }),
    })
}

fn read_kept(kept: v1::KeptShare) -> Read<Kept> {
    let id: ShareId = parsed("id", &kept.id)?;
    Ok(Kept {
        by: PodDevice {
            namespace: text("namespace", LONGEST_WORD, kept.namespace)?,
            pod: text("pod", LONGEST_WORD, kept.pod)?,
            container: text("container", LONGEST_WORD, kept.container)?,
            resource: text("resource", LONGEST_WORD, kept.resource)?,
            device_id: id.to_string(),
        },
        id,
    })
}
