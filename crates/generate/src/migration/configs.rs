//! The `ConfigMap`s of mig-manager and of NVIDIA's device plugin. Only configurations that nodes use are parsed.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::source_position::SourcePosition;
use octavo_node::node_object::MIG_CONFIG_LABEL;
use octavo_node::node_object::operands::PLUGIN_CONFIG_LABEL;
use octavo_planner::layout::{
    Layout, Layouts, ResourceRename, Share, ShareTarget, TimeSlicing, UnitSelector,
};

use super::finding::Finding;
use super::objects::{ClusterPolicy, Operand, OperatorObjects};

/// `ConfigMap` of mig-manager if the operator's settings name none. Source: NVIDIA gpu-operator, `assets/state-mig-manager`.
const DEFAULT_MIG_CONFIG: &str = "default-mig-parted-config";
/// Key of the `ConfigMap` of mig-manager.
const MIG_KEY: &str = "config.yaml";

/// Parser of configurations: returns the layouts and warnings, or errors, with their positions in the text.
pub type ParseConfig<'a> = &'a dyn Fn(&str) -> Result<(Layouts, Vec<String>), Vec<String>>;

/// Time-slicing of a configuration, with its key.
pub(super) type NamedSharing = (String, TimeSlicing);

/// Configurations of a cluster.
pub(super) struct Configs<'a> {
    objects: &'a OperatorObjects,
    policy: &'a ClusterPolicy,
    parse: ParseConfig<'a>,
    /// Parsed MIG configurations by the name of their `ConfigMap`.
    mig: BTreeMap<String, Option<Layouts>>,
    /// Parsed configurations of the device plugin by key.
    plugin: BTreeMap<String, Option<TimeSlicing>>,
    pub(super) findings: BTreeSet<Finding>,
    pub(super) notes: BTreeSet<String>,
}

impl<'a> Configs<'a> {
    pub(super) fn new(
        objects: &'a OperatorObjects,
        policy: &'a ClusterPolicy,
        parse: ParseConfig<'a>,
    ) -> Self {
        Self {
            objects,
            policy,
            parse,
            mig: BTreeMap::new(),
            plugin: BTreeMap::new(),
            findings: BTreeSet::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Returns the MIG configurations that all nodes have in common; `None` if mig-manager generates them for each node.
    pub(super) fn common_mig(&mut self) -> Option<Layouts> {
        let map = self.common_mig_map()?;
        self.mig_layouts(map)
    }

    /// Returns the MIG configuration of this name for a node. A missing one is recorded.
    pub(super) fn mig(&mut self, node: &str, name: &str) -> Option<Layout> {
        // Newer versions of mig-manager generate the configurations for each node unless a ConfigMap is set.
        let generated = || format!("{node}-mig-config");
        let map = self.common_mig_map().map_or_else(generated, str::to_owned);
        let layout = self.mig_layouts(&map)?.by_name(name).cloned();
        if layout.is_none() {
            let problem = format!("{} has no MIG configuration {name}", self.object(&map));
            let remedy = "set the label to an existing configuration, or add the configuration";
            self.findings.insert(Finding::of_label(node, MIG_CONFIG_LABEL, problem, remedy));
        }
        layout
    }

    /// Returns the name of the `ConfigMap` of mig-manager that the operator's settings contain, or of the default one if it exists.
    fn common_mig_map(&self) -> Option<&'a str> {
        let configured = Operand::config_name(self.policy.spec.mig_manager.as_ref());
        let exists =
            || self.objects.config_map(self.policy.namespace(), DEFAULT_MIG_CONFIG).is_some();
        configured.or_else(|| exists().then_some(DEFAULT_MIG_CONFIG))
    }

    fn mig_layouts(&mut self, map: &str) -> Option<Layouts> {
        if let Some(known) = self.mig.get(map) {
            return known.clone();
        }
        let layouts = self.parsed(map, MIG_KEY, "spec.migManager.config.name");
        self.mig.insert(map.to_owned(), layouts.clone());
        layouts
    }

    /// Returns the time-slicing of nodes with this value of the label, if there is any. `None` if it cannot be migrated; the reason is
    /// recorded.
    #[expect(
        clippy::option_option,
        reason = "the outer option is None if the configuration is unusable"
    )]
    pub(super) fn sharing(
        &mut self,
        node: &str,
        label: Option<&str>,
    ) -> Option<Option<NamedSharing>> {
        let operand = self.policy.spec.device_plugin.as_ref();
        let Some(map) = Operand::config_name(operand) else {
            if label.is_some() {
                self.notes.insert(format!(
                    "the label {PLUGIN_CONFIG_LABEL} has no effect, because {} sets no \
                     spec.devicePlugin.config.name",
                    policy_object(self.policy)
                ));
            }
            return Some(None);
        };
        // Without a default, the operator gives such nodes an empty configuration (FALLBACK_STRATEGIES=empty).
        let Some(key) = label.or_else(|| Operand::config_default(operand)) else {
            return Some(None);
        };
        let found = self.objects.config_map(self.policy.namespace(), map);
        if found.is_some_and(|found| !found.data.contains_key(key)) && label.is_some() {
            let problem = format!("{} has no key {key}", self.object(map));
            let remedy = "set the label to an existing key, or add the key";
            self.findings.insert(Finding::of_label(node, PLUGIN_CONFIG_LABEL, problem, remedy));
            return None;
        }
        let sharing = self.plugin_sharing(map, key)?;
        Some(sharing.is_sharing().then(|| (key.to_owned(), sharing)))
    }

    fn plugin_sharing(&mut self, map: &str, key: &str) -> Option<TimeSlicing> {
        if let Some(known) = self.plugin.get(key) {
            return known.clone();
        }
        let found = self.objects.config_map(self.policy.namespace(), map);
        if found.and_then(|found| found.data.get(key)).is_some_and(|text| has_no_settings(text)) {
            let (position, shares) = (SourcePosition::default(), Vec::new());
            return Some(TimeSlicing { position, shares, slice: None });
        }
        let layouts = self.parsed(map, key, "spec.devicePlugin.config.name");
        let rules = layouts.map(|layouts| layouts.layouts.into_iter().flat_map(|one| one.rules));
        let sharing = rules.and_then(|mut rules| rules.find_map(|rule| rule.time_slicing));
        let sharing = sharing.map(as_nvidia_applies_it);
        self.plugin.insert(key.to_owned(), sharing.clone());
        sharing
    }

    /// Parses a key of a `ConfigMap`, which a field of the operator's settings names. Errors are recorded.
    fn parsed(&mut self, map: &str, key: &str, field: &str) -> Option<Layouts> {
        let object = self.object(map);
        let Some(found) = self.objects.config_map(self.policy.namespace(), map) else {
            let remedy = "create it, or correct the name";
            self.findings.insert(Finding::new(
                policy_object(self.policy),
                field.to_owned(),
                format!("{object} is missing"),
                remedy,
            ));
            return None;
        };
        let path = format!("data[{key}]");
        let Some(text) = found.data.get(key) else {
            let remedy = "add the key, or select another one";
            let problem = "the key is missing".to_owned();
            self.findings.insert(Finding::new(object, path, problem, remedy));
            return None;
        };
        match (self.parse)(text) {
            Ok((layouts, warnings)) => {
                let notes = warnings.into_iter().map(|one| format!("{object}, {path}: {one}"));
                self.notes.extend(notes);
                Some(layouts)
            }
            Err(errors) => {
                let remedy = "correct it; until then, no policy selects the nodes that use it";
                let found = errors
                    .into_iter()
                    .map(|problem| Finding::new(object.clone(), path.clone(), problem, remedy));
                self.findings.extend(found);
                None
            }
        }
    }

    fn object(&self, map: &str) -> String {
        format!("ConfigMap {}/{map}", self.policy.namespace())
    }
}

/// Kind and name of the operator's settings.
pub(super) fn policy_object(policy: &ClusterPolicy) -> String {
    format!("ClusterPolicy {}", policy.metadata.name)
}

/// Returns whether a configuration of the device plugin has at most a version. Such a text has no key that distinguishes it from a
/// configuration of mig-parted.
fn has_no_settings(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.all(|line| line.is_empty() || line == "---" || line.starts_with("version:"))
}

/// Removes what NVIDIA's plugin parses and ignores: other names and the selection of devices. Octavo would apply it.
fn as_nvidia_applies_it(sharing: TimeSlicing) -> TimeSlicing {
    let mut sharing = sharing.without_positions();
    let is_renamed = sharing.shares.iter().any(|share| share.rename == ResourceRename::Shared);
    let mut seen = BTreeSet::new();
    sharing.shares.retain_mut(|Share { of, rename, .. }| {
        if matches!(rename, ResourceRename::To(_)) {
            *rename = if is_renamed { ResourceRename::Shared } else { ResourceRename::No };
        }
        let ShareTarget::Resource { name, which } = of else { return true };
        *which = UnitSelector::All;
        seen.insert(name.clone())
    });
    sharing
}
