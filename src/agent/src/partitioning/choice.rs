//! Sources of a node's layout, in order of precedence: a label of its Node, a manual choice, the settings.

use octavo_engine::agent_socket::LayoutChoice;
use octavo_engine::durable::DurableError;
use octavo_engine::store::StoreError;
use octavo_files::checkpoint::{self, CheckpointError};
use octavo_files::config_files::{InvalidLayouts, LayoutFileSnapshot, LayoutLookupError};
use octavo_model::inventory::Inventory;
use octavo_node::node_object::{
    INSTANCES_ANNOTATION, InstancesRejected, LAYOUT_LABEL, SelectedLayout, check_instances,
};
use octavo_planner::layout::Targets;
use thiserror::Error;

/// Layout choice of this machine's Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// The Node is not consulted.
    #[default]
    NotConsulted,
    /// The Node was not read yet; no change is started before it was.
    NotRead,
    /// The Node makes no choice.
    NoChoice,
    /// A label names the layout.
    Label(SelectedLayout),
    /// Another program is partitioning this node; with the layout that a label names for afterwards.
    ForeignChange(String, Option<SelectedLayout>),
}

/// The choice of each source.
#[derive(Debug)]
pub(super) struct LayoutChoices {
    settings: Option<String>,
    /// Takes precedence over the settings.
    pub(super) manual: Option<ManualChoice>,
    /// Takes precedence over both.
    pub(super) node: NodeChoice,
    /// Whether the Node's choice changes so often that the agent waits for it to settle.
    pub(super) is_node_unsettled: bool,
}

impl LayoutChoices {
    pub(super) fn new(settings: Option<String>) -> Self {
        Self { settings, manual: None, node: NodeChoice::NotConsulted, is_node_unsettled: false }
    }

    /// The layout that a label of the Node selects, even if another program partitions the node now.
    pub(super) fn label(&self) -> Option<&SelectedLayout> {
        match &self.node {
            NodeChoice::Label(selected) => Some(selected),
            NodeChoice::ForeignChange(_, selected) => selected.as_ref(),
            NodeChoice::NotConsulted | NodeChoice::NotRead | NodeChoice::NoChoice => None,
        }
    }

    /// The manual choice, unless the Node takes precedence over it.
    pub(super) fn manual(&self) -> Option<&ManualChoice> {
        match self.node {
            NodeChoice::NotConsulted | NodeChoice::NoChoice => self.manual.as_ref(),
            NodeChoice::NotRead | NodeChoice::Label(_) | NodeChoice::ForeignChange(..) => None,
        }
    }

    /// The targets of the layout that a label selects, if the Node's annotation lists its exact instances.
    pub(super) fn exact_targets(
        &self,
        inventory: &Inventory,
    ) -> Option<Result<Targets, ChoiceRejected>> {
        let selected = self.label().filter(|selected| selected.has_exact_instances())?;
        Some(exact_targets(selected, inventory))
    }

    /// The name of the selected layout.
    pub(super) fn name(&self) -> Option<&str> {
        if self.node == NodeChoice::NotRead {
            return None;
        }
        let label = self.label().map(|selected| selected.layout.as_str());
        let manual = self.manual.as_ref().map(|manual| manual.layout.as_str());
        label.or(manual).or(self.settings.as_deref())
    }
}

fn exact_targets(
    selected: &SelectedLayout,
    inventory: &Inventory,
) -> Result<Targets, ChoiceRejected> {
    let text = check_instances(&selected.layout, selected.instances.as_deref())?;
    checkpoint::read(text, inventory).map_err(|source| ChoiceRejected::InstancesUnusable {
        layout: selected.layout.clone(),
        source,
    })
}

/// A manually selected layout.
#[derive(Debug)]
pub(super) struct ManualChoice {
    pub(super) layout: String,
    pub(super) source: ChoiceSource,
}

/// Origin of a manually selected layout.
#[derive(Debug)]
pub(super) enum ChoiceSource {
    /// One of the agent's own layouts.
    OwnLayouts,
    /// A layout of the file that was sent with the choice.
    SentLayouts(LayoutFileSnapshot),
    /// A checkpoint.
    Checkpoint(String),
}

impl ManualChoice {
    pub(super) fn try_from_choice(choice: &LayoutChoice) -> Result<Self, InvalidLayouts> {
        let source = match (&choice.checkpoint, &choice.layouts) {
            (Some(text), _) => ChoiceSource::Checkpoint(text.clone()),
            (None, Some(text)) => ChoiceSource::SentLayouts(LayoutFileSnapshot::parse(text)?),
            (None, None) => ChoiceSource::OwnLayouts,
        };
        Ok(Self { layout: choice.layout.clone(), source })
    }
}

/// Reason for rejecting a choice.
#[derive(Debug, Error)]
pub enum ChoiceRejected {
    /// A label of the Node takes precedence.
    #[error(
        "the Node label {key}={layout} selects the layout of this node: change or remove the label first"
    )]
    Label {
        /// The label.
        key: &'static str,
        /// The layout.
        layout: String,
    },
    /// It is not known yet whether the Node names a layout.
    #[error(
        "the Node of this machine has not been read yet, and might select a layout; check that the API server is reachable"
    )]
    NodeNotRead,
    /// The file that was sent with the choice cannot be used.
    #[error(transparent)]
    Layouts(#[from] InvalidLayouts),
    /// The layout cannot be used on this node.
    #[error(transparent)]
    Layout(#[from] LayoutLookupError),
    /// The checkpoint cannot be used on this node.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The annotation with the exact instances of a layout is not the right one.
    #[error(transparent)]
    Instances(#[from] InstancesRejected),
    /// The annotation with the exact instances of a layout cannot be used on this node.
    #[error(
        "remove the label {LAYOUT_LABEL} or choose another layout, because the annotation {INSTANCES_ANNOTATION} of \
         layout {layout} cannot be used on this node"
    )]
    InstancesUnusable {
        /// The layout.
        layout: String,
        /// The cause.
        source: CheckpointError,
    },
    /// The choice could not be stored.
    #[error(transparent)]
    Store(#[from] DurableError),
    /// A pending change could not be discarded.
    #[error(transparent)]
    Discard(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use octavo_model::examples::{gpu, h100};
    use octavo_model::inventory::{Device, Mig};
    use octavo_node::node_object::{MIG_CONFIG_LABEL, demand_layout};
    use octavo_planner::layout::{InstanceTarget, MigTarget};
    use octavo_toolkit::error::chain;

    use super::*;

    const UUID: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    fn inventory() -> Inventory {
        let mig = Mig::Capable(h100());
        let device = Device { uuid: UUID.parse().ok(), mig, ..gpu() };
        Inventory { devices: vec![device], ..Inventory::default() }
    }

    /// A checkpoint with an instance 3g.40gb in the second half of a GPU.
    fn text(uuid: &str) -> String {
        format!(
            r#"{{"Version":"v1","MigState":{{"Devices":[{{"UUID":"{uuid}","MigMode":1,"GpuInstances":[
            {{"ProfileID":2,"Placement":{{"Start":4,"Size":4}},"ComputeInstances":[{{"ProfileID":2,"EngProfileID":0}}]}}
            ]}}]}}}}"#
        )
    }

    fn choices(key: &'static str, layout: &str, instances: Option<&str>) -> LayoutChoices {
        let instances = instances.map(ToOwned::to_owned);
        let selected = SelectedLayout { layout: layout.to_owned(), key, instances };
        LayoutChoices { node: NodeChoice::Label(selected), ..LayoutChoices::new(None) }
    }

    #[test]
    fn exact_instances_have_the_placements_of_the_annotation() {
        let (inventory, text) = (inventory(), text(UUID));
        let choices = choices(LAYOUT_LABEL, &demand_layout(&text), Some(&text));
        let targets = choices.exact_targets(&inventory).unwrap().unwrap();
        let [target] = targets.devices.as_slice() else { panic!("{targets:?}") };
        assert_eq!(target.pci, inventory.devices[0].pci);
        let Some(MigTarget::Enabled(instances)) = &target.mig else { panic!("{target:?}") };
        let [InstanceTarget { profile_id: 9, compute, placement: Some(placement) }] =
            instances.as_slice()
        else {
            panic!("{instances:?}")
        };
        assert_eq!((compute.as_slice(), placement.start, placement.size), (&[3][..], 4, 4));
    }

    #[test]
    fn other_layouts_have_no_exact_instances() {
        let inventory = inventory();
        let name = demand_layout(&text(UUID));
        assert!(choices(LAYOUT_LABEL, "serving", None).exact_targets(&inventory).is_none());
        assert!(choices(MIG_CONFIG_LABEL, &name, None).exact_targets(&inventory).is_none());
        let settings = LayoutChoices::new(Some(name));
        assert!(settings.exact_targets(&inventory).is_none());
    }

    #[track_caller]
    fn is_rejected(layout: &str, instances: Option<&str>, expected: &str) {
        let choices = choices(LAYOUT_LABEL, layout, instances);
        let error = choices.exact_targets(&inventory()).unwrap().unwrap_err();
        let message = chain(&error);
        assert!(message.contains(expected) && message.contains("remove the label"), "{message}");
        assert!(message.contains(layout), "{message}");
    }

    #[test]
    fn i12_unusable_annotation_is_a_typed_error_with_a_remedy() {
        let known = text(UUID);
        let layout = demand_layout(&known);
        is_rejected(&layout, None, "needs the annotation octavo.dev/instances");
        let changed = known.replace("Start\":4", "Start\":0");
        is_rejected(&layout, Some(&changed), "does not belong to layout");
        let large = " ".repeat(200_000);
        is_rejected(&demand_layout(&large), Some(&large), "has 200,000 bytes");
        let other = text("GPU-00000000-0000-0000-0000-000000000000");
        is_rejected(&demand_layout(&other), Some(&other), "this node has no GPU GPU-00000000");
        is_rejected(&demand_layout("[]"), Some("[]"), "it is not a checkpoint");
        let unknown = known.replace("ProfileID\":2", "ProfileID\":99");
        is_rejected(&demand_layout(&unknown), Some(&unknown), "no GPU instance profile 99");
    }
}
