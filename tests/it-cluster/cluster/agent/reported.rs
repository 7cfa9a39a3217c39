//! Reports about lost GPUs, invalid layouts, read-only agents and rejected events.

use super::proxy::{Fault, Proxy, RequestFilter};
use super::{NODE_WRITTEN, Rig};
use crate::cluster::Api;
use crate::time_limits::until;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

#[test]
fn rejected_events_are_retried_and_the_latest_is_sent() {
    for code in [403, 503] {
        let rig = Rig::new(Api::shared(), TWO);
        let proxy = Proxy::start(rig.api);
        let mut agent = rig.through(&proxy, &[]);
        agent.expect_log(NODE_WRITTEN);
        proxy.fault(Fault { to: RequestFilter::Events, code, retry_after: None, times: 3 });
        rig.label(&["octavo.dev/layout=all-7g.40gb"]);
        rig.await_label("octavo.dev/layout-state", "applied");
        let shown = rig.await_event("LayoutApplied");
        assert_eq!(shown, "layout all-7g.40gb: 2 applied");
        let last = rig.events().pop().unwrap();
        assert_eq!(last.0, "LayoutApplied", "{code}");
    }
}

#[test]
fn lost_gpu_sets_node_to_failed_until_it_returns() {
    let rig = Rig::new(Api::shared(), TWO);
    let _agent = rig.start(&[]);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let machine = &rig.machine.machine;
    let slot = machine.world().slot_of_index(1).unwrap();
    machine.change(|world| world.lose_gpu(slot));
    rig.await_label("octavo.dev/layout-state", "failed");
    let shown = rig.await_event("LayoutFailed");
    assert!(
        shown.starts_with("layout all-7g.40gb: 1 applied, 1 failed. GPU 1: failed: ")
            && shown.contains("GPU is lost"),
        "{shown}"
    );
    let status = rig.status();
    assert_eq!(status["state"], "failed");
    assert_eq!(status["devices"][1]["state"], "failed");
    machine.change(|world| world.return_gpu(slot));
    rig.await_label("octavo.dev/layout-state", "applied");
}

#[test]
fn read_only_agent_reports_layout_has_no_effect_without_warning() {
    let rig = Rig::new(Api::shared(), TWO);
    let mut agent = rig.start(&["--read-only"]);
    agent.expect_log(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "2");
    assert_eq!(rig.status().get("message"), None);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "failed");
    let shown = rig.await_event("LayoutFailed");
    assert!(shown.contains("layout all-7g.40gb has no effect: this agent is read-only"), "{shown}");
    assert_eq!(rig.events().len(), 1, "{:?}", rig.events());
    assert!(rig.machine.geometry(0).is_empty());
    assert!(!rig.machine.state().exists());
    rig.label(&["octavo.dev/layout-"]);
    let state = || rig.labels("octavo.dev/layout-state");
    until("a Node without the state of a layout", state, Vec::is_empty);
}

#[test]
fn invalid_layout_file_at_start_is_reported_until_repaired() {
    let rig = Rig::new(Api::shared(), TWO);
    let file = rig.machine.layouts("[{devices: all, migg: disabled}]");
    let mut agent = rig.start(&["--layouts", &file]);
    agent.expect_log(NODE_WRITTEN);
    let shown = rig.await_event("LayoutNotice");
    assert!(shown.contains("unknown key \"migg\""), "{shown}");
    let message = rig.status()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("No layouts are available until"), "{message}");
    rig.label(&["octavo.dev/layout=wanted"]);
    rig.await_label("octavo.dev/layout-state", "failed");
    rig.machine.layouts("[{devices: all, mig: {7g.40gb: 1}}]");
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(rig.status().get("message"), None);
}
