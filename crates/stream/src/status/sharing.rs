//! Encoding and decoding of the part `sharing`. Decoding limits every text and list.

use octavo_model::reported::Reported;
use octavo_model::sharing_status::{
    HandOffConfig, MAX_CONFIG_BYTES, MAX_RESOURCES, MAX_RETAINED, MAX_UNITS, ResourceStatus,
    RetainedId, SharingStatus, UnitStatus,
};
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES};

use super::field::{FieldResult, bounded_text, each, optional_text, parse_field, required};
use crate::proto::v1;

pub(super) fn write(report: &SharingStatus) -> v1::Sharing {
    let hand_off = report.hand_off.as_ref();
    v1::Sharing {
        mode: report.mode.as_str().to_owned(),
        state: report.state.to_string(),
        message: report.message.clone(),
        resources: report.resources.iter().map(write_resource).collect(),
        covered: report.covered.iter().map(ToString::to_string).collect(),
        claim_shares: report.claim_shares.iter().map(write_unit).collect(),
        kept: report.retained.iter().map(write_retained).collect(),
        plugin_config_key: hand_off.map(|hand_off| hand_off.key.clone()),
        plugin_config: hand_off.map(|hand_off| hand_off.config.clone()),
        plugin_config_named: report.named.clone(),
    }
}

fn write_resource(resource: &ResourceStatus) -> v1::SharedResource {
    v1::SharedResource {
        name: resource.name.to_string(),
        wanted: resource.wanted,
        allocatable: resource.allocatable,
        units: resource.units.iter().map(write_unit).collect(),
    }
}

fn write_unit(unit: &UnitStatus) -> v1::SharedUnit {
    v1::SharedUnit {
        uuid: unit.uuid.clone(),
        replicas: unit.replicas,
        unhealthy: unit.health.clone().into(),
    }
}

fn write_retained(retained: &RetainedId) -> v1::KeptShare {
    v1::KeptShare {
        id: retained.id.to_string(),
        namespace: retained.namespace.clone(),
        pod: retained.pod.clone(),
        container: retained.container.clone(),
        resource: retained.resource.clone(),
    }
}

pub(super) fn read(sharing: v1::Sharing) -> FieldResult<SharingStatus> {
    Ok(SharingStatus {
        mode: Reported::parse(&bounded_text("mode", MAX_WORD_BYTES, sharing.mode)?),
        state: Reported::parse(&bounded_text("state", MAX_WORD_BYTES, sharing.state)?),
        message: optional_text("message", MAX_TEXT_BYTES, sharing.message)?,
        resources: each("resources", MAX_RESOURCES, sharing.resources, read_resource)?,
        covered: each("covered", MAX_UNITS, sharing.covered, |pci| parse_field("pci", &pci))?,
        claim_shares: each("claim_shares", MAX_UNITS, sharing.claim_shares, read_unit)?,
        retained: each("kept", MAX_RETAINED, sharing.kept, read_retained)?,
        hand_off: hand_off(sharing.plugin_config_key, sharing.plugin_config)?,
        named: optional_text("plugin_config_named", MAX_WORD_BYTES, sharing.plugin_config_named)?,
    })
}

/// Requires both or neither: a key without a configuration would refer to nothing, and a configuration without a key
/// could not be stored.
fn hand_off(key: Option<String>, config: Option<String>) -> FieldResult<Option<HandOffConfig>> {
    if key.is_none() && config.is_none() {
        return Ok(None);
    }
    let config = required("plugin_config", config)?;
    let key = required("plugin_config_key", key)?;
    Ok(Some(HandOffConfig {
        key: bounded_text("plugin_config_key", MAX_WORD_BYTES, key)?,
        config: bounded_text("plugin_config", MAX_CONFIG_BYTES, config)?,
    }))
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
    Ok(UnitStatus {
        uuid: bounded_text("uuid", MAX_WORD_BYTES, unit.uuid)?,
        replicas: unit.replicas,
        health: optional_text("unhealthy", MAX_TEXT_BYTES, unit.unhealthy)?.into(),
    })
}

fn read_retained(retained: v1::KeptShare) -> FieldResult<RetainedId> {
    Ok(RetainedId {
        id: parse_field("id", &retained.id)?,
        namespace: bounded_text("namespace", MAX_WORD_BYTES, retained.namespace)?,
        pod: bounded_text("pod", MAX_WORD_BYTES, retained.pod)?,
        container: bounded_text("container", MAX_WORD_BYTES, retained.container)?,
        resource: bounded_text("resource", MAX_WORD_BYTES, retained.resource)?,
    })
}
