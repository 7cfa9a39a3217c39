//! Decoding of the part `layout`, with limits on text lengths.

use super::field::{Read, each, parsed, text, text_if_there, within};
use crate::domain::fleet::{DeviceLayout, LONGEST_TEXT, LONGEST_WORD, LayoutStatus, MOST_DEVICES};
use crate::domain::reconcile::Progress;
use crate::proto::v1;

pub(super) fn read(layout: v1::Layout) -> Read<LayoutStatus> {
    let mut devices = each("devices", MOST_DEVICES, layout.devices, device)?;
    devices.sort_by_key(|device| device.pci);
    Ok(LayoutStatus {
        layout: text_if_there("layout", LONGEST_WORD, layout.layout)?,
        by_hand: layout.by_hand,
        plan: text_if_there("plan", LONGEST_WORD, layout.plan)?,
        state: text_if_there("state", LONGEST_WORD, layout.state)?,
        notice: text_if_there("notice", LONGEST_TEXT, layout.notice)?,
        drain: text_if_there("drain", LONGEST_TEXT, layout.drain)?,
        devices,
    })
}

fn device(device: v1::LayoutDevice) -> Read<DeviceLayout> {
    let progress = device.progress.map(progress).transpose();
    Ok(DeviceLayout {
        pci: parsed("pci", &device.pci)?,
        name: text("name", LONGEST_WORD, device.name)?,
        state: text("state", LONGEST_WORD, device.state)?,
        message: text("message", LONGEST_TEXT, device.message)?,
        progress: progress.map_err(|error| error.within("progress"))?,
    })
}

fn progress(progress: v1::LayoutProgress) -> Read<Progress> {
    within("done", progress.done, progress.steps)?;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Progress {
        doing: text("doing", LONGEST_TEXT, progress.doing)?,
        done: count(progress.done),
        steps: count(progress.steps),
        back: progress.back,
    })
}
