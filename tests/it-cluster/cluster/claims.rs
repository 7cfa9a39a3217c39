//! Claims for devices of simulated machines, allocated by the real scheduler from the slices that real agents publish.

mod examples;
mod nvidia;
mod shares;

use std::collections::{BTreeMap, BTreeSet};

use octavo_dra::slices::pool_name;
use octavo_dra::{DraDevice, DraDeviceKind, device, devices};
use octavo_model::id::PciAddress;
use octavo_planner::layout::InstanceTarget;
use octavo_planner::plan::{Feasibility, feasible};
use serde_json::{Value, json};

use super::Api;
use super::agent::Rig;
use crate::manifests::chart::{render, values};
use crate::time_limits::{eventually, until};

/// Objects of the chart with Dynamic Resource Allocation, of these templates.
pub(super) fn chart_objects(templates: &[&str]) -> String {
    let all = render(&values("dra"));
    let wanted = |one: &&str| {
        templates
            .iter()
            .any(|name| one.contains(&format!("# Source: octavo/templates/agent/{name}")))
    };
    all.split("\n---\n").filter(wanted).collect::<Vec<_>>().join("\n---\n")
}

/// The slices of a node, by name.
fn slices(api: &Api, node: &str) -> BTreeMap<String, Value> {
    let of = format!("--field-selector=spec.nodeName={node}");
    let text = api.kubectl(&["get", "resourceslices", &of, "-o", "json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|one| (one["metadata"]["name"].as_str().unwrap().to_owned(), one.clone())).collect()
}

/// Waits until all slices of the node are published.
fn await_slices(api: &Api, node: &str, count: usize) -> BTreeMap<String, Value> {
    let what = format!("{count} slices of {node}");
    until(
        &what,
        || slices(api, node),
        |all| {
            let complete = |one: &Value| one["spec"]["pool"]["resourceSliceCount"] == count;
            all.len() == count && all.values().all(complete)
        },
    )
}

/// Claims and pods in a namespace.
struct Workload<'a> {
    api: &'a Api,
    namespace: String,
}

impl Workload<'_> {
    /// Creates a claim and a pod that uses it on this node.
    fn create(&self, name: &str, node: &str, class: &str, selector: Option<&str>) {
        let selectors: Vec<Value> =
            selector.iter().map(|cel| json!({"cel": {"expression": cel}})).collect();
        let exactly = json!({"deviceClassName": class, "selectors": selectors});
        self.claim(name, &json!({"requests": [{"name": "device", "exactly": exactly}]}));
        self.pod(name, node, name, &[json!({"claims": [{"name": "device"}]})]);
    }

    /// Creates a claim with these `spec.devices`.
    fn claim(&self, name: &str, devices: &Value) {
        self.api.create(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"devices": devices},
        }));
    }

    /// Creates a pod on this node that has the claim as `device`, with a container for each of these resources.
    fn pod(&self, name: &str, node: &str, claim: &str, resources: &[Value]) {
        let containers = resources.iter().enumerate().map(|(number, resources)| {
            let name = format!("main-{number}");
            json!({"name": name, "image": "registry.invalid/none", "resources": resources})
        });
        let claims = json!([{"name": "device", "resourceClaimName": claim}]);
        self.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "resourceClaims": if claim.is_empty() { json!([]) } else { claims },
                "containers": containers.collect::<Vec<_>>(),
            },
        }));
    }

    /// Creates a claim, and returns the name of the device that the scheduler allocates to it.
    fn allocate(&self, name: &str, node: &str, class: &str, selector: Option<&str>) -> String {
        self.create(name, node, class, selector);
        self.await_scheduled(name, "True");
        let results = self.results(name);
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!(results[0]["driver"], "gpu.octavo.dev");
        assert_eq!(results[0]["pool"], pool_name(&node.parse().unwrap()));
        device_of(&results[0])
    }

    /// The devices that the scheduler allocated to a claim.
    fn results(&self, claim: &str) -> Vec<Value> {
        let get = ["get", "resourceclaim", claim, "-n", &self.namespace, "-o", "json"];
        let claim: Value = serde_json::from_str(&self.api.kubectl(&get)).unwrap();
        claim["status"]["allocation"]["devices"]["results"].as_array().unwrap().clone()
    }

    /// Creates a claim that no device satisfies.
    fn refuse(&self, name: &str, node: &str, class: &str, selector: Option<&str>) {
        self.create(name, node, class, selector);
        self.await_scheduled(name, "False");
    }

    fn await_scheduled(&self, name: &str, status: &str) {
        let wanted = format!("--for=condition=PodScheduled={status}");
        let pod = format!("pod/{name}");
        self.api.kubectl(&["wait", "-n", &self.namespace, &pod, &wanted, "--timeout=300s"]);
    }
}

fn device_of(result: &Value) -> String {
    result["device"].as_str().unwrap().to_owned()
}

/// Returns a selector of MIG devices with this profile.
fn profile(name: &str) -> String {
    format!("device.attributes['gpu.nvidia.com'].profile == '{name}'")
}

const MIG: &str = "mig.octavo.dev";
const GPU: &str = "gpu.octavo.dev";

/// The instance of a device; `None` for a whole GPU.
pub(super) fn instance_target(device: &DraDevice) -> Option<InstanceTarget> {
    match &device.what {
        DraDeviceKind::Gpu => None,
        DraDeviceKind::Partition { profile_id, profile, placement } => Some(InstanceTarget {
            profile_id: *profile_id,
            compute: vec![profile.gpu_slices().into()],
            placement: Some(*placement),
        }),
    }
}

/// Compares every GPU's allocated devices with the planner.
async fn check_possible(rig: &Rig<'_>, allocated: &BTreeSet<String>) {
    let inventory = rig.machine.machine.observe().await;
    let known = device::by_name(devices(&inventory, &BTreeSet::new()));
    let mut by_gpu: BTreeMap<PciAddress, Vec<InstanceTarget>> = BTreeMap::new();
    for name in allocated {
        let device = &known[&name.parse().unwrap()];
        by_gpu.entry(device.pci).or_default().extend(instance_target(device));
    }
    for (pci, mut targets) in by_gpu {
        targets.sort();
        let device = inventory.device(pci).unwrap();
        assert_eq!(feasible(device, &targets), Ok(Feasibility::Feasible), "{pci}: {targets:?}");
    }
}

#[tokio::test]
async fn scheduler_allocates_only_what_the_hardware_can_combine() {
    let api = Api::shared();
    api.apply(&chart_objects(&["dra.yaml"]));
    let one = Rig::new(api, "- {board: A100_80GB, count: 2, mig: enabled}\n");
    let other = Rig::new(
        api,
        "- {board: A100_80GB, count: 1}\n- {board: RTX_PRO_6000_BLACKWELL_96GB, count: 1, mig: enabled}\n",
    );
    let _agents = [one.start(&["--dra"]), other.start(&["--dra"])];
    let published = await_slices(api, one.name(), 3);
    await_slices(api, other.name(), 3);
    let owner = &published.values().next().unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!(one.name())));

    let workload = Workload { api, namespace: api.namespace() };
    api.await_account(&workload.namespace);
    let mut allocated: [BTreeSet<String>; 2] = [BTreeSet::new(), BTreeSet::new()];
    // Small partitions leave room for the largest one on the same GPU.
    let small: Vec<String> = (0..3)
        .map(|number| {
            let name = format!("small-{number}");
            workload.allocate(&name, one.name(), MIG, Some(&profile("1g.10gb")))
        })
        .collect();
    let starts: Vec<&str> = small.iter().map(|name| name.rsplit_once('-').unwrap().1).collect();
    assert_eq!(starts, ["6", "5", "4"], "{small:?}");
    let large = workload.allocate("large", one.name(), MIG, Some(&profile("4g.40gb")));
    let gpu = small[0].split("-mig-").next().unwrap();
    assert_eq!(large, format!("{gpu}-mig-4g40gb-5-0"));
    // The smallest profile that has enough memory.
    let memory = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('39Gi')) >= 0";
    let halves =
        ["half-1", "half-2"].map(|name| workload.allocate(name, one.name(), MIG, Some(memory)));
    assert!(
        halves[0].ends_with("-mig-3g40gb-9-4") && halves[1].ends_with("-mig-3g40gb-9-0"),
        "{halves:?}"
    );
    workload.refuse("seven", one.name(), MIG, Some(&profile("7g.80gb")));
    workload.refuse("whole-here", one.name(), GPU, None);
    allocated[0].extend(small.into_iter().chain([large]).chain(halves));

    let whole = workload.allocate("whole", other.name(), GPU, None);
    workload.refuse("second-whole", other.name(), GPU, None);
    // All media engines exclude every partition that has some.
    let all = workload.allocate("media", other.name(), MIG, Some(&profile("1g.24gb+me.all")));
    workload.refuse("plain", other.name(), MIG, Some(&profile("1g.24gb")));
    let none = workload.allocate("no-media", other.name(), MIG, Some(&profile("2g.48gb-me")));
    allocated[1].extend([whole, all, none]);
    assert_eq!((allocated[0].len(), allocated[1].len()), (6, 3));
    check_possible(&one, &allocated[0]).await;
    check_possible(&other, &allocated[1]).await;
    api.kubectl(&["delete", "namespace", &workload.namespace, "--wait=false"]);
}

/// Names of the slices that agents wrote, oldest first.
fn writes(api: &Api) -> Vec<String> {
    let events = api.audit();
    let ours = events.iter().filter(|event| {
        let is_write =
            ["create", "update", "patch", "delete"].contains(&event["verb"].as_str().unwrap());
        let is_agent =
            event["userAgent"].as_str().is_some_and(|of| of.starts_with("octavo-agent/"));
        is_write && is_agent && event["objectRef"]["resource"] == "resourceslices"
    });
    ours.map(|event| event["objectRef"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Number of tainted devices of each slice.
fn tainted(api: &Api, node: &str) -> Vec<usize> {
    let of = |slice: &Value| {
        let devices = slice["spec"]["devices"].as_array().cloned().unwrap_or_default();
        devices.iter().filter(|device| device["taints"].is_array()).count()
    };
    slices(api, node).values().map(of).collect()
}

#[test]
fn slices_are_written_only_when_they_differ_and_come_back_when_removed() {
    let api = Api::fresh();
    let rig = Rig::new(&api, "- {board: A100_80GB, count: 2, mig: enabled}\n");
    let mut agent = rig.start(&["--dra"]);
    await_slices(&api, rig.name(), 3);
    let slice = |number: u32| format!("{}-gpu.octavo.dev-00{number}", rig.name());
    let mut expected: Vec<String> = [0, 1, 2].map(slice).to_vec();

    let machine = &rig.machine.machine;
    let slot = machine.world().slot_of_index(1).unwrap();
    machine.change(|world| world.lose_gpu(slot));
    eventually("the lost GPU is tainted", || tainted(&api, rig.name()) == [0, 0, 25]);
    machine.change(|world| world.return_gpu(slot));
    eventually("the taint is gone", || tainted(&api, rig.name()) == [0, 0, 0]);
    // The Xid of the loss counts for a while after the return, with another taint.
    expected.extend([slice(2), slice(2), slice(2)]);

    let before = slices(&api, rig.name());
    api.kubectl(&["delete", "resourceslice", &slice(1)]);
    let back = await_slices(&api, rig.name(), 3);
    assert_eq!(back[&slice(1)]["spec"], before[&slice(1)]["spec"]);
    expected.push(slice(1));
    assert_eq!(writes(&api), expected);

    // The kubelet deletes all slices of its node when it starts.
    api.kubectl(&["delete", "resourceslices", "--all"]);
    eventually("all slices of one generation", || {
        let all = slices(&api, rig.name());
        let pools: BTreeSet<String> =
            all.values().map(|slice| slice["spec"]["pool"].to_string()).collect();
        all.len() == 3 && pools.len() == 1
    });

    // Slices remain when the agent ends, and the next agent changes nothing.
    agent.kill();
    let before = writes(&api);
    let mut next = rig.start(&["--dra", "--log-filter=octavo_kube=debug"]);
    next.expect_log("the ResourceSlices are up to date");
    assert_eq!(writes(&api), before);
    drop(next);

    // A layout that covers all GPUs withdraws them.
    let file = rig.machine.layouts("[{devices: all, mig: {7g.80gb: 1}}]");
    let _covering = rig.start(&["--dra", "--layouts", &file, "--layout=wanted"]);
    eventually("no slices", || slices(&api, rig.name()).is_empty());
}
