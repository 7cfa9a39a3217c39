//! Drawings of known topologies.

use octavo_model::examples::gpu;
use octavo_model::inventory::{Amd, DriverLayout, NvLink};

use super::*;

/// GPUs with these NUMA nodes.
fn gpus(numa: &[Option<u32>]) -> Vec<Device> {
    let device = |(number, numa): (u8, &Option<u32>)| {
        let mut device = gpu();
        device.pci = pci(number);
        device.index = Some(number.into());
        device.numa_node = *numa;
        device
    };
    (0..).zip(numa).map(device).collect()
}

fn pci(number: u8) -> PciAddress {
    PciAddress::new(0, number, 0, 0).unwrap()
}

/// Links a device to these remote ends.
fn link(device: &mut Device, remotes: &[LinkRemote]) {
    let links = (0..).zip(remotes).map(|(link, remote)| NvLink { link, remote: *remote });
    device.links = links.collect();
}

fn section(devices: Vec<Device>) -> Option<TopologySection> {
    TopologySection::of(&Inventory { devices, ..Inventory::default() })
}

fn count(drawing: &Drawing, class: &str) -> usize {
    drawing.boxes.iter().filter(|one| one.class == class).count()
}

#[test]
fn device_without_number_is_drawn_with_its_address() {
    let mut devices = gpus(&[Some(0), Some(0)]);
    for device in &mut devices {
        device.index = None;
    }
    let section = section(devices).unwrap();
    let texts: Vec<&str> = section.drawing.texts.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["NUMA node 0", "00:00.0", "01:00.0"]);
    assert_eq!(section.rows[0].name, "GPU 0000:00:00.0");
}

/// Texts of the drawing that are not device names or addresses.
fn labels(drawing: &Drawing) -> Vec<&str> {
    let texts = drawing.texts.iter().map(|one| one.text.as_str());
    texts.filter(|text| !text.starts_with("GPU ") && !text.contains(":00.0")).collect()
}

fn assert_inside(drawing: &Drawing) {
    for one in &drawing.boxes {
        assert!(one.x + one.width <= drawing.width && one.y + one.height <= drawing.height);
    }
    for one in &drawing.texts {
        assert!(one.x <= drawing.width && one.y <= drawing.height, "{one:?}");
    }
}

#[test]
fn switched_gpus_are_one_island_over_their_numa_nodes() {
    let mut devices = gpus(&[Some(0), Some(0), Some(1), Some(1)]);
    let switches: Vec<LinkRemote> =
        (0..4).map(|number| LinkRemote::Switch(pci(100 + number))).collect();
    for device in &mut devices {
        link(device, &switches);
    }
    let section = section(devices).unwrap();
    assert_eq!(section.summary, "4 devices, all linked. NVSwitch: 4 links each to 4 switches.");
    let drawing = &section.drawing;
    assert_eq!(
        [count(drawing, "unit"), count(drawing, "island"), count(drawing, "group")],
        [4, 1, 2]
    );
    assert_eq!(
        labels(drawing),
        ["NVSwitch: 4 links each to 4 switches", "NUMA node 0", "NUMA node 1"]
    );
    assert_eq!(drawing.lines.len(), 4);
    assert_inside(drawing);
    let row = &section.rows[3];
    assert_eq!(
        [&row.name, &row.href, &row.numa, &row.pci, &row.links],
        ["GPU 3", "#device-0000:03:00.0", "1", "0000:03:00.0", "4 to 4 NVSwitches"]
    );
}

#[test]
fn bridged_pairs_are_separate_islands_in_one_row() {
    let mut devices = gpus(&[None; 4]);
    for (number, other) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        link(&mut devices[number], &[LinkRemote::Device(pci(other)); 3]);
    }
    let section = section(devices).unwrap();
    assert_eq!(
        section.summary,
        "4 devices, 2 linked groups: GPU 0, GPU 1 (NVLink: 3 links each); GPU 2, GPU 3 (NVLink: 3 links each)."
    );
    let drawing = &section.drawing;
    assert_eq!([count(drawing, "island"), count(drawing, "group")], [2, 0]);
    let islands: Vec<usize> =
        drawing.boxes.iter().filter(|one| one.class == "island").map(|one| one.y).collect();
    assert_eq!(islands[0], islands[1]);
    assert_eq!(section.rows[2].links, "3 to GPU 3");
    assert_eq!(section.rows[0].numa, NOT_REPORTED);
}

#[test]
fn incomplete_mesh_is_drawn_link_by_link() {
    let mut devices = gpus(&[Some(0); 4]);
    for number in 0..4_u8 {
        let next = LinkRemote::Device(pci((number + 1) % 4));
        let previous = LinkRemote::Device(pci((number + 3) % 4));
        link(&mut devices[usize::from(number)], &[next, next, previous]);
    }
    let section = section(devices).unwrap();
    let drawing = &section.drawing;
    assert_eq!((count(drawing, "island"), drawing.lines.len()), (0, 4));
    assert_eq!(drawing.lines[0].stroke, 2);
    assert_inside(drawing);
    assert_eq!(section.rows[0].links, "2 to GPU 1, 2 to GPU 3");
}

#[test]
fn xgmi_hive_is_an_island() {
    let mut devices = gpus(&[Some(0), Some(1)]);
    for device in &mut devices {
        device.vendor = octavo_model::inventory::Vendor::Amd;
        device.amd = Some(Amd { hive: Some(7), ..Amd::default() });
    }
    let section = section(devices).unwrap();
    assert_eq!(section.summary, "2 devices, all linked. xGMI.");
    assert_eq!(section.rows[0].links, "xGMI hive 0000000000000007");
    assert_eq!(section.drawing.texts[3].text, "GPU 0");
}

#[test]
fn nothing_is_drawn_if_there_is_nothing_to_show() {
    assert!(section(Vec::new()).is_none());
    assert!(section(gpus(&[Some(0)])).is_none());
    let mut unread = gpus(&[None, None]);
    for device in &mut unread {
        let problem = octavo_model::inventory::ReadProblem {
            source: "nvmlDeviceGetNvLinkState".to_owned(),
            error: "Unknown Error".to_owned(),
        };
        device.problems = vec![problem];
    }
    assert!(section(unread.clone()).is_none());
    unread[1].numa_node = Some(1);
    let placed = section(unread).unwrap();
    assert_eq!(placed.summary, "2 devices. It is not reported which devices are linked.");
    assert_eq!(labels(&placed.drawing), ["NUMA node 1", "not reported"]);
    let many = vec![Some(0); 65];
    assert!(section(gpus(&many)).is_none());
    let most = section(gpus(&many[..64])).unwrap();
    assert_eq!((most.rows.len(), count(&most.drawing, "unit")), (64, 64));
}

#[test]
fn neuron_torus_and_ring_are_drawn() {
    let neuron = |count: u32, near: &dyn Fn(u32) -> Vec<u32>| Neuron {
        driver_version: None,
        driver_layout: DriverLayout::Known,
        logical: None,
        ultraserver: BTreeMap::new(),
        devices: (0..count)
            .map(|number| NeuronDevice {
                number,
                connected: Some(near(number)),
                ..NeuronDevice::default()
            })
            .collect(),
        problems: Vec::new(),
    };
    let section = |neuron| {
        TopologySection::of(&Inventory { neuron: Some(neuron), ..Inventory::default() }).unwrap()
    };
    let torus = section(neuron(16, &|number| {
        let (row, column) = (number / 4, number % 4);
        let at = |row: u32, column: u32| row % 4 * 4 + column % 4;
        vec![at(row + 1, column), at(row + 3, column), at(row, column + 1), at(row, column + 3)]
    }));
    assert!(
        torus.summary.starts_with("16 Neuron devices, linked as a 4x4 torus: "),
        "{}",
        torus.summary
    );
    // 24 links inside, and both ends of the 8 links around the edges.
    assert_eq!((count(&torus.drawing, "unit"), torus.drawing.lines.len()), (16, 40));
    assert_inside(&torus.drawing);
    assert_eq!(torus.rows[0].links, "Neuron 4, Neuron 12, Neuron 1, Neuron 3");
    let ring = section(neuron(6, &|number| vec![(number + 1) % 6, (number + 5) % 6]));
    assert_eq!(ring.summary, "6 Neuron devices, linked as a ring.");
    assert_eq!((count(&ring.drawing, "unit"), ring.drawing.lines.len()), (6, 6));
}
