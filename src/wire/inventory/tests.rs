pub(crate) mod any;

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_inventory_survives_both_forms(inventory in any::inventory()) {
        let document = Document::from(&inventory);
        let json = serde_json::to_string_pretty(&document).unwrap();
        prop_assert_eq!(&parse(&json).unwrap(), &inventory, "{}", json);
        let yaml = serde_saphyr::to_string(&document).unwrap();
        prop_assert_eq!(&parse(&yaml).unwrap(), &inventory, "{}", yaml);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("{{{text}"));
    }
}

/// What the whole chain of errors says, one message a line.
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

/// A document with one device, in which `from` was replaced by `to`.
fn edited(from: &str, to: &str) -> String {
    let text = r#"{"apiVersion": "octavo.dev/v1", "kind": "Inventory", "nvml": {"state": "loading"},
"devices": [{"pci": "0000:07:00.0", "vendor": "nvidia", "condition": {"state": "working"},
"pciIds": {"vendor": "10de", "device": "20b2", "subsystemVendor": "10de", "subsystemDevice": "1463"},
"mig": {"mode": "enabled", "pendingMode": "enabled"}, "links": [{"link": 3, "remote": "switch", "remotePci": "0000:c4:00.0"}]}]}"#;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_value_that_cannot_be_is_named_by_its_path() {
    let said = |from, to| refusal(&edited(from, to));
    let head = "the inventory holds a value that cannot be\n";
    for (from, to, tail) in [
        (
            "0000:07:00.0",
            "07:00.0",
            "at devices[0].pci\n\"07:00.0\" is not a PCI address like 0000:07:00.0",
        ),
        (
            "20b2",
            "0x20b2",
            "at devices[0].pciIds.device\n\"0x20b2\" is not four hexadecimal digits",
        ),
        (
            "\"switch\"",
            "\"unknown\"",
            "at devices[0].links[0].remotePci\ngiven, and the far end of the link is unknown",
        ),
        (
            "\"vendor\": \"nvidia\"",
            "\"vendor\": \"nvidia\", \"sku\": \"nvidia-a30\"",
            "at devices[0].sku\na SKU without a type",
        ),
        (
            "{\"state\": \"loading\"}",
            "{\"state\": \"ready\", \"driverVersion\": \"570\"}",
            "at nvml.driverVersion\n\"570\" is not a driver version like 570.133.20 or 470.82",
        ),
    ] {
        assert_eq!(said(from, to), format!("{head}{tail}"));
    }
}

#[test]
fn two_devices_cannot_share_an_address() {
    let one = edited("kind", "kind");
    let (head, device) = one.split_once("[{").unwrap();
    let device = device.strip_suffix("]}").unwrap();
    let both = format!("{head}[{{{device}, {{{device}]}}");
    assert_eq!(
        refusal(&both),
        "the inventory holds a value that cannot be\nat devices[1].pci\nanother device has the same address"
    );
}

#[test]
fn an_unknown_key_is_refused_with_line_and_column() {
    let json = refusal(&edited("\"remotePci\"", "\"remotepci\""));
    assert!(
        json.contains("unknown field `remotepci`") && json.contains("line 4"),
        "{json}"
    );
    let yaml = refusal(
        "apiVersion: octavo.dev/v1\nkind: Inventory\nnvml: {state: loading}\ndevcies: []\n",
    );
    assert!(yaml.contains("devcies") && yaml.contains('4'), "{yaml}");
    let state = refusal(&edited(
        "\"state\": \"loading\"",
        "\"state\": \"loading\", \"x\": 1",
    ));
    assert!(state.contains("unknown field `x`"), "{state}");
}

#[test]
fn another_version_or_kind_is_refused_by_name() {
    assert!(refusal(&edited("dev/v1", "dev/v2")).contains("octavo.dev/v2"));
    assert!(refusal(&edited("\"Inventory\"", "\"Layouts\"")).contains("Layouts"));
}
