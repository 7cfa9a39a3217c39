//! Decoding of the part `layout`, with limits on text lengths.

use octavo_fleet::fleet::{
    DeviceLayout, LayoutStatus, MAX_LAYOUT_DEVICES, MAX_TEXT_BYTES, MAX_WORD_BYTES,
};
use octavo_planner::reconcile::ChangeProgress;

use super::field::{FieldResult, at_most, bounded_text, each, optional_text, parse_field};
use crate::proto::v1;

pub(super) fn read(layout: v1::Layout) -> FieldResult<LayoutStatus> {
    let mut devices = each("devices", MAX_LAYOUT_DEVICES, layout.devices, device)?;
    devices.sort_by_key(|device| device.pci);
    Ok(LayoutStatus {
        layout: optional_text("layout", MAX_WORD_BYTES, layout.layout)?,
        is_manual: layout.by_hand,
        plan: optional_text("plan", MAX_WORD_BYTES, layout.plan)?,
        state: optional_text("state", MAX_WORD_BYTES, layout.state)?,
        notice: optional_text("notice", MAX_TEXT_BYTES, layout.notice)?,
        drain: optional_text("drain", MAX_TEXT_BYTES, layout.drain)?,
        devices,
    })
}

fn device(device: v1::LayoutDevice) -> FieldResult<DeviceLayout> {
    let progress = device.progress.map(progress).transpose();
    Ok(DeviceLayout {
        pci: parse_field("pci", &device.pci)?,
        name: bounded_text("name", MAX_WORD_BYTES, device.name)?,
        state: bounded_text("state", MAX_WORD_BYTES, device.state)?,
        message: bounded_text("message", MAX_TEXT_BYTES, device.message)?,
        progress: progress.map_err(|error| error.within("progress"))?,
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
