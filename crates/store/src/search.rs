//! Search for nodes, devices, pods and namespaces by a part of their names. Pure.
//!
//! Device and usage parts are compared as bytes and decoded only if they contain the text, in small steps, so that a search
//! of the whole fleet delays no other reader. Everything that it collects is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::id::{NodeName, PciAddress};
use octavo_model::inventory::Device;
use octavo_stream::protocol::{Content, PartKey};
use octavo_stream::status::{self, Catalogs};

use crate::fleet::{Fleet, Node};

/// Maximum number of matches returned of each kind.
pub const MAX_MATCHES: usize = 20;
/// Maximum length of the searched text in bytes: that of the longest name.
pub const MAX_TEXT_BYTES: usize = 253;
/// Names compared per step.
const NAMES_PER_STEP: usize = 4096;
/// Cost of a step, in bytes of parts compared: about a millisecond.
const COST_PER_STEP: usize = 1024 * 1024;
/// Cost of a node that has no part that is read.
const NODE_COST: usize = 64;
/// Cost of comparing the address of a device.
const ADDRESS_COST: usize = 512;
/// Cost of decoding a part.
const DECODE_COST: usize = 16 * 1024;
/// Bytes of parts compared per search: those of about five thousand nodes with eight GPUs.
const MAX_BYTES_READ: usize = 64 * 1024 * 1024;
/// Maximum number of namespaces counted, because peers choose their names.
const MAX_NAMESPACES: usize = 10_000;
/// Minimum length of a part of a UUID: shorter ones match almost every device.
const MIN_UUID_BYTES: usize = 4;

/// Kinds of objects that the reader may find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Nodes and devices.
    pub nodes: bool,
    /// Pods and namespaces.
    pub pods: bool,
    /// Only pods of this namespace.
    pub namespace: Option<String>,
}

/// Search in progress. The caller yields between the steps.
#[derive(Debug)]
pub struct Search<'a> {
    text: String,
    /// PCI address in any format of NVIDIA's tools.
    pci: Option<PciAddress>,
    /// Hexadecimal part of a UUID.
    uuid: Option<String>,
    scope: Scope,
    nodes: Vec<&'a Arc<Node>>,
    /// Number of nodes whose name has been compared.
    named: usize,
    /// Number of nodes whose parts have been read.
    next: usize,
    /// Cost of the current step.
    cost: usize,
    /// Bytes of parts read by all steps.
    read: usize,
    most: usize,
    namespaces: BTreeMap<String, usize>,
    found: SearchResults,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResults {
    /// Nodes by name.
    pub nodes: Matches<NodeName>,
    /// Devices by UUID or PCI address.
    pub devices: Matches<DeviceMatch>,
    /// Pods that use a device.
    pub pods: Matches<PodMatch>,
    /// Namespaces of these pods, with their number of pods.
    pub namespaces: Matches<(String, usize)>,
    /// Number of nodes that were searched for devices and pods, if the fleet is too large to search all.
    pub searched: Option<usize>,
    /// True if more namespaces match than were counted.
    pub has_more_namespaces: bool,
}

/// Matches of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches<T> {
    /// The first [`MAX_MATCHES`].
    pub items: Vec<T>,
    /// Number of all matches.
    pub total: usize,
}

/// Matching device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMatch {
    /// Its node.
    pub node: NodeName,
    /// Its PCI address.
    pub pci: PciAddress,
    /// Matching UUID, of the device or of a MIG device on it.
    pub uuid: Option<String>,
}

/// Matching pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodMatch {
    /// Its namespace; empty if the kubelet does not report it.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its node.
    pub node: NodeName,
    /// Devices that it uses: address and display name.
    pub devices: Vec<(PciAddress, String)>,
}

impl<T> Default for Matches<T> {
    fn default() -> Self {
        Self { items: Vec::new(), total: 0 }
    }
}

impl<T> Matches<T> {
    fn push(&mut self, item: T) {
        self.total = self.total.saturating_add(1);
        if self.items.len() < MAX_MATCHES {
            self.items.push(item);
        }
    }

    /// Number of matches that are not returned.
    pub fn rest(&self) -> usize {
        self.total.saturating_sub(self.items.len())
    }
}

impl<T> FromIterator<T> for Matches<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut matches = Self::default();
        for one in all {
            matches.push(one);
        }
        matches
    }
}

/// Returns whether `name` contains the searched text, in any case. Nothing matches an empty text.
pub fn is_match(name: &str, text: &str) -> bool {
    let text = octavo_model::text::truncate(text.trim(), MAX_TEXT_BYTES).to_ascii_lowercase();
    !text.is_empty() && name.to_ascii_lowercase().contains(&text)
}

impl<'a> Search<'a> {
    /// Prepares a search for `text` in the nodes of `fleet`, without reading. An empty text matches all pods of the
    /// namespace of the scope, and nothing else.
    pub fn new(fleet: &'a Fleet, text: &str, scope: Scope) -> Self {
        Self::within(fleet, text, scope, MAX_BYTES_READ)
    }

    fn within(fleet: &'a Fleet, text: &str, scope: Scope, most: usize) -> Self {
        let text = octavo_model::text::truncate(text.trim(), MAX_TEXT_BYTES).to_ascii_lowercase();
        let is_empty = text.is_empty() && scope.namespace.is_none();
        Self {
            pci: text.parse().ok(),
            uuid: uuid_part(&text),
            nodes: if is_empty { Vec::new() } else { fleet.nodes.iter().collect() },
            text,
            scope,
            named: 0,
            next: 0,
            cost: 0,
            read: 0,
            most,
            namespaces: BTreeMap::new(),
            found: SearchResults::default(),
        }
    }

    /// Compares some names, or reads some nodes once all names are compared; returns whether more have to be read.
    pub fn step(&mut self) -> bool {
        if self.named < self.nodes.len() {
            self.take_names();
            return true;
        }
        self.cost = 0;
        while self.cost < COST_PER_STEP {
            let Some(&node) = self.nodes.get(self.next) else {
                return false;
            };
            if self.read >= self.most {
                self.found.searched = Some(self.next);
                return false;
            }
            self.next = self.next.saturating_add(1);
            self.count_read(NODE_COST);
            if self.scope.nodes {
                self.take_devices(node);
            }
            if self.scope.pods {
                self.take_pods(node);
            }
        }
        true
    }

    fn count_read(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes);
        self.cost = self.cost.saturating_add(bytes);
    }

    /// Returns the result.
    pub fn finish(mut self) -> SearchResults {
        for namespace in self.namespaces {
            self.found.namespaces.push(namespace);
        }
        self.found
    }

    fn take_names(&mut self) {
        let names = self.nodes.iter().skip(self.named).take(NAMES_PER_STEP);
        if self.scope.nodes && !self.text.is_empty() {
            for node in names.filter(|node| node.name.as_str().contains(&self.text)) {
                self.found.nodes.push(node.name.clone());
            }
        }
        self.named = self.named.saturating_add(NAMES_PER_STEP);
    }

    fn take_devices(&mut self, node: &Node) {
        let is_address = self.text.contains(':');
        if self.uuid.is_none() && !is_address {
            return;
        }
        let mut catalogs = None;
        for (key, content) in status::device_parts(&node.parts) {
            let Ok(pci) = status::device_address(key) else { continue };
            self.cost = self.cost.saturating_add(ADDRESS_COST);
            let by_address = is_address
                && self.pci.map_or_else(|| pci.to_string().contains(&self.text), |one| one == pci);
            let uuid = self.matching_uuid((node, &mut catalogs), key, content);
            if by_address || uuid.is_some() {
                self.found.devices.push(DeviceMatch { node: node.name.clone(), pci, uuid });
            }
        }
    }

    /// UUID that matches. `catalogs` are those of the node, once a device of it had to be decoded.
    fn matching_uuid(
        &mut self,
        (node, catalogs): (&Node, &mut Option<Catalogs>),
        key: &PartKey,
        content: &Content,
    ) -> Option<String> {
        let size = content.bytes().len();
        let part = self.uuid.as_ref()?;
        self.read = self.read.saturating_add(size);
        self.cost = self.cost.saturating_add(size);
        if !contains(content.bytes(), part.as_bytes()) {
            return None;
        }
        self.cost = self.cost.saturating_add(DECODE_COST);
        let catalogs = match catalogs {
            Some(known) => known,
            // The store accepts decodable parts only.
            None => catalogs.insert(Catalogs::decode(&node.parts).ok()?),
        };
        let device = status::decode_device(key, content, catalogs).ok()?;
        uuids(&device).into_iter().find(|uuid| uuid.to_ascii_lowercase().contains(part))
    }

    fn take_pods(&mut self, node: &Node) {
        let Some(part) = node.parts.get(PartKey::USAGE) else {
            return;
        };
        self.count_read(part.bytes().len());
        let namespace = self.scope.namespace.as_deref();
        if !contains(part.bytes(), self.text.as_bytes())
            || !contains(part.bytes(), namespace.unwrap_or_default().as_bytes())
        {
            return;
        }
        self.cost = self.cost.saturating_add(DECODE_COST);
        let Ok(usage) = status::decode_usage(part) else {
            return;
        };
        // A pod runs on one node.
        let mut pods: BTreeMap<(String, String), Vec<(PciAddress, String)>> = BTreeMap::new();
        for device in &usage.devices {
            for tenant in device.units.iter().flat_map(|unit| &unit.tenants) {
                let Some(pod) = &tenant.pod else { continue };
                let of = tenant.namespace.clone().unwrap_or_default();
                if namespace.is_some_and(|wanted| wanted != of) {
                    continue;
                }
                let devices = pods.entry((of, pod.clone())).or_default();
                if devices.last().is_none_or(|(pci, _)| *pci != device.pci) {
                    devices.push((device.pci, device.name.clone()));
                }
            }
        }
        let is_in_namespace = namespace.is_some();
        for ((namespace, pod), devices) in pods {
            if !is_in_namespace && namespace.contains(&self.text) && !namespace.is_empty() {
                let is_known = self.namespaces.contains_key(&namespace);
                if is_known || self.namespaces.len() < MAX_NAMESPACES {
                    let count = self.namespaces.entry(namespace.clone()).or_default();
                    *count = count.saturating_add(1);
                } else {
                    self.found.has_more_namespaces = true;
                }
            }
            if pod.contains(&self.text) {
                self.found.pods.push(PodMatch { namespace, pod, node: node.name.clone(), devices });
            }
        }
    }
}

/// UUIDs of a device and of its MIG devices.
fn uuids(device: &Device) -> Vec<String> {
    let instances = device.mig.state().into_iter().flat_map(|state| &state.gpu_instances);
    let partitions = instances.flat_map(|instance| &instance.compute_instances);
    let partitions = partitions.filter_map(|one| one.uuid.as_ref()).map(ToString::to_string);
    device.uuid.iter().map(ToString::to_string).chain(partitions).collect()
}

/// Hexadecimal part of a UUID such as `gpu-5fd4087b`; `None` if `text` cannot be one.
fn uuid_part(text: &str) -> Option<String> {
    // MIG devices of older drivers are named `MIG-GPU-<uuid>/<gi>/<ci>`.
    let part = text.strip_prefix("mig-").unwrap_or(text);
    let part = part.strip_prefix("gpu-").unwrap_or(part);
    let is_part = part.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'/'));
    (is_part && part.len() >= MIN_UUID_BYTES).then(|| part.to_owned())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_model::inventory::Inventory;
    use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
    use octavo_stream::protocol::{Change, Run};

    use super::*;
    use crate::clock::Moment;
    use crate::fleet::{Freshness, ReportingAgent, StatusSummary};

    const ALL: Scope = Scope { nodes: true, pods: true, namespace: None };

    fn device() -> Device {
        let uuid = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        Device { uuid: Some(uuid.parse().unwrap()), ..octavo_model::examples::gpu() }
    }

    fn usage(pods: &[(&str, &str)]) -> Usage {
        let tenants = pods.iter().map(|(namespace, pod)| Tenant {
            namespace: Some((*namespace).to_owned()),
            pod: Some((*pod).to_owned()),
            ..Tenant::default()
        });
        let text = r#"{"uuid":"GPU-a","tenants":[],"nearlyExhausted":false}"#;
        let mut unit: UnitUsage = serde_json::from_str(text).unwrap();
        unit.tenants = tenants.collect();
        let text = r#"{"pci":"0000:07:00.0","name":"GPU 0","units":[]}"#;
        let mut device: DeviceUsage = serde_json::from_str(text).unwrap();
        device.units = vec![unit];
        Usage { devices: vec![device], ..Usage::default() }
    }

    fn fleet(nodes: &[(&str, &[(&str, &str)])]) -> Fleet {
        let mut fleet = Fleet::default();
        for (name, pods) in nodes {
            let inventory = Inventory { devices: vec![device()], ..Inventory::default() };
            let parts =
                status::encode(&inventory, &octavo_node::label_set::LabelSet::default(), None);
            let parts = parts.apply(&Change {
                changed: vec![status::encode_usage(&usage(pods))],
                removed: Vec::new(),
            });
            let origin = ReportingAgent {
                name: name.parse().unwrap(),
                run: Run { epoch: 1, boot_id: "b".to_owned() },
                agent_version: "1".to_owned(),
            };
            let digest = StatusSummary::new(&inventory, Arc::default(), None);
            let fresh = Freshness::new(Moment::default(), Duration::from_secs(1));
            fleet.nodes.insert(Arc::new(Node::new(origin, parts, digest, fresh)));
        }
        fleet
    }

    fn run(mut search: Search<'_>) -> SearchResults {
        while search.step() {}
        search.finish()
    }

    fn found(text: &str, scope: Scope) -> SearchResults {
        let fleet = fleet(&[
            ("gpu-01", &[("team-a", "train-0"), ("team-b", "notebook-a")]),
            ("gpu-02", &[("team-a", "train-1")]),
        ]);
        run(Search::new(&fleet, text, scope))
    }

    #[test]
    fn every_kind_is_found_by_a_part_of_its_name() {
        let device = device();
        let uuid = device.uuid.as_ref().unwrap().to_string();
        let hex: String = uuid.chars().skip(4).take(8).collect();
        let address = device.pci.to_string();
        let long = format!("0000{}", address.to_uppercase());
        let upper = uuid.to_uppercase();
        for text in [&*uuid, &*upper, &*hex, &*address, &*long, &address[5..]] {
            let found = found(text, ALL);
            assert_eq!(found.devices.total, 2, "{text}");
            assert_eq!(found.devices.items[0].pci, device.pci, "{text}");
        }
        assert_eq!(found("GPU-0", ALL).nodes.total, 2);
        let pods = found("train", ALL).pods;
        let names: Vec<_> = pods.items.iter().map(|one| (&*one.pod, one.node.as_str())).collect();
        assert_eq!(names, [("train-0", "gpu-01"), ("train-1", "gpu-02")]);
        let namespaces = found("team", ALL).namespaces;
        assert_eq!(namespaces.items, [("team-a".to_owned(), 2), ("team-b".to_owned(), 1)]);
        assert_eq!(found("none of these", ALL), SearchResults::default());
        assert_eq!(found("", ALL), SearchResults::default());
    }

    #[test]
    fn names_match_in_any_case_and_are_bounded() {
        assert!(is_match("NVIDIA H200 141 GB", " h200 ") && is_match("3g.40gb", "3G.40"));
        assert!(!is_match("serving", "") && !is_match("serving", "training"));
        let all: Matches<usize> = (0..25).collect();
        assert_eq!((all.items.len(), all.rest()), (MAX_MATCHES, 5));
    }

    #[test]
    fn nfr_003_scope_limits_what_is_found() {
        let nodes = Scope { pods: false, ..ALL };
        assert_eq!(found("a", nodes.clone()).pods.total, 0);
        assert_eq!(found("team", nodes).namespaces.total, 0);
        let pods = Scope { nodes: false, ..ALL };
        assert_eq!(found("gpu", pods.clone()).nodes.total, 0);
        assert_eq!(found("0000:07:00.0", pods).devices.total, 0);
        let namespace = Some("team-b".to_owned());
        let team = Scope { nodes: false, pods: true, namespace };
        let only = |text| found(text, team.clone()).pods.items;
        assert_eq!(only("a").len(), 1);
        assert_eq!(only("")[0].pod, "notebook-a");
        assert_eq!(only("train"), []);
        // The namespace itself is no match.
        assert_eq!(found("", team).namespaces.total, 0);
    }

    #[test]
    fn i10_matches_are_bounded_and_the_rest_is_counted() {
        let names: Vec<String> = (0..50).map(|number| format!("pod-{number:02}")).collect();
        let pods: Vec<(&str, &str)> = names.iter().map(|name| ("team", name.as_str())).collect();
        let fleet = fleet(&[("gpu-01", &pods), ("gpu-02", &[("team", "pod-99")])]);
        let all = run(Search::new(&fleet, "pod", ALL));
        assert_eq!((all.pods.items.len(), all.pods.rest()), (MAX_MATCHES, 31));
        assert_eq!(all.searched, None);
        let some = run(Search::within(&fleet, "pod", ALL, 1));
        assert_eq!((some.pods.total, some.searched), (50, Some(1)));
        // All names are compared, however large the parts of the first nodes are.
        let some = run(Search::within(&fleet, "gpu-", ALL, 1));
        assert_eq!((some.nodes.total, some.searched), (2, Some(1)));
    }
}
