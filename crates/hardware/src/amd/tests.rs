//! Tests of single values and of the assignment of nodes to devices. Tests of whole machines are in `tests/it/sysfs`.

use std::fs;

use octavo_model::inventory::AmdPartition;
use octavo_model::quantity::Mebibytes;

use super::*;

/// A directory of KFD nodes with these properties.
fn topology(nodes: &[&str]) -> Topology {
    let root = tempfile::tempdir().unwrap();
    for (number, properties) in nodes.iter().enumerate() {
        let directory = root.path().join(format!("class/kfd/kfd/topology/nodes/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("properties"), properties).unwrap();
    }
    Topology::read(&Sysfs::new(root.path().to_owned()))
}

fn reported(at: &str, chip: Option<&str>) -> (PciAddress, AmdReading) {
    let amd = Amd { unique_id: chip.map(ToOwned::to_owned), ..Amd::default() };
    let reported = AmdReading { amd, product_name: None, memory: None, problems: Vec::new() };
    (at.parse().unwrap(), reported)
}

/// Returns the render minors that each device ends up with.
fn minors(nodes: &[&str], devices: &[(&str, Option<&str>)]) -> Vec<Vec<u32>> {
    let mut reported: Vec<_> = devices.iter().map(|(at, chip)| reported(at, *chip)).collect();
    topology(nodes).add_to_devices(&mut reported);
    let each = reported.iter().map(|(_, reported)| &reported.amd.partitions);
    each.map(|parts| parts.iter().map(|part| part.render_minor).collect()).collect()
}

fn node(location: u32, chip: u64, minor: u32) -> String {
    format!("vendor_id 4098\nlocation_id {location}\nunique_id {chip}\ndrm_render_minor {minor}\n")
}

#[test]
fn node_is_assigned_by_address() {
    let nodes = [node(0x2700, 0, 136), node(0x0500, 0, 128)];
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let devices = [("0000:05:00.0", None), ("0000:27:00.0", None)];
    assert_eq!(minors(&nodes, &devices), [[128], [136]]);
}

#[test]
fn partition_nodes_are_assigned_with_and_without_function_numbers() {
    let chip = Some("0000000000000009");
    for parts in [[0x0500, 0x0501, 0x0507], [0x0500, 0x0500, 0x0500]] {
        for (given, known) in [(9, chip), (0, None), (0, chip), (9, None)] {
            let nodes = [130, 128, 129].into_iter().zip(parts);
            let nodes: Vec<String> = nodes.map(|(minor, at)| node(at, given, minor)).collect();
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let found = minors(&nodes, &[("0000:05:00.0", known)]);
            assert_eq!(found, [[128, 129, 130]], "{parts:x?} {given} {known:?}");
        }
    }
    // Some kernels put the number of the node above the location.
    let high = node(0x3000_0500, 0, 128);
    assert_eq!(minors(&[&high], &[("0000:05:00.0", None)]), [[128]]);
}

#[test]
fn node_with_unknown_chip_id_is_not_assigned() {
    let stranger = node(0x0500, 8, 128);
    let known = [("0000:05:00.0", Some("0000000000000009"))];
    assert!(minors(&[&stranger], &known)[0].is_empty());
    let own = node(0x0900, 9, 128);
    assert_eq!(
        minors(&[&own], &known),
        [[128]],
        "a device at a new address is identified by its chip"
    );
    let twice = [known[0], ("0000:06:00.0", known[0].1)];
    assert!(minors(&[&own], &twice).iter().all(Vec::is_empty), "two chips with the same ID");
}

#[test]
fn gfx_target_has_hexadecimal_minor_and_stepping() {
    for (version, target) in [
        ("90402", Some("gfx942")),
        ("90010", Some("gfx90a")),
        ("90008", Some("gfx908")),
        ("90500", Some("gfx950")),
        ("100300", Some("gfx1030")),
        ("110001", Some("gfx1101")),
        ("0", None),
        ("9916", None),
        ("91600", None),
        ("18446744073709551615", None),
        ("-1", None),
    ] {
        let mut devices = [reported("0000:05:00.0", None)];
        let properties =
            format!("vendor_id 4098\nlocation_id 1280\ngfx_target_version {version}\n");
        topology(&[&properties]).add_to_devices(&mut devices);
        assert_eq!(devices[0].1.amd.gfx_target.as_deref(), target, "{version}");
    }
}

#[test]
fn compute_units_are_summed_if_all_partitions_report_them() {
    let part = |minor, units: &str| format!("{}{units}", node(0x0500, 0, minor));
    let known = "simd_count 152\nsimd_per_cu 4\n";
    for (second, sum) in [(known, Some(76)), ("simd_count 152\nsimd_per_cu 0\n", None)] {
        let mut devices = [reported("0000:05:00.0", None)];
        topology(&[&part(128, known), &part(129, second)]).add_to_devices(&mut devices);
        assert_eq!(devices[0].1.amd.compute_units, sum);
    }
}

#[test]
fn missing_partitions_are_reported() {
    let part = |minor| AmdPartition { render_minor: minor, compute_units: None, memory: None };
    for (mode, parts, message) in [
        (None, 1, None),
        (Some("SPX"), 1, None),
        (Some("CPX"), 8, None),
        (None, 0, Some("no node belongs to this device; its partitions are unknown")),
        (Some("QPX"), 3, Some("this device has 3 nodes instead of 4")),
    ] {
        let nodes: Vec<String> = (0..parts).map(|n| node(0x0500, 0, 128 + n)).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let mut devices = [reported("0000:05:00.0", None)];
        devices[0].1.amd.compute = mode
            .map(|mode: &str| PartitioningMode { current: mode.to_owned(), available: Vec::new() });
        topology(&nodes).add_to_devices(&mut devices);
        let problems: Vec<&str> = devices[0].1.problems.iter().map(|p| p.error.as_str()).collect();
        assert_eq!(problems, message.into_iter().collect::<Vec<_>>(), "{mode:?}");
        let expected: Vec<AmdPartition> = (0..parts).map(|n| part(128 + n)).collect();
        assert_eq!(devices[0].1.amd.partitions, expected);
    }
}

#[test]
fn unreadable_node_is_reported_if_a_partition_may_be_missing() {
    let message = |mode: Option<&str>| {
        let mut devices = [reported("0000:05:00.0", None)];
        devices[0].1.amd.compute =
            mode.map(|mode| PartitioningMode { current: mode.to_owned(), available: Vec::new() });
        topology(&[&node(0x0500, 0, 128), ""]).add_to_devices(&mut devices);
        let problems = devices[0].1.problems.iter();
        problems.map(|problem| problem.error.clone()).collect::<Vec<_>>()
    };
    assert_eq!(message(Some("SPX")), Vec::<String>::new());
    assert_eq!(
        message(Some("CPX")),
        [
            "the nodes of this device might be incomplete; unreadable nodes: 1 (node 1: it has no properties)"
        ]
    );
}

#[test]
fn invalid_values_are_absent() {
    let root = tempfile::tempdir().unwrap();
    let sys = Sysfs::new(root.path().to_owned());
    let directory = root.path().join("device");
    fs::create_dir(&directory).unwrap();
    let read = |text: &[u8]| {
        fs::write(directory.join("file"), text).unwrap();
        let mut files = Files::open(&sys, "device".to_owned());
        (
            files.id("file"),
            files.mode("file"),
            files.modes("file"),
            files.version("file"),
            files.problems.len(),
        )
    };
    let none = (None, None, vec![], None);
    let found = |all: (Option<String>, Option<String>, Vec<String>, Option<String>, usize)| {
        (all.0, all.1, all.2, all.3)
    };
    assert_eq!(read(b"\n"), (None, None, vec![], None, 0));
    assert_eq!(read(b"\0\0\0\0").4, 4);
    for odd in [&b"\xff\xfe"[..], b"SPX\x1b[31m", b"%%%", b"SPX;DPX", b"a b"] {
        assert_eq!(found(read(odd)), none, "{odd:?}");
    }
    assert_eq!(read(b"1f3a\n").0.as_deref(), Some("0000000000001f3a"));
    assert_eq!(read(b"0000000000000000\n").0, None);
    assert_eq!(read(b"CPX\n").1.as_deref(), Some("CPX"));
    assert_eq!(read(b"UNKNOWN\n").1, None);
    assert_eq!(read(b"SPX, DPX, CPX\n").2, ["SPX", "DPX", "CPX"]);
    assert_eq!(read(b"6.12.12\n").3.as_deref(), Some("6.12.12"));
}

#[test]
fn unreadable_topology_is_reported() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("class/kfd/kfd/topology")).unwrap();
    fs::write(root.path().join("class/kfd/kfd/topology/nodes"), "").unwrap();
    let mut devices = vec![reported("0000:05:00.0", None)];
    Topology::read(&Sysfs::new(root.path().to_owned())).add_to_devices(&mut devices);
    assert_eq!(
        devices[0].1.problems[0].error,
        "no node belongs to this device; its partitions are unknown; unreadable nodes: 1 (the directory of the nodes: Not a directory (os \
         error 20))"
    );
}

#[test]
fn implausible_memory_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let at = "0000:05:00.0";
    let directory = root.path().join(DEVICES).join(at);
    fs::create_dir_all(&directory).unwrap();
    let function = PciFunction {
        address: at.parse().unwrap(),
        ids: PciIds {
            vendor: AMD,
            device: 0x74a1,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        },
        numa_node: None,
        kernel_driver: Some(DRIVER.to_owned()),
        vgpu: None,
        amd: None,
    };
    let read = |total: u64, used: u64| {
        fs::write(directory.join("mem_info_vram_total"), total.to_string()).unwrap();
        fs::write(directory.join("mem_info_vram_used"), used.to_string()).unwrap();
        let reported = device(&Sysfs::new(root.path().to_owned()), &function);
        let problems = reported.problems.into_iter();
        let message: Vec<String> =
            problems.map(|one| format!("{}: {}", one.source, one.error)).collect();
        let mib = |memory: Option<Mebibytes>| memory.map(Mebibytes::get);
        (mib(reported.memory), mib(reported.amd.memory_used), message.join("; "))
    };
    let gib = 1 << 30;
    assert_eq!(read(192 * gib, 192 * gib), (Some(196_608), Some(196_608), String::new()));
    assert_eq!(
        read(192 * gib, 193 * gib),
        (
            Some(196_608),
            None,
            "mem_info_vram_used: 197632 MiB exceeds the maximum of 196608 MiB".to_owned()
        )
    );
    assert_eq!(
        read(u64::MAX, 0),
        (
            None,
            Some(0),
            "mem_info_vram_total: 17592186044415 MiB exceeds the maximum of 16777216 MiB"
                .to_owned()
        )
    );
}
