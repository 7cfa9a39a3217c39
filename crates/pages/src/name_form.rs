//! Form for naming unknown devices on a node's page, with a preview of the effect of a name.
//!
//! The preview runs the same code as the agent when it reads the label, so it refuses the same names with the same
//! messages. Users set the label themselves: the aggregator has no permission to write Nodes, and the cluster
//! authorizes the user. The tried name is part of the page's address, so the page can be shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::accelerators::{
    Catalog, OverrideEffect, TYPE_OVERRIDE, TypeOverride, TypeSources, products,
};
use octavo_model::id::NodeName;
use octavo_model::inventory::{Device, Inventory, Vendor};
use octavo_model::label::LabelValue;
use octavo_node::labels::{DiffSide, Options, Publication, compile, diff};

use super::device_card::title;
use super::format::{Badge, count_noun, printable};

/// Maximum length of a name in characters; a label value has at most 63.
const MAX_NAME_CHARS: usize = 128;

/// The form, with the preview of a tried name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NameForm {
    pub(super) title: &'static str,
    /// Unknown devices and manually named devices, one sentence each.
    pub(super) said: Vec<String>,
    /// Command that removes the current name.
    pub(super) back: Option<String>,
    /// Names in the catalog for these vendors.
    pub(super) offered: Vec<Suggestion>,
    /// Explanation if the catalog has no name.
    pub(super) unoffered: Option<String>,
    /// The tried name.
    pub(super) asked: String,
    pub(super) answer: Option<NamePreview>,
}

/// Suggested name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suggestion {
    pub(super) type_name: &'static str,
    /// Products of this type.
    pub(super) products: String,
}

/// Effect of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamePreview {
    pub(super) badge: Badge,
    pub(super) told: String,
    /// Labels that would be added and removed, each with its sign.
    pub(super) changes: Vec<(&'static str, String)>,
    pub(super) commands: Option<Commands>,
}

/// Commands to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) give: String,
    pub(super) take_back: String,
    /// Command that shows the same preview on the node.
    pub(super) tries: String,
}

impl NameForm {
    /// Builds the form for a node with this inventory; `None` if every device is known. `asked` is the tried name.
    pub(super) fn of(node: &NodeName, inventory: &Inventory, asked: Option<&str>) -> Option<Self> {
        let those = |by_hand: bool| -> Vec<&Device> {
            let devices = inventory.devices.iter();
            let nameless = devices.filter(|one| one.identity_note().is_some());
            nameless
                .filter(|one| one.identity.is_manual() == by_hand)
                .collect()
        };
        let (unknown, named) = (those(false), those(true));
        let title = match (unknown.is_empty(), named.is_empty()) {
            (true, true) => return None,
            (true, false) => "Named by hand",
            (false, _) => "Name the unknown devices",
        };
        let makers: BTreeSet<Vendor> = { unknown.iter() }
            .chain(&named)
            .map(|one| one.vendor)
            .collect();
        let offered = suggestions(&makers);
        let asked: String = asked
            .unwrap_or_default()
            .trim()
            .chars()
            .take(MAX_NAME_CHARS)
            .collect();
        let said = [describe_unknown(&unknown), describe_named(&named)];
        Some(Self {
            title,
            said: said.into_iter().flatten().collect(),
            back: (!named.is_empty()).then(|| unlabel_command(node)),
            unoffered: offered.is_empty().then(|| no_suggestions_text(&makers)),
            offered,
            answer: (!asked.is_empty()).then(|| NamePreview::of(node, inventory, &asked)),
            asked,
        })
    }
}

impl NamePreview {
    fn of(node: &NodeName, inventory: &Inventory, asked: &str) -> Self {
        let catalogue = Catalog::built_in();
        let (mut called, mut told) = preview_label(inventory, asked, &catalogue);
        let mut word = asked.to_owned();
        // Text that is not a valid label value may still match a product, whose canonical name is one.
        if word.parse::<LabelValue>().is_err()
            && let Some(name) = canonical_name(&called)
        {
            (called, told) = preview_label(inventory, &name, &catalogue);
            word = name;
        }
        let is_named = called.devices.iter().any(|one| one.identity.is_manual());
        let (tone, icon, badge) = match (is_named, told.needs_attention) {
            (true, false) => ("good", "ok", "would be named"),
            (true, true) => ("warn", "warn", "not all of them"),
            (false, _) => ("bad", "bad", "names nothing"),
        };
        let is_set = inventory.devices.iter().any(|one| one.identity.is_manual());
        Self {
            badge: Badge {
                tone,
                icon,
                word: badge,
            },
            told: printable(&told.text),
            changes: changes(inventory, &called),
            commands: is_named.then(|| Commands {
                give: label_command(node, &word, is_set),
                take_back: unlabel_command(node),
                tries: format!("octavo labels --type-override {word}"),
            }),
        }
    }
}

/// Applies the label value `text` to a copy of the inventory; returns it with the agent's message.
fn preview_label(
    inventory: &Inventory,
    text: &str,
    catalogue: &Catalog,
) -> (Inventory, OverrideEffect) {
    let given = Arc::new(TypeOverride::new(text, catalogue));
    let naming = TypeSources {
        overlay_products: Arc::default(),
        type_override: Some(Arc::clone(&given)),
    };
    let mut called = inventory.clone();
    naming.apply(&mut called);
    let told = given.told(&called);
    (called, told)
}

/// The catalog's name of the device named by the label: the product, or the type if only that is known.
fn canonical_name(called: &Inventory) -> Option<String> {
    let mut devices = called.devices.iter();
    let named = devices.find(|one| one.identity.is_manual())?;
    let sku = named.identity.sku().map(ToString::to_string);
    sku.or_else(|| named.identity.type_name().map(ToString::to_string))
}

/// Octavo's labels that would be added and removed.
fn changes(before: &Inventory, after: &Inventory) -> Vec<(&'static str, String)> {
    let [before, after] = [before, after].map(|one| compile(one, &Options::default(), None).labels);
    let [before, after]: [BTreeMap<&str, &str>; 2] =
        [&before, &after].map(|set| set.iter().collect());
    let all = diff(&before, &after, Publication::Withhold).into_iter();
    all.map(|change| {
        let word = match change.side {
            DiffSide::Before => "goes",
            DiffSide::After => "comes",
        };
        (word, format!("{}={}", change.key, change.value))
    })
    .collect()
}

fn label_command(node: &NodeName, word: &str, is_set: bool) -> String {
    let overwrite = if is_set { " --overwrite" } else { "" };
    format!("kubectl label node {node} {TYPE_OVERRIDE}={word}{overwrite}")
}

fn unlabel_command(node: &NodeName) -> String {
    format!("kubectl label node {node} {TYPE_OVERRIDE}-")
}

/// Types in the catalog with products of one of these vendors; other names would not match any device.
fn suggestions(makers: &BTreeSet<Vendor>) -> Vec<Suggestion> {
    let mut types: BTreeMap<&'static str, BTreeSet<&'static str>> = BTreeMap::new();
    let facts = products().iter();
    for facts in facts.filter(|facts| makers.contains(&facts.vendor)) {
        types.entry(facts.type_name).or_default().insert(facts.name);
    }
    let offer = |(type_name, products): (_, BTreeSet<&str>)| Suggestion {
        type_name,
        products: products.into_iter().collect::<Vec<_>>().join(", "),
    };
    types.into_iter().map(offer).collect()
}

fn no_suggestions_text(makers: &BTreeSet<Vendor>) -> String {
    let makers: Vec<String> = makers.iter().map(ToString::to_string).collect();
    format!(
        "The catalogue has nothing made by {}. Give a name of your own, such as acme-x1-32gb: letters, digits and hyphens.",
        makers.join(" or ")
    )
}

fn describe_unknown(devices: &[&Device]) -> Option<String> {
    let listed: Vec<String> = devices
        .iter()
        .map(|one| format!("{} (PCI id {})", title(one), one.pci_ids))
        .collect();
    let count = count_noun(devices.len(), "device is", "devices are");
    (!listed.is_empty()).then(|| {
        format!(
            "{count} of a type that nobody knows: {}.",
            listed.join("; ")
        )
    })
}

fn describe_named(devices: &[&Device]) -> Option<String> {
    let listed: Vec<String> = devices
        .iter()
        .map(|one| format!("{} is {}", title(one), one.identity))
        .collect();
    let count = count_noun(devices.len(), "device was", "devices were");
    (!listed.is_empty()).then(|| format!("{count} named by hand: {}.", listed.join("; ")))
}

#[cfg(test)]
mod tests {
    use octavo_model::id::PciAddress;
    use octavo_model::inventory::{Machine, NvmlState, PciIds};

    use super::*;

    fn device(slot: u8, vendor: u16, id: u16) -> Device {
        let ids = PciIds {
            vendor,
            device: id,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: Some(0x12_0000),
        };
        Device::new(PciAddress::new(0, slot, 0, 0).unwrap(), ids)
    }

    /// A node with these devices, named by the label value `label`.
    fn node(devices: Vec<Device>, label: Option<&str>) -> Inventory {
        let mut inventory = Inventory {
            machine: Machine::default(),
            nvml: NvmlState::Loading,
            neuron: None,
            devices,
        };
        let given = label.map(|text| Arc::new(TypeOverride::new(text, &Catalog::built_in())));
        let naming = TypeSources {
            overlay_products: Arc::default(),
            type_override: given,
        };
        naming.apply(&mut inventory);
        inventory
    }

    fn form(inventory: &Inventory, asked: Option<&str>) -> Option<NameForm> {
        NameForm::of(&"node-7".parse().unwrap(), inventory, asked)
    }

    const NEW_NVIDIA: (u16, u16) = (0x10de, 0xfffe);
    const STRANGER: (u16, u16) = (0x1e52, 0xb140);

    #[test]
    fn form_is_absent_if_all_devices_are_known() {
        let known = node(vec![device(1, 0x10de, 0x2330)], None);
        assert_eq!(form(&known, Some("nvidia-h100")), None);
        assert_eq!(form(&node(Vec::new(), None), None), None);
    }

    #[test]
    fn suggestions_are_limited_to_the_vendors_of_unknown_devices() {
        let inventory = node(vec![device(1, NEW_NVIDIA.0, NEW_NVIDIA.1)], None);
        let form = form(&inventory, None).unwrap();
        assert_eq!(form.title, "Name the unknown devices");
        assert_eq!(
            form.said,
            ["1 device is of a type that nobody knows: GPU 0000:01:00.0 (PCI id 10de:fffe)."]
        );
        assert_eq!((form.answer, form.back, form.unoffered), (None, None, None));
        let names: Vec<&str> = form.offered.iter().map(|one| one.type_name).collect();
        assert!(names.contains(&"nvidia-h200-141gb"), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("nvidia-")));
        assert!(names.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn unknown_vendor_has_no_suggestions_but_accepts_custom_names() {
        let inventory = node(vec![device(1, STRANGER.0, STRANGER.1)], None);
        let form = form(&inventory, Some(" Grayskull_E150 ")).unwrap();
        assert!(form.offered.is_empty());
        assert_eq!(
            form.unoffered.as_deref(),
            Some(
                "The catalogue has nothing made by pci-1e52. Give a name of your own, such as acme-x1-32gb: letters, digits \
                 and hyphens."
            )
        );
        let answer = form.answer.unwrap();
        assert_eq!(answer.badge.word, "would be named");
        assert!(answer.told.contains("is called grayskull-e150 by hand"));
        let commands = answer.commands.unwrap();
        assert_eq!(
            commands.give,
            "kubectl label node node-7 octavo.dev/type-override=Grayskull_E150"
        );
        assert_eq!(
            commands.take_back,
            "kubectl label node node-7 octavo.dev/type-override-"
        );
    }

    #[test]
    fn preview_lists_label_changes() {
        let inventory = node(vec![device(1, NEW_NVIDIA.0, NEW_NVIDIA.1)], None);
        let answer = form(&inventory, Some("nvidia-b300"))
            .unwrap()
            .answer
            .unwrap();
        assert_eq!(
            (answer.badge.tone, answer.badge.word),
            ("good", "would be named")
        );
        let comes = |text: &str| answer.changes.contains(&("comes", text.to_owned()));
        assert!(comes("octavo.dev/type=nvidia-b300-288gb"), "{answer:?}");
        assert!(comes("octavo.dev/type-source=manual"), "{answer:?}");
        assert!(comes("octavo.dev/sku=nvidia-b300"), "{answer:?}");
        let goes = ("goes", "octavo.dev/type=unknown".to_owned());
        assert!(answer.changes.contains(&goes), "{answer:?}");
        // A preview changes nothing.
        assert!(
            inventory
                .devices
                .iter()
                .all(|one| one.identity.type_name().is_none())
        );
    }

    #[test]
    fn preview_refuses_names_like_the_agent() {
        let inventory = node(vec![device(1, NEW_NVIDIA.0, NEW_NVIDIA.1)], None);
        for (text, why) in [
            ("H100", "may mean any of "),
            ("mixed", "the word stands for the lack of one type"),
            (
                "a name; of nobody",
                "a type has letters, digits and inner hyphens",
            ),
            ("amd-mi300x-192gb", "stays unknown"),
        ] {
            let answer = form(&inventory, Some(text)).unwrap().answer.unwrap();
            assert_eq!(answer.badge.word, "names nothing", "{text}");
            assert!(answer.told.contains(why), "{text}: {}", answer.told);
            assert_eq!(
                (answer.commands, answer.changes),
                (None, Vec::new()),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_label_value_is_replaced_by_the_canonical_product_name() {
        let inventory = node(vec![device(1, NEW_NVIDIA.0, NEW_NVIDIA.1)], None);
        let answer = form(&inventory, Some("NVIDIA B300 SXM6 AC"))
            .unwrap()
            .answer
            .unwrap();
        assert_eq!(
            answer.commands.unwrap().give,
            "kubectl label node node-7 octavo.dev/type-override=nvidia-b300"
        );
    }

    #[test]
    fn manual_name_is_marked_and_can_be_removed() {
        let devices = vec![device(1, STRANGER.0, STRANGER.1)];
        let inventory = node(devices, Some("acme-x1"));
        let form = form(&inventory, Some("acme-x2")).unwrap();
        assert_eq!(form.title, "Named by hand");
        assert_eq!(
            form.said,
            ["1 device was named by hand: GPU 0000:01:00.0 is acme-x1."]
        );
        assert_eq!(
            form.back.as_deref(),
            Some("kubectl label node node-7 octavo.dev/type-override-")
        );
        let answer = form.answer.unwrap();
        assert_eq!(
            answer.commands.unwrap().give,
            "kubectl label node node-7 octavo.dev/type-override=acme-x2 --overwrite"
        );
        assert!(
            answer
                .changes
                .contains(&("goes", "octavo.dev/type=acme-x1".to_owned()))
        );
    }

    #[test]
    fn name_of_one_vendor_leaves_other_devices_unknown() {
        let both = vec![
            device(1, NEW_NVIDIA.0, NEW_NVIDIA.1),
            device(2, STRANGER.0, STRANGER.1),
        ];
        let answer = form(&node(both, None), Some("nvidia-b300"))
            .unwrap()
            .answer
            .unwrap();
        assert_eq!(answer.badge.word, "not all of them");
        assert!(
            answer.told.contains("1 device stays unknown"),
            "{}",
            answer.told
        );
        assert!(answer.commands.is_some());
    }
}
