//! Encoding and decoding of the parts `node` and `labels`.

use octavo_model::inventory::{Driver, Machine, NvmlState, VgpuHost};
use octavo_model::label::{LabelKey, LabelValue};
use octavo_node::label_set::LabelSet;

use super::field::{
    FieldResult, parse_field, parse_optional_field, required, required_message, truncate_text,
    truncate_word, unknown_enum_value,
};
use crate::proto::v1;
use crate::proto::v1::nvml::State;

pub(super) fn write(machine: &Machine, state: &NvmlState) -> v1::Node {
    let vgpu = machine.vgpu.as_ref();
    v1::Node {
        product_name: machine.product_name.clone(),
        vgpu_host_driver_version: vgpu.map(|host| host.driver_version.clone()),
        vgpu_host_driver_branch: vgpu.map(|host| host.driver_branch.clone()),
        nvml: Some(write_nvml(state)),
        bus_error: machine.bus_error.clone(),
    }
}

fn write_nvml(nvml: &NvmlState) -> v1::Nvml {
    let (state, reason, call) = match nvml {
        NvmlState::Absent { reason } => (State::Absent, reason.as_str(), ""),
        NvmlState::Loading => (State::Loading, "", ""),
        NvmlState::Ready(_) => (State::Ready, "", ""),
        NvmlState::Lost { reason } => (State::Lost, reason.as_str(), ""),
        NvmlState::Stalled { call, .. } => (State::Stalled, "", call.as_str()),
    };
    let driver = nvml.driver();
    v1::Nvml {
        state: state.into(),
        reason: reason.to_owned(),
        call: call.to_owned(),
        driver_version: driver.map(|driver| driver.version.to_string()),
        cuda_version: driver.and_then(|driver| driver.cuda).map(|version| version.to_string()),
    }
}

pub(super) fn write_labels(labels: &LabelSet) -> v1::Labels {
    v1::Labels {
        labels: labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    }
}

pub(super) fn read(node: v1::Node) -> FieldResult<(Machine, NvmlState)> {
    let vgpu = match (node.vgpu_host_driver_version, node.vgpu_host_driver_branch) {
        (None, None) => None,
        (version, branch) => Some(VgpuHost {
            driver_version: truncate_word(required("vgpu_host_driver_version", version)?),
            driver_branch: truncate_word(required("vgpu_host_driver_branch", branch)?),
        }),
    };
    let machine = Machine {
        product_name: node.product_name.map(truncate_word),
        vgpu,
        bus_error: node.bus_error.map(truncate_text),
    };
    Ok((machine, required_message("nvml", node.nvml, read_nvml)?))
}

fn read_nvml(nvml: v1::Nvml) -> FieldResult<NvmlState> {
    let driver = read_driver(&nvml)?;
    Ok(match nvml.state() {
        State::Absent => NvmlState::Absent { reason: truncate_text(nvml.reason) },
        State::Loading => NvmlState::Loading,
        State::Ready => NvmlState::Ready(required("driver_version", driver)?),
        State::Lost => NvmlState::Lost { reason: truncate_text(nvml.reason) },
        State::Stalled => NvmlState::Stalled { call: truncate_word(nvml.call), driver },
        State::Unspecified => return unknown_enum_value("state", nvml.state),
    })
}

fn read_driver(nvml: &v1::Nvml) -> FieldResult<Option<Driver>> {
    let version = nvml.driver_version.as_deref();
    let Some(version) = parse_optional_field("driver_version", version)? else {
        return Ok(None);
    };
    let cuda = parse_optional_field("cuda_version", nvml.cuda_version.as_deref())?;
    Ok(Some(Driver { version, cuda }))
}

pub(super) fn read_labels(labels: v1::Labels) -> FieldResult<LabelSet> {
    let labels = labels.labels.into_iter().map(|(key, value)| {
        let key: LabelKey = parse_field("labels", &key)?;
        let value: LabelValue = parse_field("labels", &value)?;
        Ok((key, value))
    });
    labels.collect()
}
