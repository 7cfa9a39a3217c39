//! Reads the layout that a Node's labels select.

use super::view::ObservedNode;
use super::{COMPAT_FIELD_MANAGER, LAYOUT_LABEL, MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL};

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
}

/// Returns the layout that the labels of a Node select; the first existing label counts.
pub fn select(view: &ObservedNode, compat: Compat) -> Option<SelectedLayout> {
    let keys: &[&'static str] = match compat {
        Compat::None => &[LAYOUT_LABEL],
        Compat::MigManager => &[LAYOUT_LABEL, MIG_CONFIG_LABEL],
    };
    keys.iter().find_map(|key| {
        let layout = view.labels.get(*key).filter(|value| !value.is_empty())?;
        Some(SelectedLayout { layout: layout.clone(), key })
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
