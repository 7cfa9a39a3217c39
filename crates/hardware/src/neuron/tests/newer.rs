//! Tests of files of newer drivers and larger machines: corrected errors, power, `UltraServer`.

use super::*;

#[test]
fn newer_driver_values_are_read() {
    let host = Host::new("2.30.7.0", &[0, 1]);
    let device = at(0);
    host.put(&format!("{device}/stats/hardware/mem_ecc_corrected"), "7\n");
    host.put(&format!("{device}/stats/hardware/sram_ecc_corrected"), "0\n");
    let power = format!("{device}/stats/power/utilization");
    host.put(&power, "POWER_STATUS_VALID,1789180860,0.00,80.25,41.50\n");
    host.put("class/neuron_device/ultraserver_mode", "1_2_4\n");
    host.put("class/neuron_device/node_id_4", "3\n");
    host.put("class/neuron_device/server_id_4", "\n");
    let neuron = host.read().unwrap();
    let words: Vec<(&str, &str)> =
        neuron.ultraserver.iter().map(|(name, word)| (name.as_str(), word.as_str())).collect();
    assert_eq!(words, [("node_id_4", "3"), ("ultraserver_mode", "1_2_4")]);
    let read = host.read_device(0);
    let errors = read.errors;
    assert_eq!((errors.memory_corrected, errors.sram_corrected), (Some(7), Some(0)));
    assert_eq!(read.power_percent, Some(42));
    // Corrected errors lose no data.
    assert_eq!((read.state(), read.issues()), (NeuronState::Ok, vec![]));
    host.put(&power, "POWER_STATUS_NO_DATA,0,0.00,0.00,0.00\n");
    let read = host.read_device(0);
    assert_eq!((read.power_percent, read.problems), (None, vec![]));
    host.put(&power, "12 W\n");
    let read = host.read_device(0);
    assert_eq!(read.power_percent, None);
    assert_eq!(message(&read.problems), ["stats/power/utilization: invalid value: \"12 W\""]);
    host.put("class/neuron_device/ultraserver_mode", "\u{1b}[31m\n");
    let neuron = host.read().unwrap();
    assert!(!neuron.ultraserver.contains_key("ultraserver_mode"));
    assert!(
        message(&neuron.problems)
            .iter()
            .any(|one| one.starts_with("ultraserver_mode: invalid value"))
    );
}

#[test]
fn single_moved_file_is_found() {
    for file in [
        "core_count",
        "connected_devices",
        "info/serial_number",
        "stats/hardware/mem_ecc_uncorrected",
        "stats/hardware/sram_ecc_uncorrected",
    ] {
        let host = Host::new("2.31.7.0", &[0]);
        let (known, name) = (format!("{}/{file}", at(0)), file.rsplit('/').next().unwrap());
        if name.contains("ecc") {
            host.put(&known, "7\n");
        }
        let before = host.read().unwrap();
        assert_eq!(before.driver_layout, DriverLayout::Known, "{file}");
        let text = fs::read_to_string(host.path(&known)).unwrap();
        host.take(&known);
        host.put(&format!("{}/elsewhere/{name}", at(0)), &text);
        let after = host.read().unwrap();
        assert_eq!(after.driver_layout, DriverLayout::Unknown, "{file}");
        assert_eq!(after.devices, before.devices, "{file}");
    }
}

#[test]
fn first_inferentia_lacks_serial_and_counters() {
    let host = Host::new("2.31.7.0", &[0]);
    host.put(&format!("{}/{NAME}", at(0)), "Inferentia\n");
    host.take(&format!("{}/info/serial_number", at(0)));
    host.take(&format!("{}/stats/hardware", at(0)));
    let neuron = host.read().unwrap();
    assert_eq!(neuron.driver_layout, DriverLayout::Known);
    assert_eq!(neuron.devices[0].problems, []);
}

#[test]
fn devices_stay_while_their_directory_is_unreadable() {
    let host = Host::new("2.30.7.0", &[0, 1]);
    let sys = Sysfs::new(host.0.path().to_owned());
    let mut reader = NeuronReader::new(sys, host.path("opt/logical_nc_config"));
    let before = reader.read(&[]).unwrap();
    let directories = ["class/neuron_device", "devices/virtual/neuron_device"];
    for directory in directories {
        fs::rename(host.path(directory), host.path(&format!("{directory}-aside"))).unwrap();
    }
    host.put(directories[0], "not a directory");
    let hidden = reader.read(&[]).unwrap();
    assert_eq!(hidden.devices, before.devices);
    assert_eq!(
        message(&hidden.problems),
        [
            "class/neuron_device: Not a directory (os error 20); the devices show the previous reading"
        ]
    );
    host.take("module");
    assert_eq!(reader.read(&[]).unwrap().devices, before.devices);
    // A missing directory has no devices.
    host.take(directories[0]);
    assert_eq!(reader.read(&[]), None);
    for directory in directories {
        fs::rename(host.path(&format!("{directory}-aside")), host.path(directory)).unwrap();
    }
    assert_eq!(reader.read(&[]).unwrap().devices, before.devices);
}

#[test]
fn file_instead_of_directory_is_no_driver() {
    let host = Host(tempfile::tempdir().unwrap());
    host.put("module/neuron", "a file");
    assert_eq!(host.read(), None);
}

#[test]
fn device_number_beyond_limit_is_reported() {
    let host = Host::new("2.30.7.0", &[0, u32::MAX]);
    let neuron = host.read().unwrap();
    assert_eq!(neuron.devices.len(), 1);
    assert_eq!(
        message(&neuron.problems)[0],
        "neuron_device: neuron4294967295 is ignored: device numbers from 64 on are not supported"
    );
}

#[test]
fn memory_above_capacity_is_rejected() {
    let host = Host::new("2.30.7.0", &[0]);
    let total = format!("{}/neuron_core0/stats/memory_usage/device_mem/total", at(0));
    for (name, bytes, most) in [
        ("Trainium1", 40 * GIB, "40960 MiB in use exceeds the total of 32768 MiB"),
        ("Trainium9", 1 << 60, "1099511627776 MiB in use exceeds the total of 16777216 MiB"),
    ] {
        host.put(&format!("{}/{NAME}", at(0)), &format!("{name}\n"));
        host.put(&total, &bytes.to_string());
        let device = host.read_device(0);
        assert_eq!(device.memory_used, None);
        let expected = format!("stats/memory_usage/device_mem/total: {most}");
        assert_eq!(message(&device.problems), [expected]);
    }
}
