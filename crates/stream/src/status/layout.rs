//! Encoding and decoding of the part `layout`. Decoding limits every text.

use octavo_model::reported::Reported;
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES};
use octavo_planner::reconcile::{
    ChangeProgress, DeviceLayoutStatus, MAX_LAYOUT_DEVICES, NodeLayoutStatus,
};

use super::field::{FieldResult, at_most, bounded_text, each, nested, optional_text, parse_field};
use crate::proto::v1;

pub(super) fn write(layout: &NodeLayoutStatus) -> v1::Layout {
    v1::Layout {
        layout: layout.layout.clone(),
        by_hand: layout.is_manual,
        plan: layout.plan.clone(),
        state: layout.state.as_ref().map(ToString::to_string),
        notice: layout.notice.clone(),
        drain: layout.drain.clone(),
        devices: layout.devices.iter().map(write_device).collect(),
    }
}

fn write_device(device: &DeviceLayoutStatus) -> v1::LayoutDevice {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    v1::LayoutDevice {
        pci: device.pci.to_string(),
        name: device.name.clone(),
        state: device.state.to_string(),
        message: device.message.clone(),
        progress: device.progress.as_ref().map(|progress| v1::LayoutProgress {
            doing: progress.current_step.clone(),
            done: count(progress.done),
            steps: count(progress.steps),
            back: progress.back,
        }),
    }
}

pub(super) fn read(layout: v1::Layout) -> FieldResult<NodeLayoutStatus> {
    let mut devices = each("devices", MAX_LAYOUT_DEVICES, layout.devices, device)?;
    devices.sort_by_key(|device| device.pci);
    Ok(NodeLayoutStatus {
        layout: optional_text("layout", MAX_WORD_BYTES, layout.layout)?,
        is_manual: layout.by_hand,
        plan: optional_text("plan", MAX_WORD_BYTES, layout.plan)?,
        state: optional_text("state", MAX_WORD_BYTES, layout.state)?
            .as_deref()
            .map(Reported::parse),
        notice: optional_text("notice", MAX_TEXT_BYTES, layout.notice)?,
        drain: optional_text("drain", MAX_TEXT_BYTES, layout.drain)?,
        devices,
        ..NodeLayoutStatus::default()
    })
}

fn device(device: v1::LayoutDevice) -> FieldResult<DeviceLayoutStatus> {
    Ok(DeviceLayoutStatus {
        message: bounded_text("message", MAX_TEXT_BYTES, device.message)?,
        progress: nested("progress", device.progress, progress)?,
        ..DeviceLayoutStatus::new(
            parse_field("pci", &device.pci)?,
            bounded_text("name", MAX_WORD_BYTES, device.name)?,
            Reported::parse(&bounded_text("state", MAX_WORD_BYTES, device.state)?),
        )
    })
}

fn progress(progress: v1::LayoutProgress) -> FieldResult<ChangeProgress> {
    at_most("done", progress.done, progress.steps)?;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(ChangeProgress {
        current_step: bounded_text("doing", MAX_TEXT_BYTES, progress.doing)?,
        done: count(progress.done),
        steps: count(progress.steps),
        back: progress.back,
    })
}
