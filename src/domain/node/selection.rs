//! Reads the layout that a Node's labels select.

use super::view::View;
use super::{COMPAT_MANAGER, LAYOUT, MIG_CONFIG, MIG_CONFIG_STATE};

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
pub struct Selected {
    /// Layout name.
    pub layout: String,
    /// Label key.
    pub key: &'static str,
}

/// Returns the layout that the labels of a Node select; the first existing label counts.
pub fn select(view: &View, compat: Compat) -> Option<Selected> {
    let keys: &[&'static str] = match compat {
        Compat::None => &[LAYOUT],
        Compat::MigManager => &[LAYOUT, MIG_CONFIG],
    };
    keys.iter().find_map(|key| {
        let layout = view.labels.get(*key).filter(|value| !value.is_empty())?;
        Some(Selected {
            layout: layout.clone(),
            key,
        })
    })
}

/// Returns the field manager of mig-manager's status label while it reports that it is partitioning this node.
pub fn at_work(view: &View) -> Option<String> {
    let state = view.labels.get(MIG_CONFIG_STATE)?;
    let mut owners = view.owners.labels.get(MIG_CONFIG_STATE)?.iter();
    let owner = owners.next()?;
    let busy = matches!(state.as_str(), "pending" | "rebooting");
    (busy && owner != COMPAT_MANAGER).then(|| owner.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(labels: &[(&str, &str)]) -> View {
        let labels = labels.iter();
        View {
            labels: labels
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..View::default()
        }
    }

    #[track_caller]
    fn selects(labels: &[(&str, &str)], compat: Compat, expected: Option<(&str, &str)>) {
        let selected = select(&view(labels), compat);
        let selected = selected.as_ref().map(|one| (one.layout.as_str(), one.key));
        assert_eq!(selected, expected);
    }

    #[test]
    fn our_label_goes_before_mig_managers_which_counts_only_where_it_is_honoured() {
        let both = [(LAYOUT, "a"), (MIG_CONFIG, "b")];
        let theirs = [(MIG_CONFIG, "b")];
        selects(&both, Compat::MigManager, Some(("a", LAYOUT)));
        selects(&theirs, Compat::MigManager, Some(("b", MIG_CONFIG)));
        selects(&theirs, Compat::None, None);
        selects(&[(LAYOUT, "")], Compat::None, None);
        selects(&[], Compat::MigManager, None);
    }

    #[test]
    fn a_mig_manager_that_says_it_works_is_seen_and_our_own_answer_is_not_taken_for_one() {
        let of = |state: &str, owner: &str| {
            let mut view = view(&[(MIG_CONFIG_STATE, state)]);
            let owners = [owner.to_owned()].into();
            view.owners
                .labels
                .insert(MIG_CONFIG_STATE.to_owned(), owners);
            at_work(&view)
        };
        assert_eq!(of("pending", "mig-manager").as_deref(), Some("mig-manager"));
        assert_eq!(of("rebooting", "m").as_deref(), Some("m"));
        assert_eq!(of("success", "m"), None);
        assert_eq!(of("pending", COMPAT_MANAGER), None);
        assert_eq!(at_work(&View::default()), None);
    }
}
