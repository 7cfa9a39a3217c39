//! Layouts of the simulated nodes: as a file for the agents, and as a table for the checks.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, MigState};

/// A layout, as profile ids of the instances of each GPU. `None`: the layout does not cover the GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayoutRow {
    pub(crate) name: &'static str,
    pub(crate) gpus: [Option<&'static [u32]>; GPUS],
}

/// Number of GPUs of each node.
pub(crate) const GPUS: usize = 2;

/// A layout that the hardware cannot provide on the second GPU.
pub(crate) const IMPOSSIBLE: &str = "impossible";

/// The layouts that users and policies choose.
pub(crate) const LAYOUTS: &[LayoutRow] = &[
    LayoutRow { name: "serving", gpus: [Some(&[19, 19, 19, 19, 19, 19, 19]), None] },
    LayoutRow { name: "training", gpus: [Some(&[0]), None] },
    LayoutRow { name: "inference", gpus: [Some(&[9, 14, 19, 19]), None] },
    LayoutRow { name: "pair", gpus: [Some(&[9, 9]), Some(&[14, 14, 14])] },
    LayoutRow { name: IMPOSSIBLE, gpus: [Some(&[14, 14, 14]), Some(&[5, 9, 19])] },
];

/// The same layouts as a file.
pub(crate) const LAYOUT_FILE: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  serving:
  - {devices: [0], mig: {1g.10gb: 7}}
  training:
  - {devices: [0], mig: {7g.80gb: 1}}
  inference:
  - {devices: [0], mig: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}
  pair:
  - {devices: [0], mig: {3g.40gb: 2}}
  - {devices: [1], mig: {2g.20gb: 3}}
  impossible:
  - {devices: [0], mig: {2g.20gb: 3}}
  - {devices: [1], mig: {4g.40gb: 1, 3g.40gb: 1, 1g.10gb: 1}}
";

/// The row of a layout.
pub(crate) fn layout(name: &str) -> Option<&'static LayoutRow> {
    LAYOUTS.iter().find(|row| row.name == name)
}

/// Number of the GPU at this address.
pub(crate) fn gpu_number(pci: PciAddress) -> Option<usize> {
    (0..GPUS).find(|number| gpu_address(*number) == pci)
}

/// Address of a GPU.
pub(crate) fn gpu_address(number: usize) -> PciAddress {
    PciAddress::new(0, u8::try_from(number + 1).unwrap_or_default(), 0, 0)
        .unwrap_or_else(|| unreachable!("a bus number is valid"))
}

impl LayoutRow {
    /// Returns whether a GPU has exactly the instances of the layout, each with one compute instance; `true` for a GPU
    /// that the layout does not cover.
    pub(crate) fn is_on(&self, number: usize, device: &Device) -> bool {
        let Some(wanted) = self.gpus[number] else { return true };
        device.mig.state().is_some_and(|state| is_whole(state) && profiles(state) == wanted)
    }
}

fn is_whole(state: &MigState) -> bool {
    state.gpu_instances.iter().all(|one| one.compute_instances.len() == 1)
}

fn profiles(state: &MigState) -> Vec<u32> {
    let mut ids: Vec<u32> = state.gpu_instances.iter().map(|one| one.profile_id).collect();
    ids.sort_unstable();
    ids
}
