//! Tests of kernel modules, control groups, layouts, and other software on the node.

use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus};

use super::*;

const HOST: (&str, &str) = ("kubernetes.io/hostname", "n");

#[test]
fn f4_available_module_should_be_loaded_and_missing_one_installed() {
    let mut node = trainium(1, None);
    let remedy = |node: &Node| node.most_severe(Check::NeuronDriver).remedy.unwrap();
    let has = |node: &mut Node, modules: &[&str]| {
        if let Ok(traces) = &mut node.traces {
            traces.installed = Some(AvailableModules {
                place: "/lib/modules/6.1.0/modules.dep".to_owned(),
                modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            });
        }
    };
    has(&mut node, &["amdgpu"]);
    node.expect_finding(
        Check::NeuronDriver,
        CheckResult::Failing,
        "/sys/module/neuron does not exist, and /lib/modules/6.1.0/modules.dep does not contain the module",
    );
    assert!(remedy(&node).starts_with("install the package"));
    has(&mut node, &["neuron"]);
    node.expect_finding(
        Check::NeuronDriver,
        CheckResult::Failing,
        "/sys/module/neuron does not exist, although /lib/modules/6.1.0/modules.dep contains the module",
    );
    assert!(remedy(&node).starts_with("load it: `modprobe neuron`"));
}

#[test]
fn plugin_with_lost_registration_differs_from_absent_plugin() {
    let node = || gpu_node(|_| {}).kubelet(&[]);
    let remedy = |node: &Node| node.most_severe(Check::DevicePlugin).remedy.unwrap();
    let never = node().sockets(&["neuron.sock"]);
    never.expect_finding(Check::DevicePlugin, CheckResult::Failing, "no device plugin");
    assert!(remedy(&never).starts_with("install NVIDIA's device plugin"));
    let lost = node().sockets(&["nvidia-gpu.sock"]);
    lost.expect_finding(
        Check::DevicePlugin,
        CheckResult::Failing,
        "sockets of a plugin exist there: nvidia-gpu.sock",
    );
    assert!(remedy(&lost).contains("delete its pod"));
    // If claims cannot be determined, devices may be allocated through them.
    let mut unreported = node();
    if let Ok(Some(kubelet)) = &mut unreported.kubelet {
        kubelet.claim_drivers = Err("plugins is not mounted".to_owned());
    }
    unreported.expect_finding(
        Check::DevicePlugin,
        CheckResult::Warning,
        "DRA drivers: plugins is not mounted",
    );
}

#[test]
fn missing_dev_char_links_warn_with_systemd_only() {
    let groups = |node: &mut Node, pods, unlinked: Observed<Vec<String>>| {
        node.groups = Ok(ControlGroups { version: CgroupVersion::Two, pods, unlinked });
    };
    let mut node = gpu_node(|_| {});
    node.expect_finding(
        Check::ControlGroups,
        CheckResult::NotApplicable,
        "without a cgroup of a pod",
    );
    let missing = || Ok(vec!["nvidia0".to_owned(), "nvidiactl".to_owned()]);
    groups(&mut node, Some(PodCgroupManager::Runtime), missing());
    node.expect_finding(Check::ControlGroups, CheckResult::Ok, "the container runtime");
    groups(&mut node, Some(PodCgroupManager::Systemd), missing());
    node.expect_finding(
        Check::ControlGroups,
        CheckResult::Warning,
        "systemd manages the cgroups of pods; /dev/char has no link to nvidia0, nvidiactl",
    );
    groups(&mut node, Some(PodCgroupManager::Systemd), Ok(Vec::new()));
    node.expect_finding(Check::ControlGroups, CheckResult::Ok, "has a link to each");
    let own = || Err("/dev is the pod's own".to_owned());
    groups(&mut node, Some(PodCgroupManager::Systemd), own());
    node.expect_finding(Check::ControlGroups, CheckResult::Unknown, "the pod's own");
    // The kernel creates the links for this driver.
    let mut neuron = trainium(1, Some("neuron")).module("neuron", "2.26");
    groups(&mut neuron, Some(PodCgroupManager::Systemd), missing());
    neuron.expect_finding(Check::ControlGroups, CheckResult::Ok, "systemd");
    Node::new(vec![]).expect_finding(
        Check::ControlGroups,
        CheckResult::NotApplicable,
        "no device files",
    );
}

fn laid(state: Option<&str>, notice: Option<&str>, devices: &[(&str, &str)]) -> LayoutProgress {
    let devices = devices.iter().map(|(state, message)| LayoutDevice {
        name: "GPU 0".to_owned(),
        state: Reported::parse(state),
        message: (*message).to_owned(),
    });
    LayoutProgress {
        is_agent: true,
        name: Some("serving".to_owned()),
        state: state.map(Reported::parse),
        notice: notice.map(ToOwned::to_owned),
        devices: devices.collect(),
        journal: Vec::new(),
        claims: None,
    }
}

#[test]
fn resource_claims_are_served_or_the_finding_names_the_cause() {
    let says = |claims: Option<Result<(), String>>, drivers: &[&str], verdict, evidence: &str| {
        let mut node = gpu_node(|_| {});
        node.layout = Ok(Some(LayoutProgress { claims, ..laid(None, None, &[]) }));
        node.kubelet = Ok(Some(Kubelet {
            registered: Ok(BTreeMap::new()),
            allocatable: Ok(None),
            claim_drivers: Ok(drivers.iter().map(ToString::to_string).collect()),
            sockets: Ok(BTreeSet::new()),
        }));
        node.expect_finding(Check::ResourceClaims, verdict, evidence);
    };
    let own = ["gpu.octavo.dev"];
    says(Some(Ok(())), &own, CheckResult::Ok, "the kubelet registered the driver gpu.octavo.dev");
    let error = "resource claim team/train is not prepared: NVML is not ready";
    says(Some(Err(error.to_owned())), &own, CheckResult::Failing, error);
    says(None, &own, CheckResult::Warning, "but no running agent serves resource claims");
    says(None, &["gpu.nvidia.com"], CheckResult::NotApplicable, "no agent serves");
    // The reason is that of the agent's status.
    let status = |state: &str, message: Option<&str>| SharingStatus {
        mode: DeviceProvider::Dra.into(),
        state: Reported::parse(state),
        message: message.map(ToOwned::to_owned),
        ..SharingStatus::default()
    };
    assert_eq!(claim_service(None), None);
    assert_eq!(claim_service(Some(&SharingStatus::default())), None);
    assert_eq!(claim_service(Some(&status("claims-served", None))), Some(Ok(())));
    let failing = status("claims-not-served", Some(error));
    assert_eq!(claim_service(Some(&failing)), Some(Err(error.to_owned())));
}

#[test]
fn layout_verdict_follows_the_agent() {
    let expect = |layout: Option<LayoutProgress>, verdict, evidence: &str| {
        let mut node = gpu_node(|_| {});
        node.layout = Ok(layout);
        node.expect_finding(Check::Layout, verdict, evidence);
    };
    expect(None, CheckResult::NotApplicable, "/var/lib/octavo has no state files");
    let unasked = LayoutProgress { name: None, ..laid(None, None, &[]) };
    expect(Some(unasked), CheckResult::NotApplicable, "no layout is selected");
    expect(
        Some(laid(Some("applied"), None, &[("applied", "")])),
        CheckResult::Ok,
        "layout serving is applied",
    );
    expect(
        Some(laid(Some("applying"), None, &[("applying", "")])),
        CheckResult::Ok,
        "layout serving is applying: GPU 0 applying; no action is needed",
    );
    expect(
        Some(laid(Some("blocked"), None, &[("blocked", "pid 7 has it open")])),
        CheckResult::Warning,
        "layout serving is blocked: GPU 0 blocked: pid 7 has it open",
    );
    expect(
        Some(laid(Some("infeasible"), None, &[("infeasible", "nine slices")])),
        CheckResult::Failing,
        "nine slices",
    );
    expect(
        Some(laid(None, Some("no layout \"servign\""), &[])),
        CheckResult::Failing,
        "layout serving: no layout \"servign\"",
    );
    expect(Some(laid(None, None, &[])), CheckResult::Unknown, "not evaluated it yet");
    let empty = Node::new(vec![]);
    empty.expect_finding(Check::Layout, CheckResult::NotApplicable, "no NVIDIA driver");
    let mut unreported = gpu_node(|_| {});
    unreported.layout = Err("permission denied".to_owned());
    unreported.expect_finding(Check::Layout, CheckResult::Unknown, "permission denied");
}

#[test]
fn layout_leftovers_are_reported_if_no_agent_answers() {
    let expect = |change: &dyn Fn(&mut LayoutProgress), verdict, evidence: &str| {
        let mut layout = LayoutProgress { is_agent: false, ..laid(None, None, &[("applied", "")]) };
        change(&mut layout);
        let mut node = gpu_node(|_| {});
        node.layout = Ok(Some(layout));
        node.expect_finding(Check::Layout, verdict, evidence);
    };
    expect(&|_| {}, CheckResult::Ok, "no agent responds; result of the last change");
    expect(
        &|layout| layout.devices[0].state = Reason::RolledBack.into(),
        CheckResult::Warning,
        "(/var/lib/octavo/history.jsonl): layout serving is not applied: GPU 0 rolled-back",
    );
    expect(
        &|layout| {
            layout.journal.push("plan p has begun and not ended".to_owned());
        },
        CheckResult::Warning,
        "no agent that changes devices responds (/var/lib/octavo); plan p has begun and not ended",
    );
}

#[test]
fn layout_verdict_follows_node_label_without_an_agent() {
    let node = |state| {
        let mut node = gpu_node(|_| {});
        node.layout = Err("not part of a recording".to_owned());
        let state = ("octavo.dev/layout-state", state);
        node.labels(&[HOST, ("octavo.dev/layout", "serving"), state])
    };
    for (state, verdict) in [
        ("applied", CheckResult::Ok),
        ("pending", CheckResult::Ok),
        ("blocked", CheckResult::Warning),
        ("failed", CheckResult::Failing),
    ] {
        let expected = format!("layout serving: node.json has octavo.dev/layout-state={state}");
        node(state).expect_finding(Check::Layout, verdict, &expected);
    }
}

fn running(mut node: Node, program: &str) -> Node {
    node.processes = Ok(Processes { hidden: None, programs: [program.to_owned()].into() });
    node
}

#[test]
fn two_partitioning_managers_are_reported() {
    let check = Check::OtherManagers;
    let node = || gpu_node(|_| {});
    node().expect_finding(check, CheckResult::Ok, "neither nvidia-mig-manager nor");
    let alone = running(node(), MIG_MANAGER);
    alone.expect_finding(
        check,
        CheckResult::Ok,
        "nvidia-mig-manager is running here, and no Octavo layout",
    );
    let both = alone.labels(&[HOST, ("octavo.dev/layout", "serving")]);
    both.expect_finding(check, CheckResult::Warning, "the Octavo layout serving is selected");
    let mut expected = running(node(), MIG_MANAGER);
    expected.layout = Ok(Some(laid(Some("applied"), None, &[])));
    expected.expect_finding(check, CheckResult::Warning, "layout serving");
    node()
        .labels(&[
            HOST,
            ("nvidia.com/gpu.deploy.mig-manager", "true"),
            ("nvidia.com/mig.config.state", "pending"),
            ("octavo.dev/layout", "serving"),
        ])
        .expect_finding(check, CheckResult::Warning, "(nvidia.com/mig.config.state=pending)");
    let mut hidden = node();
    hidden.processes = Err("not part of a recording".to_owned());
    hidden.expect_finding(check, CheckResult::Unknown, "not part of a recording");
    hidden.labels(&[HOST]).expect_finding(check, CheckResult::Ok, "shows no other program");
    Node::new(vec![]).expect_finding(check, CheckResult::NotApplicable, "no NVIDIA driver");
}

#[test]
fn duplicate_label_writers_are_reported() {
    let check = Check::OtherManagers;
    let node = || gpu_node(|_| {}).labels(&[("nvidia.com/gpu.count", "1")]);
    node().expect_finding(check, CheckResult::Ok, "neither");
    running(node(), GFD).expect_finding(
        check,
        CheckResult::Warning,
        "node.json has nvidia.com/gpu.count and similar labels, and gpu-feature-discovery is running here",
    );
    let mut beside = node();
    if let Ok(Some(labels)) = &mut beside.labels {
        labels.gfd = Some("features.d/gfd".to_owned());
    }
    beside.expect_finding(check, CheckResult::Warning, "features.d/gfd exists");
    // For a Node the author of a label is unknown, and the agent leaves keys of other writers alone.
    let whole = gpu_node(|_| {}).labels(&[HOST, ("nvidia.com/gpu.count", "1")]);
    running(whole, GFD).expect_finding(check, CheckResult::Ok, "neither");
}

#[test]
fn operands_that_are_still_paused_are_reported() {
    let paused = ("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change");
    let running = ("nvidia.com/gpu.deploy.device-plugin", "true");
    let node = gpu_node(|_| {}).labels(&[HOST, paused, running]);
    node.expect_finding(
        Check::OtherManagers,
        CheckResult::Warning,
        "node.json has nvidia.com/gpu.deploy.dcgm=paused-for-mig-change: these operands",
    );
}

#[test]
fn double_allocation_is_reported_for_sockets_and_claims() {
    let check = Check::ResourceOwners;
    let node = || gpu_node(|_| {}).kubelet(&[("nvidia.com/gpu", &[GPU])]);
    node().expect_finding(check, CheckResult::Ok, "allocated by two");
    node().sockets(&["nvidia-gpu.sock", "octavo-mig-1g.5gb.sock"]).expect_finding(
        check,
        CheckResult::Ok,
        "allocated by two",
    );
    node().sockets(&["nvidia-gpu.sock", "octavo-gpu.sock"]).expect_finding(
        check,
        CheckResult::Warning,
        "Octavo's agent for nvidia.com/gpu",
    );
    let mut claims = trainium(1, Some("neuron"))
        .module("neuron", "2.26")
        .neuron([0])
        .kubelet(&[("aws.amazon.com/neuron", &["0"])]);
    claims.expect_finding(check, CheckResult::Ok, "allocated by two");
    if let Ok(Some(kubelet)) = &mut claims.kubelet {
        kubelet.claim_drivers = Ok(["neuron.aws.com".to_owned()].into());
    }
    claims.expect_finding(
        check,
        CheckResult::Warning,
        "it has a directory in /var/lib/kubelet/plugins, and a device plugin allocates aws.amazon.com/neuron",
    );
}

#[test]
fn time_slicing_is_reported_with_its_configuration() {
    let check = Check::TimeSlicing;
    let replica = format!("{GPU}::0");
    let node = || gpu_node(|_| {}).kubelet(&[("nvidia.com/gpu", &[&replica])]);
    node().expect_finding(check, CheckResult::Ok, "a Node label contains its configuration");
    let ours = node().sockets(&["octavo-gpu.sock"]);
    ours.expect_finding(
        check,
        CheckResult::Ok,
        "1 replica of 1 device, through Octavo's device plugin",
    );
    let config = "nvidia.com/device-plugin.config";
    let layout = ("octavo.dev/layout", "serving");
    let handed = node().labels(&[HOST, layout, (config, "octavo-serving-1234")]);
    handed.expect_finding(check, CheckResult::Ok, "configured by the layout");
    let other = node().labels(&[HOST, (config, "team")]);
    other.expect_finding(
        check,
        CheckResult::Ok,
        "a configuration not written by Octavo (nvidia.com/device-plugin.config=team)",
    );
    let against = node().labels(&[HOST, layout, (config, "team")]);
    against.expect_finding(check, CheckResult::Warning, "while layout serving is selected");
    let default = node().labels(&[HOST, layout]);
    default.expect_finding(check, CheckResult::Warning, "its own configuration, while");
    let mut unseen = node().labels(&[HOST, layout]);
    if let Ok(Some(kubelet)) = &mut unseen.kubelet {
        kubelet.sockets = Err("device-plugins is not mounted".to_owned());
    }
    unseen.expect_finding(check, CheckResult::Ok, "the device plugin is unknown");
    // Without the kubelet, labels report time-slicing; the agent writes the same labels.
    let labels = [
        HOST,
        layout,
        ("nvidia.com/gpu.sharing-strategy", "mps"),
        ("nvidia.com/gpu.replicas", "4"),
    ];
    let node_with = |more: &[(&str, &str)]| {
        let mut node = gpu_node(|_| {}).labels(&[&labels, more].concat());
        node.kubelet = Err("not part of a recording".to_owned());
        node
    };
    let expected = "node.json shows nvidia.com/gpu: mps, 4 replicas each";
    node_with(&[]).expect_finding(check, CheckResult::Ok, expected);
    node_with(&[(config, "team")]).expect_finding(check, CheckResult::Warning, expected);
}
