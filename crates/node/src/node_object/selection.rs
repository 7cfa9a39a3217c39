//! Reads the layout that a Node's labels select.

use super::exact_instances::is_demand_layout;
use super::view::ObservedNode;
use super::{
    COMPAT_FIELD_MANAGER, INSTANCES_ANNOTATION, LAYOUT_LABEL, MIG_CONFIG_LABEL,
    MIG_CONFIG_STATE_LABEL,
};

/// Labels of other programs to honor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// None.
    #[default]
    None,
    /// Labels of NVIDIA's mig-manager, whose status label the agent then also sets.
    MigManager,
}

/// A layout selected by a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedLayout {
    /// Layout name.
    pub layout: String,
    /// Label key.
    pub key: &'static str,
    /// Annotation with the exact instances, if the layout is one of exact instances and the annotation exists.
    pub instances: Option<String>,
}

impl SelectedLayout {
    /// Returns whether the instances of the layout are those of the annotation `octavo.dev/instances`.
    pub fn has_exact_instances(&self) -> bool {
        self.key == LAYOUT_LABEL && is_demand_layout(&self.layout)
    }
}

/// Returns the layout that the labels of a Node select; the first existing label counts.
pub fn select(view: &ObservedNode, compat: Compat) -> Option<SelectedLayout> {
    let keys: &[&'static str] = match compat {
        Compat::None => &[LAYOUT_LABEL],
        Compat::MigManager => &[LAYOUT_LABEL, MIG_CONFIG_LABEL],
    };
    keys.iter().find_map(|key| {
        let layout = view.labels.get(*key).filter(|value| !value.is_empty())?;
        let mut selected = SelectedLayout { layout: layout.clone(), key, instances: None };
        if selected.has_exact_instances() {
            selected.instances = view.annotations.get(INSTANCES_ANNOTATION).cloned();
        }
        Some(selected)
    })
}

/// Returns the field manager of mig-manager's status label while it reports that it is partitioning this node.
pub fn active_mig_manager(view: &ObservedNode) -> Option<String> {
    let state = view.labels.get(MIG_CONFIG_STATE_LABEL)?;
    let mut owners = view.owners.labels.get(MIG_CONFIG_STATE_LABEL)?.iter();
    let owner = owners.next()?;
    let busy = matches!(state.as_str(), "pending" | "rebooting");
    (busy && owner != COMPAT_FIELD_MANAGER).then(|| owner.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(labels: &[(&str, &str)]) -> ObservedNode {
        let labels = labels.iter();
        ObservedNode {
            labels: labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..ObservedNode::default()
        }
    }

    #[track_caller]
    fn selects(labels: &[(&str, &str)], compat: Compat, expected: Option<(&str, &str)>) {
        let selected = select(&view(labels), compat);
        let selected = selected.as_ref().map(|one| (one.layout.as_str(), one.key));
        assert_eq!(selected, expected);
    }

    #[test]
    fn own_label_precedes_mig_managers_if_honored() {
        let both = [(LAYOUT_LABEL, "a"), (MIG_CONFIG_LABEL, "b")];
        let theirs = [(MIG_CONFIG_LABEL, "b")];
        selects(&both, Compat::MigManager, Some(("a", LAYOUT_LABEL)));
        selects(&theirs, Compat::MigManager, Some(("b", MIG_CONFIG_LABEL)));
        selects(&theirs, Compat::None, None);
        selects(&[(LAYOUT_LABEL, "")], Compat::None, None);
        selects(&[], Compat::MigManager, None);
    }

    #[test]
    fn annotation_with_instances_is_read_only_for_own_label_with_the_reserved_prefix() {
        let of = |labels: &[(&str, &str)], compat: Compat| {
            let annotations = [(INSTANCES_ANNOTATION.to_owned(), "text".to_owned())].into();
            let selected = select(&ObservedNode { annotations, ..view(labels) }, compat).unwrap();
            (selected.has_exact_instances(), selected.instances)
        };
        let demand = "demand-0123456789";
        let text = Some("text".to_owned());
        assert_eq!(of(&[(LAYOUT_LABEL, demand)], Compat::None), (true, text));
        assert_eq!(of(&[(LAYOUT_LABEL, "serving")], Compat::None), (false, None));
        assert_eq!(of(&[(MIG_CONFIG_LABEL, demand)], Compat::MigManager), (false, None));
        let missing = select(&view(&[(LAYOUT_LABEL, demand)]), Compat::None).unwrap();
        assert!(missing.has_exact_instances());
        assert_eq!(missing.instances, None);
    }

    #[test]
    fn active_mig_manager_is_detected_and_own_answer_is_ignored() {
        let of = |state: &str, owner: &str| {
            let mut view = view(&[(MIG_CONFIG_STATE_LABEL, state)]);
            let owners = [owner.to_owned()].into();
            view.owners.labels.insert(MIG_CONFIG_STATE_LABEL.to_owned(), owners);
            active_mig_manager(&view)
        };
        assert_eq!(of("pending", "mig-manager").as_deref(), Some("mig-manager"));
        assert_eq!(of("rebooting", "m").as_deref(), Some("m"));
        assert_eq!(of("success", "m"), None);
        assert_eq!(of("pending", COMPAT_FIELD_MANAGER), None);
        assert_eq!(active_mig_manager(&ObservedNode::default()), None);
    }
}
