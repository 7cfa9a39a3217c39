//! Plan documents for a recorded machine and manually written plans.

use octavo_model::catalog::Placement;
use octavo_model::holder::{Holder, HolderDetails, Pod};
use octavo_model::inventory::{Inventory, MigMode};
use serde_json::{Value, json};

use super::*;
use crate::layout::tests_support::{A100_80, node};
use crate::layout::{InstanceTarget, Targets};
use crate::plan::{
    Blocked, Cause, DeviceChange, DevicePlan, DevicePlanResult, HardwareRule, Infeasible,
    InstanceRef, NodePlan, PlannedCompute, PlannedInstance, Step,
};

fn a100() -> Inventory {
    node([A100_80.with(0, &[(9, 0, &[3]), (9, 4, &[3])])])
}

/// Returns the document of a plan in which the machine's first device has `verdict`.
fn document_with(verdict: DevicePlanResult) -> Value {
    let inventory = a100();
    let targets = Targets::default();
    let subject = PlanInputs {
        inventory: &inventory,
        node: Some("node-7"),
        layout: "serving",
        targets: &targets,
        holders: &[],
        warnings: &["odd".to_owned()],
        interrupted: &BTreeMap::new(),
    };
    let plan = NodePlan {
        devices: vec![DevicePlan { pci: inventory.devices.first().unwrap().pci, verdict }],
    };
    serde_json::to_value(PlanDocument::new(&subject, &plan)).unwrap()
}

fn placement(start: u32, size: u32) -> Placement {
    Placement { start, size }
}

#[test]
fn unchanged_instances_are_listed_before_and_after() {
    let json = document_with(DevicePlanResult::Unchanged);
    assert_eq!(
        (&json["kind"], &json["outcome"], &json["disruption"]),
        (&json!("Plan"), &json!("nothing"), &json!("none"))
    );
    let device = &json["devices"][0];
    assert_eq!(device["verdict"], "unchanged");
    assert_eq!(device["slices"], 8);
    let before = device["before"].as_array().unwrap();
    assert!(!before.is_empty());
    assert!(before.iter().all(|one| one["kept"] == true));
    let places = |list: &Value| -> Vec<Value> {
        let each = list.as_array().unwrap().iter();
        each.map(|one| one["placement"].clone()).collect()
    };
    assert_eq!(places(&device["before"]), places(&device["after"]));
}

#[test]
fn steps_are_listed_in_execution_order() {
    let pci = a100().devices.first().unwrap().pci;
    let scope = ResetScope { device: pci, coupled: Vec::new(), links: None };
    let json = document_with(DevicePlanResult::Change(DeviceChange {
        steps: vec![
            Step::SetMigMode { to: MigMode::Enabled },
            Step::Reset { scope: scope.clone() },
            Step::CreateGpuInstance { instance: 0, profile_id: 19, placement: placement(0, 1) },
            Step::CreateComputeInstance { gpu_instance: InstanceRef::Planned(0), slices: 1 },
        ],
        after: vec![PlannedInstance {
            placement: placement(0, 1),
            profile_id: 19,
            existing_id: None,
            compute: vec![PlannedCompute { existing_id: None, slices: 1 }],
        }],
        mode: Some(ModeChange {
            to: MigMode::Enabled,
            pending: false,
            disruption: Disruption::GpuReset,
            reset: Some(scope),
        }),
        room: 0,
    }));
    assert_eq!(
        (&json["outcome"], &json["disruption"], &json["created"]),
        (&json!("changes"), &json!("gpu-reset"), &json!(1))
    );
    let device = &json["devices"][0];
    let pci = pci.to_string();
    assert_eq!(
        device["steps"],
        json!([
            {"action": "setMigMode", "mode": "enabled"},
            {"action": "reset", "device": pci},
            {"action": "createGpuInstance", "instance": 0, "profile": "1g.10gb", "profileId": 19,
             "placement": {"start": 0, "size": 1}},
            {"action": "createComputeInstance", "instance": 0, "slices": 1},
        ])
    );
    assert_eq!(
        device["after"],
        json!([{"profile": "1g.10gb", "profileId": 19, "placement": {"start": 0, "size": 1},
                "computeInstances": [{"slices": 1}]}])
    );
    assert!(device.get("blockedBy").is_none() && device.get("infeasible").is_none());
}

#[test]
fn blockers_are_listed_with_holder_details() {
    let pci = a100().devices.first().unwrap().pci;
    let holder = Holder {
        device: pci,
        gpu_instance: Some(2),
        compute_instance: Some(0),
        details: HolderDetails {
            pid: Some(4711),
            command: Some("vllm serve".to_owned()),
            since: Some("2026-11-21T08:33:20Z".to_owned()),
            pod: Some(Pod {
                namespace: Some("a".to_owned()),
                name: Some("b".to_owned()),
                ..Pod::default()
            }),
            ..HolderDetails::default()
        },
    };
    let json = document_with(DevicePlanResult::Blocked(Blocked {
        causes: vec![Cause::InstanceInUse {
            gpu_instance: 2,
            profile_id: 9,
            placement: placement(4, 4),
            compute_instances: Vec::new(),
            holders: vec![holder],
        }],
    }));
    assert_eq!(json["outcome"], "blocked");
    let device = &json["devices"][0];
    assert!(device.get("after").is_none() && device["before"][0].get("kept").is_none());
    assert_eq!(
        device["blockedBy"],
        json!([{
            "cause": "instanceInUse",
            "message": "gi 2 (3g.40gb in slices 4-7) must be removed but is in use",
            "remedy": "wait for the pod to finish, or delete it",
            "gpuInstance": 2, "profile": "3g.40gb", "profileId": 9,
            "placement": {"start": 4, "size": 4},
            "holders": [{"gpuInstance": 2, "computeInstance": 0, "pid": 4711, "command": "vllm serve",
                         "since": "2026-11-21T08:33:20Z", "pod": {"namespace": "a", "name": "b"}}],
        }])
    );
}

#[test]
fn alternatives_use_layout_notation() {
    let json = document_with(DevicePlanResult::Infeasible(Infeasible {
        rule: HardwareRule::TooMany { profile_id: 9, requested: 3, most: 2 },
        alternatives: vec![vec![
            InstanceTarget { profile_id: 9, compute: vec![3], placement: None },
            InstanceTarget { profile_id: 9, compute: vec![1, 1, 1], placement: None },
        ]],
    }));
    assert_eq!(json["outcome"], "infeasible");
    assert_eq!(
        json["devices"][0]["infeasible"],
        json!({
            "rule": "tooMany",
            "message": "3x 3g.40gb is requested, but at most 2 fit",
            "nearest": [{"3g.40gb": 1, "1c.3g.40gb": 3}],
        })
    );
}
