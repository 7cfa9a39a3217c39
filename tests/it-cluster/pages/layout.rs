//! Layout status of a node: on its page and in the list.

use octavo_model::inventory::Inventory;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ChangeProgress, DeviceLayoutStatus, NodeLayoutStatus};
use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::Site;
use crate::machine::Machine;

/// Layout status for `inventory`: the first device with completed steps, then one device per given state, and the rest
/// applied.
pub(super) fn layout_status(
    inventory: &Inventory,
    done: usize,
    others: &[(&str, &str)],
) -> NodeLayoutStatus {
    let device = |(at, device): (usize, &octavo_model::inventory::Device)| {
        let other = at.checked_sub(1).and_then(|at| others.get(at));
        let (state, message) = match (at, other) {
            (0, _) => ("applying", ""),
            (_, Some(other)) => *other,
            (_, None) => ("applied", ""),
        };
        DeviceLayoutStatus {
            message: message.to_owned(),
            progress: (at == 0).then(|| ChangeProgress {
                current_step: "create 3g.40gb in slices 4-7".to_owned(),
                done,
                steps: 8,
                back: false,
            }),
            ..DeviceLayoutStatus::new(device.pci, format!("GPU {at}"), Reported::parse(state))
        }
    };
    let devices: Vec<DeviceLayoutStatus> =
        inventory.devices.iter().enumerate().map(device).collect();
    NodeLayoutStatus {
        layout: Some("serving".to_owned()),
        is_manual: true,
        plan: Some("20261121T193044Z-3".to_owned()),
        state: Some(Reported::parse(if others.is_empty() { "applying" } else { others[0].0 })),
        notice: None,
        drain: None,
        devices,
        ..NodeLayoutStatus::default()
    }
}

pub(super) const BLOCKERS: [(&str, &str); 2] = [
    (
        "blocked",
        "gi 2 (3g.40gb in slices 4-7) must be removed but is in use: pid 4711, python train.py",
    ),
    ("failed", "nvmlDeviceCreateGpuInstance: Unknown Error"),
];

/// The machine of these states: a partition that must be removed is in use.
pub(super) async fn blocked_machine() -> Inventory {
    let scenario = std::fs::read_to_string("demo/machines/hgx-a100.yaml").unwrap();
    let process = "{pid: 4711, gpu: 0, gi: 2, name: vllm";
    assert!(scenario.contains(process));
    let scenario = scenario.replace(process, "{pid: 4711, gpu: 1, gi: 2, name: python");
    Machine::new(&scenario).observe().await
}

#[tokio::test]
async fn layout_is_shown_per_device_with_live_progress() {
    let site = Site::of_the_demo().await;
    let machine = blocked_machine().await;
    site.set_layout_state("hgx-a100", &machine, &layout_status(&machine, 2, &BLOCKERS));
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes/mixed-l40s-a100").await;
        assert_eq!(page.count("#layout-now").await, 0, "a node without a layout shows its state");

        page.open("/nodes/hgx-a100").await;
        page.until("#layout-now h2", &["Layout serving blocked"]).await;
        let verdict = page.text("#layout-now p").await;
        assert!(
            verdict.starts_with("Applied to 5 of 8 matching devices. Set manually"),
            "{verdict}"
        );
        let stands = page.texts(".stands li").await;
        assert_eq!(stands.len(), 8);
        assert_eq!(
            stands[0],
            "GPU 0 applying 2 of 8 steps create 3g.40gb in slices 4-7"
        );
        assert!(stands[1].starts_with("GPU 1 blocked"), "{stands:?}");
        assert!(stands[1].contains("pid 4711, python train.py"), "{stands:?}");
        assert_eq!(stands[7], "GPU 7 applied");
        // The blocker is also in use in the diagram below.
        let used = page.texts(".devices .device:nth-child(2) .region.is-used").await;
        assert!(used.len() == 1 && used[0].contains("3g.40gb"), "{used:?}");
        page.until(".live", &["Live"]).await;
        page.ask("window.marker = 7", json!([])).await;
        assert_eq!(page.violations().await, Vec::<String>::new());

        // The page updates.
        site.set_layout_state("hgx-a100", &machine, &layout_status(&machine, 7, &[]));
        page.until_true("return document.querySelector('.stands progress').value === 7")
            .await;
        page.until("#layout-now h2", &["Layout serving applying"]).await;
        assert_eq!(page.ask("return window.marker", json!([])).await, 7);

        page.open("/nodes").await;
        page.until("#node-hgx-a100 .by-layout", &["layout serving applying 7 of 8"])
            .await;
        site.set_layout_state("hgx-a100", &machine, &layout_status(&machine, 7, &BLOCKERS));
        page.until("#node-hgx-a100 .at-state .why", &[
            "GPU 1: blocked: gi 2 (3g.40gb in slices 4-7) must be removed but is in use: pid 4711, python train.py",
        ])
        .await;
        page.until("#node-hgx-a100 .at-state .badge", &["attention"]).await;
        page.open("/nodes?layoutState=applied").await;
        page.until("#main .empty p", &["No node matches the filter. The fleet has 7 nodes."])
            .await;
        page.open("/nodes?layoutState=blocked").await;
        page.until("#main tbody th", &["hgx-a100"]).await;
        let same = page.text(".same code").await;
        assert!(same.ends_with("--layout-state=blocked"), "{same}");
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}
