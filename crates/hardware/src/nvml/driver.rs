//! Reads all devices. Looks up each handle once and then reads the values that change.

use std::sync::Arc;

use nvml_wrapper::Nvml;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Driver};
use octavo_model::reading::Reading;

use crate::calls::CallWatch;
use crate::error::{DriverError, Remedy};
use crate::nvml::control::NvmlControl;
use crate::nvml::device::{KnownDevice, observe_one};
use crate::nvml::events::NvmlEvents;
use crate::nvml::session::{DeviceHandle, Session};
use crate::nvml::{links, readings};
use crate::{EventSource, GpuControl, GpuDriver, Observation, UnidentifiedDevice};

/// An initialized NVML library.
#[derive(Debug)]
pub(super) struct NvmlDriver {
    nvml: Arc<Nvml>,
    driver: Driver,
    /// Devices by NVML index, after their first successful lookup.
    devices: Vec<Option<KnownDevice>>,
}

impl NvmlDriver {
    pub(super) fn new(nvml: Arc<Nvml>, driver: Driver) -> Self {
        Self { nvml, driver, devices: Vec::new() }
    }

    /// Returns the devices with a known handle.
    fn handles(&self) -> Vec<(PciAddress, DeviceHandle)> {
        let known = self.devices.iter().flatten();
        known.map(|known| (known.pci, known.handle)).collect()
    }
}

impl GpuDriver for NvmlDriver {
    fn observe(&mut self, calls: &CallWatch) -> Result<Observation, DriverError> {
        let nvml = Arc::clone(&self.nvml);
        let session = Session::new(&nvml, calls);
        let count = session.wrapped("nvmlDeviceGetCount_v2", || nvml.device_count())?;
        if u32::try_from(self.devices.len()) != Ok(count) {
            // A device was added or removed, which shifts the indices of others.
            self.devices.clear();
            self.devices.resize_with(count as usize, || None);
        }
        let mut devices = Vec::new();
        let mut unnamed = Vec::new();
        for (index, slot) in (0_u32..).zip(&mut self.devices) {
            match observe_one(session, index, slot) {
                Ok(device) => devices.push(device),
                Err(error) if error.remedy() == Remedy::Reinitialize => return Err(error),
                Err(error) => unnamed.push(UnidentifiedDevice { index, reason: error.to_string() }),
            }
        }
        links::group_by_p2p(session, &self.handles(), &mut devices)?;
        Ok(Observation { driver: self.driver.clone(), devices, unidentified: unnamed })
    }

    fn readings(
        &mut self,
        last: &[Device],
        calls: &CallWatch,
    ) -> Result<Vec<Reading>, DriverError> {
        let session = Session::new(&self.nvml, calls);
        let known = self.devices.iter().flatten();
        let working = known.filter_map(|known| {
            let device = last.iter().find(|device| device.pci == known.pci)?;
            (device.condition == Condition::Working).then_some((known, device))
        });
        working.map(|(known, device)| readings::read(session, known, device)).collect()
    }

    fn events(&mut self, calls: &CallWatch) -> Result<Option<Box<dyn EventSource>>, DriverError> {
        let session = Session::new(&self.nvml, calls);
        let events = NvmlEvents::register(&self.nvml, session, &self.handles())?;
        Ok(events.map(|events| Box::new(events) as Box<dyn EventSource>))
    }

    fn controls<'a>(&'a mut self, devices: &[PciAddress]) -> Vec<Box<dyn GpuControl + 'a>> {
        let nvml = &self.nvml;
        let controls = (0_u32..)
            .zip(&mut self.devices)
            .filter_map(|(index, slot)| NvmlControl::new(nvml, index, slot));
        controls
            .filter(|control| devices.contains(&control.pci()))
            .map(|control| Box::new(control) as Box<dyn GpuControl + 'a>)
            .collect()
    }
}
