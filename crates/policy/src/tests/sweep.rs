//! A crash at every write.

use serde_json::json;

use super::cluster::{Cluster, Controller, Fate, spec};

/// Runs a roll-out whose controller crashes after each number of writes, with the view that it had at its start.
fn sweep(prepare: impl Fn(&mut Cluster), budget: usize) -> Vec<Cluster> {
    let mut done = Vec::new();
    for crash_after in 0..40 {
        let mut cluster = Cluster::new(5);
        prepare(&mut cluster);
        let mut controller = Controller::new(&cluster);
        let mut stale = controller.clone();
        let mut left = crash_after;
        for _minute in 0..30 {
            loop {
                if left == 0 {
                    // The next leader lists the policies, and its watch of the nodes lags behind.
                    controller = stale.clone();
                    controller.list_policies(&cluster);
                    left = u32::MAX;
                }
                let writes = controller.work(&mut cluster, 1);
                left = left.saturating_sub(writes);
                assert!(
                    cluster.taken_down.len() <= budget,
                    "crash after {crash_after}: {:?}",
                    cluster.taken_down
                );
                if writes == 0 {
                    break;
                }
            }
            cluster.tick();
            if left == u32::MAX {
                controller.see_nodes(&cluster);
            } else {
                stale = controller.clone();
                controller.see_nodes(&cluster);
            }
        }
        cluster.settle();
        done.push(cluster);
    }
    done
}

#[test]
fn p5_crash_at_any_write_ends_complete_within_the_budget() {
    for cluster in
        sweep(|cluster| cluster.apply("a", spec("serving", json!({"maxUnavailable": 2}))), 2)
    {
        assert_eq!(
            (cluster.state("a").as_str(), cluster.layouts()),
            ("Complete", vec![Some("serving"); 5])
        );
    }
}

#[test]
fn p5_crash_at_any_write_of_a_rollback_restores_the_previous_revision() {
    let prepare = |cluster: &mut Cluster| {
        cluster.apply("a", spec("serving", json!({})));
        cluster.settle();
        cluster.machines.get_mut("node-02").unwrap().fate = Fate::Fails;
        cluster.apply("a", spec("training", json!({"onFailure": "RollBack", "maxUnavailable": 1})));
    };
    for mut cluster in sweep(prepare, 1) {
        cluster.machines.get_mut("node-02").unwrap().fate = Fate::Applies(1);
        cluster.tick();
        cluster.settle();
        assert_eq!(cluster.layouts(), [Some("serving"); 5]);
    }
}
