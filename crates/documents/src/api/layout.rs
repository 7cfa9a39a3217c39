//! Conversion of node and device layout states to the REST API.

use octavo_fleet::fleet::{DeviceLayout, LayoutSummary};

use super::{DeviceLayoutJson, LayoutRow, ProgressJson, StepsJson};

impl From<&LayoutSummary> for LayoutRow {
    fn from(layout: &LayoutSummary) -> Self {
        Self {
            name: layout.layout.clone(),
            by_hand: layout.is_manual,
            state: layout.state.clone(),
            message: layout.message.clone(),
            drain: layout.drain.clone(),
            plan: layout.plan.clone(),
            progress: layout
                .progress
                .map(|(done, steps)| StepsJson { done, steps }),
            devices: Vec::new(),
        }
    }
}

impl From<&DeviceLayout> for DeviceLayoutJson {
    fn from(device: &DeviceLayout) -> Self {
        Self {
            pci: device.pci.to_string(),
            name: device.name.clone(),
            state: device.state.clone(),
            message: device.message.clone(),
            progress: device.progress.as_ref().map(|progress| ProgressJson {
                doing: progress.current_step.clone(),
                done: progress.done,
                steps: progress.steps,
                back: progress.back,
            }),
        }
    }
}
