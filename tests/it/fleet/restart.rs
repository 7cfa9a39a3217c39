//! A killed aggregator loses its state, and the fleet recovers.

use std::collections::BTreeSet;

use nvml_sim::model::Slot;

use super::{MIXED, SINGLE, agreed};
use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::{Finish, until_async};

/// Log line of an agent that reports, distinct from the one about a failure.
const REPORTING: &str = "INFO reporting to the aggregator ";

#[tokio::test]
async fn fleet_survives_aggregator_restart() {
    let mut aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let machines = [MIXED, SINGLE, SINGLE, SINGLE, SINGLE].map(Machine::new);
    let names = ["a", "b", "c", "d", "e"];
    let mut agents: Vec<Program> = names
        .iter()
        .zip(&machines)
        .map(|(name, machine)| machine.report(&aggregator, name, &[]))
        .collect();
    for agent in &mut agents {
        agent.expect_log(REPORTING);
    }
    aggregator.kill();
    for agent in &mut agents {
        agent.expect_log("cannot report to the aggregator");
    }
    machines[0].change(|world| world.lose_gpu(Slot(0)));
    machines[1].change(|world| world.lose_gpu(Slot(0)));
    machines[2].change(|world| world.reload_driver(Some("580.95.05")));
    for agent in &mut agents[..2] {
        agent.expect_log(", failing: ");
    }
    agents[2].expect_log("nvml: ready driver=580.95.05");
    aggregator.restart();
    for agent in &mut agents {
        agent.expect_log(REPORTING);
    }
    for (name, machine) in names.iter().zip(&machines) {
        let node = agreed(&api, name, machine).await;
        let lost = matches!(*name, "a" | "b");
        assert_eq!(node["state"], if lost { "degraded" } else { "ok" });
    }
    assert_eq!(api.nodes().await.len(), names.len());
    for agent in &mut agents {
        let reported = agent.kill();
        let count = |text: &str| reported.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count(REPORTING), 2, "{reported:#?}");
        // The broken stream and the failing reconnection are logged once each.
        let reasons: Vec<&str> = reported
            .iter()
            .filter_map(|line| {
                Some(line.split_once("cannot report to the aggregator")?.1.split_once(" error=")?.1)
            })
            .collect();
        let different: BTreeSet<&str> = reasons.iter().copied().collect();
        assert_eq!(reasons.len(), different.len(), "{reported:#?}");
    }
}

#[tokio::test]
async fn restarted_aggregator_marks_partial_fleet_as_starting() {
    let mut aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(SINGLE);
    let mut stays = machine.report(&aggregator, "stays", &[]);
    let mut goes = machine.report(&aggregator, "goes", &[]);
    for agent in [&mut stays, &mut goes] {
        agent.expect_log(REPORTING);
    }
    api.node("goes", |_| true).await;
    // Agents that report for the first time do not indicate a restart.
    let list = "/api/v1/nodes";
    let read = async || api.get(list).await.body;
    until_async("a start that is over", read, |body| !body.contains("starting")).await;
    aggregator.kill();
    goes.kill();
    aggregator.restart();
    stays.expect_log(REPORTING);
    api.node("stays", |_| true).await;
    let list = api.get(list).await.json();
    assert_eq!(list["starting"]["nodes"], 1, "{list}");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["nodes", "--server"])
        .arg(format!("http://{}", aggregator.http))
        .finish();
    let notes = String::from_utf8(output.stderr).unwrap();
    let shown = "note: the aggregator is starting: nodes that have reported so far: 1; the output is incomplete";
    assert!(notes.contains(shown), "{notes}");
}
