//! What newer drivers and larger machines tell: corrected errors, power, the `UltraServer`.

use super::*;

#[test]
fn corrected_errors_power_and_the_ultraserver_are_read_where_the_driver_has_them() {
    let host = Host::new("2.30.7.0", &[0, 1]);
    let device = at(0);
    host.put(&format!("{device}/stats/hardware/mem_ecc_corrected"), "7\n");
    host.put(
        &format!("{device}/stats/hardware/sram_ecc_corrected"),
        "0\n",
    );
    let power = format!("{device}/stats/power/utilization");
    host.put(&power, "POWER_STATUS_VALID,1789180860,0.00,80.25,41.50\n");
    host.put("class/neuron_device/ultraserver_mode", "1_2_4\n");
    host.put("class/neuron_device/node_id_4", "3\n");
    host.put("class/neuron_device/server_id_4", "\n");
    let neuron = host.read().unwrap();
    let words: Vec<(&str, &str)> = neuron
        .ultraserver
        .iter()
        .map(|(name, word)| (name.as_str(), word.as_str()))
        .collect();
    assert_eq!(words, [("node_id_4", "3"), ("ultraserver_mode", "1_2_4")]);
    let read = host.read_device(0);
    let errors = read.errors;
    assert_eq!(
        (errors.memory_corrected, errors.sram_corrected),
        (Some(7), Some(0))
    );
    assert_eq!(read.power_percent, Some(42));
    // Corrected errors have lost nothing.
    assert_eq!((read.state(), read.complaints()), (NeuronState::Ok, vec![]));
    host.put(&power, "POWER_STATUS_NO_DATA,0,0.00,0.00,0.00\n");
    let read = host.read_device(0);
    assert_eq!((read.power_percent, read.problems), (None, vec![]));
    host.put(&power, "12 W\n");
    let read = host.read_device(0);
    assert_eq!(read.power_percent, None);
    assert_eq!(
        said(&read.problems),
        ["stats/power/utilization: cannot be: \"12 W\""]
    );
    host.put("class/neuron_device/ultraserver_mode", "\u{1b}[31m\n");
    let neuron = host.read().unwrap();
    assert!(!neuron.ultraserver.contains_key("ultraserver_mode"));
    assert!(
        said(&neuron.problems)
            .iter()
            .any(|one| one.starts_with("ultraserver_mode: cannot be"))
    );
}
