//! Scenarios of pausing operands, and random tests.

use super::*;
use proptest::prelude::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn view(labels: &[(&str, &str)], allocatable: &[(&str, u64)]) -> View {
    let text = |text: &str| text.to_owned();
    View {
        labels: labels
            .iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect(),
        allocatable: allocatable
            .iter()
            .map(|(key, count)| (text(key), *count))
            .collect(),
        ..View::default()
    }
}

fn facts(view: &View) -> Facts<'_> {
    Facts {
        view,
        in_the_way: false,
        busy: false,
        changes: 0,
        choice: 0,
        partitions: None,
    }
}

const DCGM: &str = "nvidia.com/gpu.deploy.dcgm";

#[test]
fn clients_are_paused_while_one_is_in_the_way_and_restored_when_the_change_is_done() {
    let view = view(&[(PLUGIN, RUNNING), (DCGM, RUNNING)], &[]);
    let blocked = Facts {
        in_the_way: true,
        ..facts(&view)
    };
    let mut operands = Operands::default();
    assert_eq!(operands.look(at(0), &facts(&view)).paused, BTreeSet::new());
    let paused = operands.look(at(1), &blocked);
    assert_eq!(paused.paused, [PLUGIN.to_owned(), DCGM.to_owned()].into());
    assert_eq!(paused.news, Some(News::Paused));
    let changing = Facts {
        busy: true,
        ..facts(&view)
    };
    assert_eq!(operands.look(at(5), &changing).paused.len(), 2);
    let done = Facts {
        changes: 1,
        ..facts(&view)
    };
    let restored = operands.look(at(6), &done);
    assert_eq!(
        (restored.paused.len(), restored.news),
        (0, Some(News::Restored))
    );
    // The plugin has restarted with the other operands, so it is not restarted again.
    let after = operands.look(at(7), &done);
    assert_eq!((after.paused.len(), after.news), (0, None));
    assert_eq!(operands.look(at(8), &done), Outcome::default());
}

#[test]
fn who_is_still_in_the_way_after_the_pause_is_not_paused_for_again_before_something_else_is_asked()
{
    let view = view(&[(DCGM, RUNNING)], &[]);
    let blocked = |choice| Facts {
        in_the_way: true,
        choice,
        ..facts(&view)
    };
    let mut operands = Operands::default();
    assert_eq!(operands.look(at(0), &blocked(1)).paused.len(), 1);
    assert_eq!(operands.look(at(119), &blocked(1)).paused.len(), 1);
    let ended = operands.look(at(120), &blocked(1));
    assert_eq!(
        (ended.paused.len(), ended.news),
        (0, Some(News::StillInTheWay))
    );
    for second in 121..1000 {
        assert_eq!(operands.look(at(second), &blocked(1)).paused.len(), 0);
    }
    assert_eq!(operands.look(at(1000), &blocked(2)).paused.len(), 1);
}

#[test]
fn where_no_operand_runs_nothing_is_paused() {
    let view = view(
        &[(DCGM, "false"), (PLUGIN, "paused-for-driver-upgrade")],
        &[],
    );
    let blocked = Facts {
        in_the_way: true,
        changes: 3,
        ..facts(&view)
    };
    let mut operands = Operands::default();
    for second in 0..10 {
        assert_eq!(operands.look(at(second), &blocked), Outcome::default());
    }
}

#[test]
fn new_partitions_take_the_plugin_off_until_kubelet_has_seen_it_go_and_then_on() {
    let one = |key: &str| [(key.to_owned(), 2)].into();
    let (small, large): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (one("nvidia.com/mig-1g.5gb"), one("nvidia.com/mig-2g.10gb"));
    let mut operands = Operands::default();
    let before = view(&[(PLUGIN, RUNNING)], &[("nvidia.com/mig-1g.5gb", 2)]);
    let old = Facts {
        partitions: Some(&small),
        ..facts(&before)
    };
    assert_eq!(operands.look(at(0), &old), Outcome::default());
    let new = |view, busy| Facts {
        changes: 1,
        busy,
        partitions: Some(&large),
        ..facts(view)
    };
    assert_eq!(
        operands.look(at(1), &new(&before, true)),
        Outcome::default()
    );
    assert_eq!(
        operands.look(at(2), &new(&before, false)).paused,
        [PLUGIN.to_owned()].into()
    );
    let off = view(&[(PLUGIN, PAUSED)], &[("nvidia.com/mig-1g.5gb", 2)]);
    assert_eq!(operands.look(at(3), &new(&off, false)).paused.len(), 1);
    let gone = view(&[(PLUGIN, PAUSED)], &[("nvidia.com/mig-1g.5gb", 0)]);
    let on = operands.look(at(4), &new(&gone, false));
    assert_eq!((on.paused.len(), on.news), (0, Some(News::Refreshed)));
    assert_eq!(operands.look(at(5), &new(&gone, false)).news, None);
    // Three replicas each.
    let offers = view(
        &[(PLUGIN, RUNNING)],
        &[("nvidia.com/mig-2g.10gb", 6), ("nvidia.com/mig-1g.5gb", 0)],
    );
    assert_eq!(
        operands.look(at(6), &new(&offers, false)).news,
        Some(News::Offered)
    );
    assert_eq!(
        operands.look(at(7), &new(&offers, false)),
        Outcome::default()
    );
}

#[test]
fn i11_what_an_agent_before_us_left_half_done_is_gone_on_with() {
    let paused = view(&[(DCGM, PAUSED)], &[]);
    let mut operands = Operands::default();
    let busy = Facts {
        busy: true,
        ..facts(&paused)
    };
    assert_eq!(operands.look(at(0), &busy).paused.len(), 1);
    assert_eq!(operands.look(at(1), &facts(&paused)).paused.len(), 0);
    // Kubelet still offers partitions that no longer exist.
    let partitions: BTreeMap<_, _> = [("nvidia.com/mig-1g.5gb".to_owned(), 7)].into();
    let offers = view(&[(PLUGIN, RUNNING)], &[("nvidia.com/mig-3g.20gb", 2)]);
    let mut operands = Operands::default();
    let stale = Facts {
        partitions: Some(&partitions),
        ..facts(&offers)
    };
    assert_eq!(
        operands.look(at(0), &stale).paused,
        [PLUGIN.to_owned()].into()
    );
    // A partition that is not offered yet is waited for.
    let late = view(&[(PLUGIN, RUNNING)], &[]);
    let mut operands = Operands::default();
    let waiting = Facts {
        partitions: Some(&partitions),
        ..facts(&late)
    };
    assert_eq!(operands.look(at(0), &waiting), Outcome::default());
}

#[test]
fn a_plugin_that_never_offers_the_partitions_is_told_once() {
    let partitions: BTreeMap<_, _> = [("nvidia.com/mig-1g.5gb".to_owned(), 2)].into();
    let view = view(&[(PLUGIN, PAUSED)], &[]);
    let mut operands = Operands {
        phase: Phase::PluginOff { since: at(0) },
        seen: Some(1),
        ..Operands::default()
    };
    let facts = Facts {
        changes: 1,
        partitions: Some(&partitions),
        ..facts(&view)
    };
    let news: Vec<_> = (0..400)
        .filter_map(|second| operands.look(at(second), &facts).news)
        .collect();
    let lacking = Mismatch {
        resource: "nvidia.com/mig-1g.5gb".to_owned(),
        there: 2,
        offered: 0,
    };
    assert_eq!(news, [News::Refreshed, News::NotOffered(vec![lacking])]);
}

#[test]
fn where_config_manager_runs_another_name_of_the_configuration_is_enough() {
    let configs = Some(("a".to_owned(), "b".to_owned()));
    let mut operands = Operands::new(configs);
    let view = view(&[(PLUGIN, RUNNING), (PLUGIN_CONFIG, "b")], &[]);
    operands.look(at(0), &facts(&view));
    let new = operands.look(
        at(1),
        &Facts {
            changes: 1,
            ..facts(&view)
        },
    );
    assert_eq!(new.paused.len(), 0);
    assert_eq!(new.plugin_config, Some(("b".to_owned(), "a".to_owned())));
    assert_eq!(new.news, Some(News::Refreshed));
    // The switch is requested until it is done.
    let changed = Facts {
        changes: 1,
        ..facts(&view)
    };
    assert_eq!(
        operands.look(at(2), &changed).plugin_config,
        new.plugin_config
    );
    let mut written = view.clone();
    written
        .labels
        .insert(PLUGIN_CONFIG.to_owned(), "a".to_owned());
    let there = Facts {
        changes: 1,
        ..facts(&written)
    };
    assert_eq!(operands.look(at(3), &there), Outcome::default());
}

proptest! {
    /// I11: in any sequence, no operand stays paused for more than a few minutes after the last reason to pause.
    #[test]
    fn i11_nothing_stays_paused(
        steps in prop::collection::vec((0_u64..90, any::<bool>(), any::<bool>(), 0_u64..3, 0_u64..3), 1..60),
        running in any::<bool>(),
    ) {
        let label = if running { RUNNING } else { "false" };
        let mut view = view(&[(PLUGIN, label), (DCGM, label)], &[("nvidia.com/gpu", 8)]);
        let mut operands = Operands::default();
        let (mut now, mut changes, mut choice) = (0, 0, 0);
        for (wait, in_the_way, busy, more, other) in steps {
            (now, changes, choice) = (now + wait, changes + more, choice + other);
            let outcome = operands.look(at(now), &Facts { in_the_way, busy, changes, choice, ..facts(&view) });
            prop_assert!(running || outcome.paused.is_empty());
            for key in [PLUGIN, DCGM] {
                let value = if outcome.paused.contains(key) { PAUSED } else { label };
                view.labels.insert(key.to_owned(), value.to_owned());
            }
        }
        let mut paused = BTreeSet::new();
        for second in 0..600 {
            paused = operands.look(at(now + second), &Facts { changes, choice, ..facts(&view) }).paused;
        }
        prop_assert_eq!(paused, BTreeSet::new());
    }
}
