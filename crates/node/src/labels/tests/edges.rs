//! Edge cases of NVIDIA's keys: several models, invalid values, and attributes that the driver does not report.

use octavo_model::inventory::{Driver, Fabric, Mig, NvmlState, VgpuHost};

use super::machines::{
    A100_40, A100_80, L40S, MAX_Q, SERVER, T4, TestDevice, gpu, machine, partitioned,
};
use super::*;

#[test]
fn long_product_name_is_truncated_and_noted() {
    let max_q = machine(vec![partitioned(1, &MAX_Q, &["1g.24gb"])]);
    let product = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workst-3b0955aa-MIG-1g.24gb";
    for (strategy, key) in [
        (MigStrategy::Single, "nvidia.com/gpu.product"),
        (MigStrategy::Mixed, "nvidia.com/mig-1g.24gb.product"),
    ] {
        let compiled = compile(&max_q, &options(strategy), None);
        assert_eq!(compiled.labels.get(key), Some(product));
        assert_eq!(
            notes(&max_q, &options(strategy)),
            [format!(
                "{key}: \"NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition-MIG-1g.24gb\" is not a valid label value and was changed to {product}"
            )]
        );
    }
    let empty = machine(vec![partitioned(1, &MAX_Q, &[])]);
    assert_eq!(
        compile(&empty, &options(MigStrategy::Single), None).labels.get("nvidia.com/gpu.product"),
        Some("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workst-3b0955aa-MIG-INVALID")
    );
    let server = machine(vec![partitioned(1, &SERVER, &["1g.24gb-me", "1g.24gb+me.all"])]);
    let labels = compile(&server, &options(MigStrategy::Mixed), None).labels;
    for (key, value) in [
        (
            "nvidia.com/mig-1g.24gb-me.product",
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb-me",
        ),
        (
            "nvidia.com/mig-1g.24gb.me.all.product",
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb.me.all",
        ),
    ] {
        assert_eq!(labels.get(key), Some(value));
    }
}

#[test]
fn model_is_chosen_by_memory_then_count_then_name() {
    let product = |node: &Inventory| -> Vec<String> {
        let labels = compile(node, &Options::default(), None).labels;
        ["product", "count", "memory", "replicas"]
            .map(|key| labels.get(&format!("nvidia.com/gpu.{key}")).unwrap().to_owned())
            .to_vec()
    };
    let two = machine(vec![gpu(1, &A100_40), gpu(2, &A100_40), gpu(3, &A100_80)]);
    assert_eq!(product(&two), ["NVIDIA-A100-SXM4-80GB", "1", "81920", "1"]);
    assert_eq!(
        notes(&two, &Options::default()),
        [
            "nvidia.com/gpu.* describes NVIDIA-A100-SXM4-80GB; the node also has NVIDIA-A100-PCIE-40GB"
        ]
    );
    let cards = machine(vec![gpu(1, &L40S), gpu(2, &A100_80)]);
    assert_eq!(product(&cards), ["NVIDIA-A100-SXM4-80GB", "1", "81920", "1"]);
    // As in the original: if only one model has whole GPUs, the keys describe it.
    let whole = machine(vec![gpu(1, &L40S), partitioned(2, &A100_80, &["7g.80gb"])]);
    assert_eq!(product(&whole), ["NVIDIA-L40S", "1", "46068", "1"]);

    let rtx = |boards: &[&TestDevice]| {
        let devices = (1..).zip(boards).map(|(bus, board)| gpu(bus, board));
        product(&machine(devices.collect()))[0].clone()
    };
    let server = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition";
    assert_eq!(rtx(&[&MAX_Q, &SERVER, &SERVER]), server);
    assert_eq!(rtx(&[&SERVER, &MAX_Q]), "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition");
}

#[test]
fn two_part_driver_version_has_empty_revision() {
    let mut node = machine(vec![gpu(1, &T4)]);
    node.nvml = NvmlState::Ready(Driver { version: "470.82".parse().unwrap(), cuda: None });
    let compiled = compile(&node, &Options::default(), None);
    let cuda: Vec<String> = compiled
        .labels
        .iter()
        .filter(|(key, _)| key.starts_with("nvidia.com/cuda."))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        cuda,
        [
            "nvidia.com/cuda.driver-version.full=470.82",
            "nvidia.com/cuda.driver-version.major=470",
            "nvidia.com/cuda.driver-version.minor=82",
            "nvidia.com/cuda.driver-version.revision=",
            "nvidia.com/cuda.driver.major=470",
            "nvidia.com/cuda.driver.minor=82",
            "nvidia.com/cuda.driver.rev=",
        ]
    );
    assert_eq!(
        notes(&node, &Options::default()),
        [
            "nvidia.com/cuda.runtime-version.* is omitted: the driver does not report its CUDA version"
        ]
    );
}

#[test]
fn machine_type_is_sanitized_or_truncated() {
    for (name, expected) in [
        (None, "unknown"),
        (Some(" PowerEdge  R750xa\n"), "PowerEdge-R750xa"),
        (Some("ThinkSystem (SR670) V2/7Z22"), "ThinkSystem-SR670-V27Z22"),
        (Some("To Be Filled By O.E.M."), "To-Be-Filled-By-O.E.M-b6498781"),
        (Some("®"), ""),
    ] {
        let mut node = machine(vec![gpu(1, &T4)]);
        node.machine.product_name = name.map(str::to_owned);
        let labels = compile(&node, &Options::default(), None).labels;
        assert_eq!(labels.get("nvidia.com/gpu.machine"), Some(expected));
    }
}

#[test]
fn options_switch_keys_on_and_off() {
    let node = machine(vec![gpu(1, &T4)]);
    let keys = |options: &Options| -> Vec<String> {
        let labels = compile(&node, options, None).labels;
        labels.iter().map(|(key, _)| key.to_owned()).collect()
    };
    let usual = keys(&Options::default());
    let stamped = Options { timestamp: Some(1_724_632_719), ..Options::default() };
    assert_eq!(
        compile(&node, &stamped, None).labels.get("nvidia.com/gfd.timestamp"),
        Some("1724632719")
    );
    assert!(!usual.iter().any(|key| key.contains("timestamp")));
    let nameless = keys(&Options { machine_type: KeyPolicy::Withhold, ..Options::default() });
    assert_eq!(nameless.len(), usual.len() - 1);
    assert!(!nameless.contains(&"nvidia.com/gpu.machine".to_owned()));
    let ours = keys(&Options { nvidia: KeyPolicy::Withhold, ..Options::default() });
    let expected = usual.iter().filter(|key| !key.starts_with("nvidia.com/"));
    assert_eq!(ours, expected.cloned().collect::<Vec<_>>());
}

#[test]
fn mode_clique_and_virtual_gpus() {
    let value = |node: &Inventory, key: &str| {
        let labels = compile(node, &Options::default(), None).labels;
        labels.get(&format!("nvidia.com/{key}")).map(str::to_owned)
    };
    let mut node = machine(vec![gpu(1, &T4), gpu(2, &T4)]);
    assert_eq!(value(&node, "gpu.clique"), None);
    node.devices[0].pci_ids.class = Some(0x03_0000);
    assert_eq!(value(&node, "gpu.mode").as_deref(), Some("unknown"));
    node.devices[1].pci_ids.class = Some(0x03_0000);
    assert_eq!(value(&node, "gpu.mode").as_deref(), Some("graphics"));
    node.devices[1].pci_ids.class = None;
    assert_eq!(value(&node, "gpu.mode").as_deref(), Some("unknown"));

    let fabric = |clique_id| Fabric {
        cluster_uuid: "7b968a6d-c8aa-45e1-9e07-e1e51be99c31".to_owned(),
        clique_id,
    };
    node.devices[0].fabric = Some(fabric(1));
    let clique = Some("7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1");
    assert_eq!(value(&node, "gpu.clique").as_deref(), clique);
    node.devices[1].fabric = Some(fabric(2));
    assert_eq!(value(&node, "gpu.clique"), None);

    node.machine.vgpu = Some(VgpuHost {
        driver_version: "550.54.16".to_owned(),
        driver_branch: "r550_40".to_owned(),
    });
    assert_eq!(value(&node, "vgpu.present").as_deref(), Some("true"));
    assert_eq!(value(&node, "vgpu.host-driver-version").as_deref(), Some("550.54.16"));
    assert_eq!(value(&node, "vgpu.host-driver-branch").as_deref(), Some("r550_40"));
}

#[test]
fn unreported_attribute_omits_only_its_own_keys() {
    let mut gb10 = gpu(1, &T4);
    gb10.memory = None;
    gb10.compute_capability = None;
    let node = machine(vec![gb10]);
    let labels = compile(&node, &Options::default(), None).labels;
    for key in ["gpu.memory", "gpu.family", "gpu.compute.major", "gpu.compute.minor"] {
        assert_eq!(labels.get(&format!("nvidia.com/{key}")), None, "{key}");
    }
    assert_eq!(labels.get("nvidia.com/gpu.count"), Some("1"));

    let mut gpu = partitioned(1, &A100_80, &["1g.10gb"]);
    if let Mig::Capable(state) = &mut gpu.mig {
        state.gpu_instances[0].compute_instances[0].resources = None;
        state.gpu_instances[0].compute_instances[0].memory = None;
    }
    let labels = compile(&machine(vec![gpu]), &options(MigStrategy::Mixed), None).labels;
    let partition: Vec<&str> = labels
        .iter()
        .map(|(key, _)| key)
        .filter(|key| key.starts_with("nvidia.com/mig-"))
        .collect();
    assert_eq!(
        partition,
        [
            "nvidia.com/mig-1g.10gb.count",
            "nvidia.com/mig-1g.10gb.product",
            "nvidia.com/mig-1g.10gb.replicas",
            "nvidia.com/mig-1g.10gb.sharing-strategy",
        ]
    );
}
