//! Round trips, and rejection of invalid values with their path.

use proptest::prelude::*;

use super::*;
use crate::inventories;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn inventory_round_trips_in_json_and_yaml(inventory in inventories::inventory()) {
        let json = serde_json::to_string_pretty(&inventory).unwrap();
        prop_assert_eq!(&parse(&json).unwrap(), &inventory, "{}", json);
        let yaml = serde_saphyr::to_string(&inventory).unwrap();
        prop_assert_eq!(&parse(&yaml).unwrap(), &inventory, "{}", yaml);
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("{{{text}"));
    }
}

/// Returns the whole error chain, one message per line.
fn refusal(text: &str) -> String {
    let error = parse(text).unwrap_err();
    let mut chain = vec![error.to_string()];
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        chain.push(error.to_string());
        source = error.source();
    }
    chain.join("\n")
}

/// A document with one device, after replacing `from` with `to`.
fn document_with(from: &str, to: &str) -> String {
    let text = r#"{"apiVersion": "octavo.dev/v1", "kind": "Inventory", "nvml": {"state": "loading"},
"devices": [{"pci": "0000:07:00.0", "vendor": "nvidia", "condition": {"state": "working"},
"pciIds": {"vendor": "10de", "device": "20b2", "subsystemVendor": "10de", "subsystemDevice": "1463"},
"mig": {"mode": "enabled", "pendingMode": "enabled"}, "links": [{"link": 3, "remote": "switch", "remotePci": "0000:c4:00.0"}]}]}"#;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn invalid_value_is_reported_by_path() {
    for (from, to, refused) in [
        (
            "0000:07:00.0",
            "07:00.0",
            "at devices[0].pci\n\"07:00.0\" is not a PCI address like 0000:07:00.0 at line 2 column 29",
        ),
        (
            "\"nvidia\"",
            "\"voodoo\"",
            "at devices[0].vendor\nexpected nvidia, amd, aws, intel, habana or pci-<vendor id>",
        ),
        ("20b2", "0x20b2", "at devices[0].pciIds.device\n\"0x20b2\" is not 4 hexadecimal digits"),
        (
            "\"switch\"",
            "\"unknown\"",
            "at devices[0].links[0]\nremotePci is set, but the remote end of the link has no address",
        ),
        (
            ", \"remotePci\": \"0000:c4:00.0\"",
            "",
            "at devices[0].links[0]\nremotePci is missing, but the remote end of the link is a device or a switch",
        ),
        (
            "\"vendor\": \"nvidia\"",
            "\"vendor\": \"nvidia\", \"sku\": \"nvidia-a30\"",
            "at devices[0]\nsku is specified without a type",
        ),
        (
            "\"vendor\": \"nvidia\"",
            "\"vendor\": \"nvidia\", \"typeSource\": \"manual\"",
            "at devices[0]\ntypeSource is specified without a type",
        ),
        (
            "\"vendor\": \"nvidia\"",
            "\"vendor\": \"nvidia\", \"health\": {\"recoveryAction\": \"kick\"}",
            "at devices[0].health.recoveryAction\nexpected none, resetGpu, rebootNode, drainP2p, drainAndReset or a number in quotes",
        ),
        (
            "{\"state\": \"loading\"}",
            "{\"state\": \"ready\", \"driverVersion\": \"570\"}",
            "at nvml\n\"570\" is not a driver version like 570.133.20 or 470.82",
        ),
        (
            "\"pendingMode\": \"enabled\"",
            "\"pendingMode\": \"enabled\", \"gpuInstances\": [{\"id\": -1}]",
            "at devices[0].mig\ngpuInstances[0].id: invalid value: integer `-1`, expected u32",
        ),
    ] {
        let text = refusal(&document_with(from, to));
        let expected = format!("not an inventory in JSON, {refused}");
        assert!(text.starts_with(&expected), "{text}\n{expected}");
    }
}

#[test]
fn two_devices_cannot_share_an_address() {
    let one = document_with("kind", "kind");
    let (head, device) = one.split_once("[{").unwrap();
    let device = device.strip_suffix("]}").unwrap();
    let both = format!("{head}[{{{device}, {{{device}]}}");
    let text = refusal(&both);
    let expected =
        "not an inventory in JSON, at devices\ntwo devices have the PCI address 0000:07:00.0";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn unknown_key_is_rejected_with_line_and_column() {
    let json = refusal(&document_with("\"remotePci\"", "\"remotepci\""));
    assert!(json.contains("unknown field `remotepci`") && json.contains("line 4"), "{json}");
    let yaml = refusal(
        "apiVersion: octavo.dev/v1\nkind: Inventory\nnvml: {state: loading}\ndevcies: []\n",
    );
    assert!(yaml.contains("devcies") && yaml.contains('4'), "{yaml}");
    for (from, place) in [
        ("\"kind\": \"Inventory\"", "at x\n"),
        ("\"state\": \"loading\"", "at nvml\n"),
        ("\"vendor\": \"nvidia\"", "at devices[0]\n"),
        ("\"state\": \"working\"", "at devices[0].condition\n"),
        ("\"mode\": \"enabled\"", "at devices[0].mig\n"),
        ("\"link\": 3", "at devices[0].links[0]."),
    ] {
        let text = refusal(&document_with(from, &format!("{from}, \"x\": 1")));
        assert!(text.contains(place) && text.contains("unknown field `x`"), "{text}");
    }
}

#[test]
fn another_version_or_kind_is_rejected_by_name() {
    assert!(refusal(&document_with("dev/v1", "dev/v2")).contains("octavo.dev/v2"));
    assert!(refusal(&document_with("\"Inventory\"", "\"Layouts\"")).contains("Layouts"));
}

/// A document with Neuron and AMD devices, after replacing `from` with `to`.
fn amd_neuron_document_with(from: &str, to: &str) -> String {
    let text = r#"{"apiVersion": "octavo.dev/v1", "kind": "Inventory", "nvml": {"state": "loading"},
"neuron": {"driverVersion": "2.26.5.0", "driverLayout": "known", "logicalCore": {"physicalCores": 2, "source": "file"}, "devices": [
{"number": 10, "deviceName": "Trainium2", "physicalCores": 8, "connected": [2], "memoryUsedMiB": 5},
{"number": 2, "connected": [], "unhealthy": [], "errors": {"sramUncorrected": 0}}]},
"devices": [{"pci": "0000:07:00.0", "vendor": "amd", "condition": {"state": "working"},
"pciIds": {"vendor": "1002", "device": "74a1", "subsystemVendor": "1002", "subsystemDevice": "74a1"},
"mig": {"mode": "notCapable"}, "amd": {"hive": "ffeeddccbbaa9988",
"computePartition": {"current": "CPX", "available": ["SPX", "CPX"]}, "partitions": [{"renderMinor": 128}]}}]}"#;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn amd_and_neuron_values_distinguish_unknown_from_empty() {
    let inventory = parse(&amd_neuron_document_with("", "")).unwrap();
    let neuron = inventory.neuron.as_ref().unwrap();
    let numbers: Vec<u32> = neuron.devices.iter().map(|device| device.number).collect();
    assert_eq!(numbers, [2, 10]);
    let [small, large] = neuron.devices.as_slice() else {
        panic!("{neuron:?}");
    };
    assert_eq!((&small.connected, &large.connected), (&Some(vec![]), &Some(vec![2])));
    assert_eq!((&small.unhealthy, &large.unhealthy), (&Some(vec![]), &None));
    assert_eq!((small.errors.sram_uncorrected, small.cores), (Some(0), None));
    let amd = inventory.devices[0].amd.as_ref().unwrap();
    assert_eq!(amd.hive, Some(0xffee_ddcc_bbaa_9988));
    assert_eq!(amd.compute.as_ref().unwrap().available, ["SPX", "CPX"]);
    assert_eq!(amd.memory, None);
    let json = serde_json::to_string(&inventory).unwrap();
    assert_eq!(json.matches("\"connected\":").count(), 2, "{json}");
    assert_eq!(json.matches("\"unhealthy\":").count(), 1, "{json}");
}

#[test]
fn invalid_amd_and_neuron_values_are_reported_by_path() {
    for (from, to, refused) in [
        ("\"number\": 2", "\"number\": 10", "at neuron.devices\ntwo devices have the number 10"),
        (
            "\"number\": 2",
            "\"number\": 2, \"powerPercent\": 101",
            "at neuron.devices[1].powerPercent\n101 is not in the range 0 to 100",
        ),
        (
            "{\"physicalCores\": 2",
            "{\"physicalCores\": 0",
            "at neuron.logicalCore.physicalCores\n0 is not in the range 1 to 8",
        ),
        (
            "{\"physicalCores\": 2",
            "{\"physicalCores\": 9",
            "at neuron.logicalCore.physicalCores\n9 is not in the range 1 to 8",
        ),
        (
            "ffeeddccbbaa9988",
            "+feeddccbbaa9988",
            "at devices[0].amd.hive\n\"+feeddccbbaa9988\" is not 16 hexadecimal digits",
        ),
        ("ffeeddccbbaa9988", "7", "at devices[0].amd.hive\n\"7\" is not 16 hexadecimal digits"),
    ] {
        let text = refusal(&amd_neuron_document_with(from, to));
        let expected = format!("not an inventory in JSON, {refused}");
        assert!(text.starts_with(&expected), "{text}\n{expected}");
    }
    for (from, to, message) in [
        ("\"connected\"", "\"conected\"", "unknown field `conected`"),
        ("\"known\"", "\"new\"", "unknown variant `new`"),
        ("\"file\"", "\"guess\"", "unknown variant `guess`"),
        ("\"available\"", "\"all\"", "unknown field `all`"),
        ("\"renderMinor\"", "\"minor\"", "unknown field `minor`"),
        ("\"number\": 10", "\"number\": -1", "invalid value"),
    ] {
        let refused = refusal(&amd_neuron_document_with(from, to));
        assert!(refused.contains(message), "{to}: {refused}");
    }
}
