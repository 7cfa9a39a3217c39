//! Tests of kernel modules, control groups, layouts, and other software on the node.

use super::*;

const HOST: (&str, &str) = ("kubernetes.io/hostname", "n");

#[test]
fn f4_a_module_that_is_there_is_to_be_loaded_and_one_that_is_not_to_be_installed() {
    let mut node = trainium(1, None);
    let remedy = |node: &Node| node.gravest(Check::NeuronDriver).remedy.unwrap();
    let has = |node: &mut Node, modules: &[&str]| {
        if let Ok(traces) = &mut node.traces {
            traces.installed = Some(AvailableModules {
                place: "/lib/modules/6.1.0/modules.dep".to_owned(),
                modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            });
        }
    };
    has(&mut node, &["amdgpu"]);
    node.says(
        Check::NeuronDriver,
        Verdict::Failing,
        "there is no /sys/module/neuron, and /lib/modules/6.1.0/modules.dep has none",
    );
    assert!(remedy(&node).starts_with("install the package"));
    has(&mut node, &["neuron"]);
    node.says(
        Check::NeuronDriver,
        Verdict::Failing,
        "there is no /sys/module/neuron, though /lib/modules/6.1.0/modules.dep has it",
    );
    assert!(remedy(&node).starts_with("load it: `modprobe neuron`"));
}

#[test]
fn a_plugin_that_lost_its_registration_is_told_from_one_that_was_never_there() {
    let node = || gpu_node(|_| {}).kubelet(&[]);
    let remedy = |node: &Node| node.gravest(Check::DevicePlugin).remedy.unwrap();
    let never = node().sockets(&["neuron.sock"]);
    never.says(Check::DevicePlugin, Verdict::Failing, "no device plugin");
    assert!(remedy(&never).starts_with("install NVIDIA's device plugin"));
    let lost = node().sockets(&["nvidia-gpu.sock"]);
    lost.says(
        Check::DevicePlugin,
        Verdict::Failing,
        "has or had a socket there: nvidia-gpu.sock",
    );
    assert!(remedy(&lost).contains("delete its pod"));
    // If claims cannot be determined, devices may be allocated through them.
    let mut untold = node();
    if let Ok(Some(kubelet)) = &mut untold.kubelet {
        kubelet.claim_drivers = Err("plugins is not mounted".to_owned());
    }
    untold.says(
        Check::DevicePlugin,
        Verdict::Warning,
        "drivers for claims: plugins is not mounted",
    );
}

#[test]
fn missing_dev_char_links_warn_with_systemd_only() {
    let groups = |node: &mut Node, pods, unlinked: Observed<Vec<String>>| {
        node.groups = Ok(ControlGroups {
            version: CgroupVersion::Two,
            pods,
            unlinked,
        });
    };
    let mut node = gpu_node(|_| {});
    node.says(
        Check::ControlGroups,
        Verdict::NotApplicable,
        "there is none of a pod",
    );
    let missing = || Ok(vec!["nvidia0".to_owned(), "nvidiactl".to_owned()]);
    groups(&mut node, Some(PodCgroupManager::Runtime), missing());
    node.says(Check::ControlGroups, Verdict::Ok, "the container runtime");
    groups(&mut node, Some(PodCgroupManager::Systemd), missing());
    node.says(
        Check::ControlGroups,
        Verdict::Warning,
        "systemd makes those of pods; /dev/char has no link to nvidia0, nvidiactl",
    );
    groups(&mut node, Some(PodCgroupManager::Systemd), Ok(Vec::new()));
    node.says(Check::ControlGroups, Verdict::Ok, "has a link to each");
    let own = || Err("/dev is this pod's own here".to_owned());
    groups(&mut node, Some(PodCgroupManager::Systemd), own());
    node.says(Check::ControlGroups, Verdict::Unknown, "this pod's own");
    // The kernel creates the links for this driver.
    let mut neuron = trainium(1, Some("neuron")).module("neuron", "2.26");
    groups(&mut neuron, Some(PodCgroupManager::Systemd), missing());
    neuron.says(Check::ControlGroups, Verdict::Ok, "systemd");
    Node::new(vec![]).says(
        Check::ControlGroups,
        Verdict::NotApplicable,
        "no device file",
    );
}

fn laid(state: Option<&str>, notice: Option<&str>, devices: &[(&str, &str)]) -> LayoutProgress {
    let devices = devices.iter().map(|(state, message)| LayoutDevice {
        name: "GPU 0".to_owned(),
        state: (*state).to_owned(),
        message: (*message).to_owned(),
    });
    LayoutProgress {
        is_agent: true,
        name: Some("serving".to_owned()),
        state: state.map(ToOwned::to_owned),
        notice: notice.map(ToOwned::to_owned),
        devices: devices.collect(),
        journal: Vec::new(),
    }
}

#[test]
fn the_layout_stands_as_the_agent_says() {
    let says = |layout: Option<LayoutProgress>, verdict, evidence: &str| {
        let mut node = gpu_node(|_| {});
        node.layout = Ok(layout);
        node.says(Check::Layout, verdict, evidence);
    };
    says(
        None,
        Verdict::NotApplicable,
        "nothing of theirs in /var/lib/octavo",
    );
    let unasked = LayoutProgress {
        name: None,
        ..laid(None, None, &[])
    };
    says(Some(unasked), Verdict::NotApplicable, "no layout is chosen");
    says(
        Some(laid(Some("applied"), None, &[("applied", "")])),
        Verdict::Ok,
        "layout serving is applied",
    );
    says(
        Some(laid(Some("applying"), None, &[("applying", "")])),
        Verdict::Ok,
        "layout serving is applying: GPU 0 applying; it will be so by itself",
    );
    says(
        Some(laid(
            Some("blocked"),
            None,
            &[("blocked", "pid 7 has it open")],
        )),
        Verdict::Warning,
        "layout serving is blocked: GPU 0 blocked: pid 7 has it open",
    );
    says(
        Some(laid(
            Some("infeasible"),
            None,
            &[("infeasible", "nine slices")],
        )),
        Verdict::Failing,
        "nine slices",
    );
    says(
        Some(laid(None, Some("there is no layout \"servign\""), &[])),
        Verdict::Failing,
        "layout serving: there is no layout \"servign\"",
    );
    says(
        Some(laid(None, None, &[])),
        Verdict::Unknown,
        "not looked yet",
    );
    let empty = Node::new(vec![]);
    empty.says(Check::Layout, Verdict::NotApplicable, "no NVIDIA driver");
    let mut untold = gpu_node(|_| {});
    untold.layout = Err("permission denied".to_owned());
    untold.says(Check::Layout, Verdict::Unknown, "permission denied");
}

#[test]
fn what_a_layout_left_is_told_where_no_agent_answers() {
    let says = |change: &dyn Fn(&mut LayoutProgress), verdict, evidence: &str| {
        let mut layout = LayoutProgress {
            is_agent: false,
            ..laid(None, None, &[("applied", "")])
        };
        change(&mut layout);
        let mut node = gpu_node(|_| {});
        node.layout = Ok(Some(layout));
        node.says(Check::Layout, verdict, evidence);
    };
    says(&|_| {}, Verdict::Ok, "no agent answers; at the last change");
    says(
        &|layout| layout.devices[0].state = "rolled-back".to_owned(),
        Verdict::Warning,
        "it was layout serving is not in force: GPU 0 rolled-back",
    );
    says(
        &|layout| {
            layout
                .journal
                .push("plan p has begun and not ended".to_owned());
        },
        Verdict::Warning,
        "no agent that changes devices answers (/var/lib/octavo); plan p has begun and not ended",
    );
}

#[test]
fn where_no_agent_is_asked_the_layout_stands_as_the_node_says() {
    let node = |state| {
        let mut node = gpu_node(|_| {});
        node.layout = Err("a recording does not tell".to_owned());
        let state = ("octavo.dev/layout-state", state);
        node.labels(&[HOST, ("octavo.dev/layout", "serving"), state])
    };
    for (state, verdict) in [
        ("applied", Verdict::Ok),
        ("pending", Verdict::Ok),
        ("blocked", Verdict::Warning),
        ("failed", Verdict::Failing),
    ] {
        let said = format!("layout serving: node.json has octavo.dev/layout-state={state}");
        node(state).says(Check::Layout, verdict, &said);
    }
}

fn running(mut node: Node, program: &str) -> Node {
    node.processes = Ok(Processes {
        hidden: None,
        programs: [program.to_owned()].into(),
    });
    node
}

#[test]
fn two_partitioning_managers_are_reported() {
    let check = Check::OtherManagers;
    let node = || gpu_node(|_| {});
    node().says(check, Verdict::Ok, "neither nvidia-mig-manager nor");
    let alone = running(node(), MIG_MANAGER);
    alone.says(
        check,
        Verdict::Ok,
        "nvidia-mig-manager runs here, and no layout",
    );
    let both = alone.labels(&[HOST, ("octavo.dev/layout", "serving")]);
    both.says(
        check,
        Verdict::Warning,
        "layout serving of Octavo's is chosen",
    );
    let mut said = running(node(), MIG_MANAGER);
    said.layout = Ok(Some(laid(Some("applied"), None, &[])));
    said.says(check, Verdict::Warning, "layout serving");
    node()
        .labels(&[
            HOST,
            ("nvidia.com/gpu.deploy.mig-manager", "true"),
            ("nvidia.com/mig.config.state", "pending"),
            ("octavo.dev/layout", "serving"),
        ])
        .says(
            check,
            Verdict::Warning,
            "(nvidia.com/mig.config.state=pending)",
        );
    let mut hidden = node();
    hidden.processes = Err("a recording does not tell".to_owned());
    hidden.says(check, Verdict::Unknown, "a recording does not tell");
    hidden
        .labels(&[HOST])
        .says(check, Verdict::Ok, "names nobody else");
    Node::new(vec![]).says(check, Verdict::NotApplicable, "no NVIDIA driver");
}

#[test]
fn duplicate_label_writers_are_reported() {
    let check = Check::OtherManagers;
    let node = || gpu_node(|_| {}).labels(&[("nvidia.com/gpu.count", "1")]);
    node().says(check, Verdict::Ok, "neither");
    running(node(), GFD).says(
        check,
        Verdict::Warning,
        "node.json has nvidia.com/gpu.count and the like, and gpu-feature-discovery runs",
    );
    let mut beside = node();
    if let Ok(Some(labels)) = &mut beside.labels {
        labels.gfd = Some("features.d/gfd".to_owned());
    }
    beside.says(check, Verdict::Warning, "features.d/gfd is there");
    // For a Node the author of a label is unknown, and the agent leaves keys of other writers alone.
    let whole = gpu_node(|_| {}).labels(&[HOST, ("nvidia.com/gpu.count", "1")]);
    running(whole, GFD).says(check, Verdict::Ok, "neither");
}

#[test]
fn operands_that_are_still_paused_are_told() {
    let paused = ("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change");
    let running = ("nvidia.com/gpu.deploy.device-plugin", "true");
    let node = gpu_node(|_| {}).labels(&[HOST, paused, running]);
    node.says(
        Check::OtherManagers,
        Verdict::Warning,
        "node.json has nvidia.com/gpu.deploy.dcgm=paused-for-mig-change: nobody",
    );
}

#[test]
fn double_allocation_is_reported_for_sockets_and_claims() {
    let check = Check::ResourceOwners;
    let node = || gpu_node(|_| {}).kubelet(&[("nvidia.com/gpu", &[GPU])]);
    node().says(check, Verdict::Ok, "given out by two");
    node()
        .sockets(&["nvidia-gpu.sock", "octavo-mig-1g.5gb.sock"])
        .says(check, Verdict::Ok, "given out by two");
    node()
        .sockets(&["nvidia-gpu.sock", "octavo-gpu.sock"])
        .says(check, Verdict::Warning, "Octavo's agent for nvidia.com/gpu");
    let mut claims = trainium(1, Some("neuron"))
        .module("neuron", "2.26")
        .neuron([0])
        .kubelet(&[("aws.amazon.com/neuron", &["0"])]);
    claims.says(check, Verdict::Ok, "given out by two");
    if let Ok(Some(kubelet)) = &mut claims.kubelet {
        kubelet.claim_drivers = Ok(["neuron.aws.com".to_owned()].into());
    }
    claims.says(
        check,
        Verdict::Warning,
        "has its folder, and a device plugin gives aws.amazon.com/neuron out",
    );
}

#[test]
fn time_slicing_is_reported_with_its_configuration() {
    let check = Check::TimeSlicing;
    let replica = format!("{GPU}::0");
    let node = || gpu_node(|_| {}).kubelet(&[("nvidia.com/gpu", &[&replica])]);
    node().says(check, Verdict::Ok, "a label of the Node says");
    let ours = node().sockets(&["octavo-gpu.sock"]);
    ours.says(
        check,
        Verdict::Ok,
        "1 replica of 1 device, by Octavo's agent",
    );
    let config = "nvidia.com/device-plugin.config";
    let layout = ("octavo.dev/layout", "serving");
    let handed = node().labels(&[HOST, layout, (config, "octavo-serving-1234")]);
    handed.says(check, Verdict::Ok, "as the layout says");
    let other = node().labels(&[HOST, (config, "team")]);
    other.says(
        check,
        Verdict::Ok,
        "a configuration of another's (nvidia.com/device-plugin.config=team)",
    );
    let against = node().labels(&[HOST, layout, (config, "team")]);
    against.says(check, Verdict::Warning, "while layout serving is chosen");
    let default = node().labels(&[HOST, layout]);
    default.says(check, Verdict::Warning, "its own configuration, while");
    let mut unseen = node().labels(&[HOST, layout]);
    if let Ok(Some(kubelet)) = &mut unseen.kubelet {
        kubelet.sockets = Err("device-plugins is not mounted".to_owned());
    }
    unseen.says(check, Verdict::Ok, "nobody tells who gives them out");
    // Without the kubelet, labels report time-slicing; the agent writes the same labels.
    let labels = [
        HOST,
        layout,
        ("nvidia.com/gpu.sharing-strategy", "mps"),
        ("nvidia.com/gpu.replicas", "4"),
    ];
    let told = |more: &[(&str, &str)]| {
        let mut node = gpu_node(|_| {}).labels(&[&labels, more].concat());
        node.kubelet = Err("a recording does not tell".to_owned());
        node
    };
    let said = "node.json says nvidia.com/gpu: mps, 4 replicas of each";
    told(&[]).says(check, Verdict::Ok, said);
    told(&[(config, "team")]).says(check, Verdict::Warning, said);
}
