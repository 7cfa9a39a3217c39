//! Exact instances of an annotation of the Node, applied by the shipped agent.

use octavo_node::node_object::demand_layout;
use serde_json::{Value, json};

use super::Rig;
use crate::cluster::Api;
use crate::pod_resources::Kubelet;
use crate::process::Program;
use crate::time_limits::until;

const GPUS: &str = "\
- board: A100_40GB
  mig: enabled
  instances: [{profile: 3g.20gb, start: 0}, {profile: 1g.5gb, start: 4}, {profile: 1g.5gb, start: 6}]
- {board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, start: 0}]}
";

/// Profile, first slice and UUID of every MIG device of both GPUs.
type Instances = Vec<(usize, u32, u32, String)>;

/// NVML's number of the GPU instance profile, which is the number of the compute instance profile as well, and placement.
/// Source: `nvml.h`, `NVML_GPU_INSTANCE_PROFILE_*`.
const SMALL: (u32, u32) = (0, 1);
const HALF: (u32, u32) = (2, 4);
const LARGE: (u32, u32) = (3, 4);

/// A node on which a pod holds the instance 3g.20gb of GPU 0.
struct Site {
    rig: Rig<'static>,
    kubelet: Kubelet,
}

impl Site {
    fn new() -> Self {
        let rig = Rig::new(Api::shared(), GPUS);
        let kubelet = Kubelet::start(&rig.machine);
        let site = Self { rig, kubelet };
        let instances = site.instances();
        let in_use = instances.iter().find(|(gpu, _, start, _)| (*gpu, *start) == (0, 0));
        site.kubelet.give("team", "train", &in_use.unwrap().3);
        site
    }

    fn start(&self) -> Program {
        let agent = self.rig.start(&["--log-level=debug"]);
        self.rig.await_label("octavo.dev/type", "nvidia-a100-40gb");
        agent
    }

    fn instances(&self) -> Instances {
        let world = self.rig.machine.machine.world();
        let mut all = Instances::new();
        for (index, gpu) in world.gpus.iter().enumerate() {
            for instance in gpu.mig.iter().flat_map(|mig| &mig.instances) {
                let uuid = instance.compute[0].uuid.clone();
                all.push((index, instance.profile_id, instance.placement.start, uuid));
            }
        }
        all.sort();
        all
    }

    /// A checkpoint with these instances of GPU 0, which does not list GPU 1.
    fn text(&self, instances: &[((u32, u32), u32)]) -> String {
        let uuid = self.rig.machine.machine.world().gpus[0].uuid.clone();
        let instances = instances.iter().map(|((profile, size), start)| {
            json!({
                "ProfileID": profile, "Placement": {"Start": start, "Size": size},
                "ComputeInstances": [{"ProfileID": profile, "EngProfileID": 0}],
            })
        });
        let instances: Vec<Value> = instances.collect();
        let device = json!({"UUID": uuid, "MigMode": 1, "GpuInstances": instances});
        json!({"Version": "v1", "MigState": {"Devices": [device]}}).to_string()
    }

    /// Writes the label and the annotation in one patch, and returns the layout.
    fn choose(&self, text: &str) -> String {
        let layout = demand_layout(text);
        self.patch(&json!({
            "labels": {"octavo.dev/layout": layout}, "annotations": {"octavo.dev/instances": text},
        }));
        layout
    }

    fn annotate(&self, text: Option<&str>) {
        self.patch(&json!({"annotations": {"octavo.dev/instances": text}}));
    }

    fn patch(&self, metadata: &Value) {
        let patch = json!({"metadata": metadata}).to_string();
        let name = self.rig.name();
        self.rig.api.kubectl(&["patch", "node", name, "--type=merge", "-p", &patch]);
    }

    /// Waits until the agent reports this state of the layout, with a message or device message that contains `message`.
    #[track_caller]
    fn await_status(&self, layout: &str, state: &str, message: &str) -> Value {
        let what = format!("{layout} {state} {message}");
        until(
            &what,
            || self.rig.status(),
            |status| {
                let is_state = status["layout"] == layout && status["state"] == state;
                is_state && status.to_string().contains(message)
            },
        )
    }
}

/// Without UUIDs: GPU, profile and first slice.
fn places(instances: &Instances) -> Vec<(usize, u32, u32)> {
    instances.iter().map(|(gpu, profile, start, _)| (*gpu, *profile, *start)).collect()
}

#[test]
fn i1_exact_instances_of_the_node_annotation_are_applied_beside_an_instance_in_use() {
    let site = Site::new();
    let _agent = site.start();
    let before = site.instances();
    // Profiles 9, 14 and 19 are 3g.20gb, 2g.10gb and 1g.5gb.
    assert_eq!(places(&before), [(0, 9, 0), (0, 19, 4), (0, 19, 6), (1, 14, 0)]);
    let layout = site.choose(&site.text(&[(HALF, 0), (SMALL, 5), (SMALL, 6)]));
    let status = site.await_status(&layout, "applied", "");
    assert_eq!(status["chosenBy"], "octavo.dev/layout");
    site.rig.await_label("octavo.dev/layout-state", "applied");
    let after = site.instances();
    assert_eq!(places(&after), [(0, 9, 0), (0, 19, 5), (0, 19, 6), (1, 14, 0)]);
    let created = after.iter().filter(|one| !before.contains(one)).count();
    assert_eq!(created, 1, "{before:?} {after:?}");

    // An instance 4g.20gb has the slices of the instance in use.
    let layout = site.choose(&site.text(&[(LARGE, 0), (SMALL, 4)]));
    site.await_status(&layout, "blocked", "team/train");
    assert_eq!(site.instances(), after);
}

#[test]
fn i12_changed_annotation_of_exact_instances_changes_nothing() {
    let site = Site::new();
    let _agent = site.start();
    let text = site.text(&[(HALF, 0), (SMALL, 5), (SMALL, 6)]);
    let layout = site.choose(&text);
    site.await_status(&layout, "applied", "");
    let before = site.instances();
    let changed = site.text(&[(HALF, 0)]);
    site.annotate(Some(&changed));
    let status = site.await_status(&layout, "failed", "does not belong to layout");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("restore the annotation"), "{message}");
    assert!(message.ends_with("; the previous layout stays in effect"), "{message}");
    site.rig.await_label("octavo.dev/layout-state", "failed");
    assert!(site.rig.await_event("LayoutFailed").contains("octavo.dev/instances"));
    site.annotate(None);
    site.await_status(&layout, "failed", "needs the annotation octavo.dev/instances");
    let other = text.replace("GPU-", "GPU-0");
    let unknown = site.choose(&other);
    site.await_status(&unknown, "failed", "this node has no GPU GPU-0");
    assert_eq!(site.instances(), before);
    site.choose(&text);
    site.await_status(&layout, "applied", "");
    assert_eq!(site.instances(), before);
}

#[test]
fn i3_exact_instances_remain_after_the_agent_is_killed() {
    let site = Site::new();
    let mut agent = site.start();
    let text = site.text(&[(HALF, 0), (SMALL, 5), (SMALL, 6)]);
    let layout = site.choose(&text);
    site.await_status(&layout, "applied", "");
    site.rig.await_label("octavo.dev/layout-state", "applied");
    agent.kill();
    let (before, status) = (site.instances(), site.rig.status());
    let mut agent = site.start();
    agent.expect_log("layout resolved");
    // Two further states show that the rounds of this agent ended.
    let changed = site.text(&[(HALF, 0)]);
    site.annotate(Some(&changed));
    site.await_status(&layout, "failed", "does not belong to layout");
    site.annotate(Some(&text));
    site.await_status(&layout, "applied", "");
    let log = agent.kill().join("\n");
    assert!(!log.contains("applying the layout"), "{log}");
    assert_eq!((site.instances(), site.rig.status()), (before.clone(), status));

    // The annotation changes while no agent runs, so that the next one knows no previous layout.
    site.annotate(Some(&changed));
    let _agent = site.start();
    site.await_status(&layout, "failed", "does not belong to layout");
    assert_eq!(site.instances(), before);
    site.annotate(Some(&text));
    site.await_status(&layout, "applied", "");
    assert_eq!(site.instances(), before);
}
