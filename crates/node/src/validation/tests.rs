//! Containers of each vendor, correct and wrong.

use std::collections::BTreeMap;

use octavo_model::inventory::Vendor;

use super::*;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
const MIG: &str = "MIG-5fd4087b-86f3-5a43-8711-4771313afc50";
const A100: &str = "nvidia-a100-80gb";

fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn expected(resource: &str) -> Expectation {
    let labels = labels(&[
        ("type.octavo.dev/nvidia-a100-80gb", "2"),
        ("octavo.dev/memory-mib", "81920"),
        ("nvidia.com/mig-3g.40gb.memory", "40192"),
    ]);
    Expectation::new(resource, &labels).unwrap()
}

fn unit(id: &str, memory_mib: u64) -> VisibleUnit {
    VisibleUnit {
        vendor: Vendor::Nvidia,
        id: id.to_owned(),
        type_name: Some(A100.to_owned()),
        profile: None,
        memory_mib: Some(memory_mib),
        error: None,
    }
}

/// A container that was allocated one GPU, with this unit.
fn container(unit: VisibleUnit) -> ContainerReport {
    ContainerReport {
        device_files: ["nvidia0", "nvidia-uvm", "nvidiactl"].map(str::to_owned).to_vec(),
        environment: labels(&[("NVIDIA_VISIBLE_DEVICES", &unit.id)]),
        units: vec![unit],
        nvml: None,
    }
}

/// The failed steps with their evidence.
fn failures(expected: &Expectation, seen: &ContainerReport) -> Vec<(&'static str, String)> {
    let steps = check_container(expected, seen).into_iter();
    let failing = steps.filter(|step| step.verdict == CheckResult::Failing);
    failing
        .map(|step| {
            assert!(step.remedy.is_some(), "{step:?}");
            (step.step.as_str(), step.evidence)
        })
        .collect()
}

#[test]
fn correct_containers_pass_every_step() {
    let whole = check_container(&expected("nvidia.com/gpu"), &container(unit(GPU, 81_920)));
    let evidence: Vec<&str> = whole.iter().map(|step| step.evidence.as_str()).collect();
    let only = format!("only {GPU} is visible");
    assert_eq!(evidence, ["/dev/nvidia0, /dev/nvidiactl", A100, "80 GiB", &only]);
    assert_eq!(Outcome::of_steps(&whole), Outcome::Passed);
    let part = check_container(&expected("nvidia.com/mig-3g.40gb"), &container(unit(MIG, 40_192)));
    assert_eq!(Outcome::of_steps(&part), Outcome::Passed, "{part:?}");
    // The driver does not report the profile to this container.
    assert_eq!(part[1].evidence, A100);
}

#[test]
fn container_without_devices_fails_with_the_reason_of_nvml() {
    let none = ContainerReport {
        nvml: Some("no libnvidia-ml.so.1".to_owned()),
        ..ContainerReport::default()
    };
    assert_eq!(
        failures(&expected("nvidia.com/gpu"), &none),
        [
            ("device-files", "the container has no /dev/nvidia0 or another number".to_owned()),
            ("type", "NVML is not usable in the container: no libnvidia-ml.so.1".to_owned()),
            ("memory", "the driver reports no memory to the container".to_owned()),
            ("isolation", "no allocated device is visible".to_owned()),
        ]
    );
}

#[test]
fn more_or_other_devices_violate_isolation() {
    let gpu = expected("nvidia.com/gpu");
    let mut two = container(unit(GPU, 81_920));
    two.units.push(unit("GPU-b", 81_920));
    two.device_files.push("nvidia1".to_owned());
    assert_eq!(
        failures(&gpu, &two),
        [
            (
                "device-files",
                "the container has the files of 2 devices: /dev/nvidia0, /dev/nvidia1".to_owned()
            ),
            ("isolation", format!("1 unit was allocated, but the container sees {GPU}, GPU-b")),
        ]
    );
    let mut other = container(unit("GPU-b", 81_920));
    other.environment = labels(&[("NVIDIA_VISIBLE_DEVICES", GPU)]);
    let text = format!("{GPU} was allocated, but the container sees GPU-b");
    assert_eq!(failures(&gpu, &other), [("isolation", text)]);
    other.environment = labels(&[("NVIDIA_VISIBLE_DEVICES", "all")]);
    let text = "NVIDIA_VISIBLE_DEVICES is `all` in the container".to_owned();
    assert_eq!(failures(&gpu, &other), [("isolation", text)]);
    // With CDI, the variable selects nothing.
    other.environment = labels(&[("NVIDIA_VISIBLE_DEVICES", "void")]);
    assert_eq!(failures(&gpu, &other), []);
}

#[test]
fn whole_gpu_instead_of_a_partition_differs_in_memory_and_other_types_are_named() {
    let part = expected("nvidia.com/mig-3g.40gb");
    let text = "the container sees 80 GiB, the label nvidia.com/mig-3g.40gb.memory is 39.2 GiB";
    let whole = container(unit(GPU, 81_920));
    assert_eq!(failures(&part, &whole), [("memory", text.to_owned())]);
    let mut small = container(unit(MIG, 40_192));
    small.units[0].profile = Some("1g.10gb+me".to_owned());
    let text = "the partition has the profile 1g.10gb.me, the resource is for 3g.40gb";
    assert_eq!(failures(&part, &small), [("type", text.to_owned())]);
    let mut other = container(unit(GPU, 81_920));
    other.units[0].type_name = Some("nvidia-h100-80gb".to_owned());
    let text = "the container sees nvidia-h100-80gb, the Node lists nvidia-a100-80gb";
    assert_eq!(failures(&expected("nvidia.com/gpu"), &other), [("type", text.to_owned())]);
    other.units[0].error = Some("Unknown Error".to_owned());
    let text = format!("{GPU}: Unknown Error");
    assert_eq!(failures(&expected("nvidia.com/gpu"), &other), [("type", text)]);
}

#[test]
fn without_labels_the_values_are_unknown_and_nothing_fails() {
    let bare = Expectation::new("nvidia.com/gpu", &BTreeMap::new()).unwrap();
    let steps = check_container(&bare, &container(unit(GPU, 81_920)));
    let verdicts: Vec<CheckResult> = steps.iter().map(|step| step.verdict).collect();
    let unknown = CheckResult::Unknown;
    assert_eq!(verdicts, [CheckResult::Ok, unknown, unknown, CheckResult::Ok]);
    assert_eq!(Outcome::of_steps(&steps), Outcome::Passed);
    assert_eq!(Expectation::new("example.com/fpga", &BTreeMap::new()), None);
}

#[test]
fn amd_and_neuron_containers_are_compared_by_their_device_files() {
    let of = |vendor, id: &str, files: &[&str]| ContainerReport {
        device_files: files.iter().map(|file| (*file).to_owned()).collect(),
        units: vec![VisibleUnit { vendor, type_name: None, memory_mib: None, ..unit(id, 0) }],
        ..ContainerReport::default()
    };
    let amd = Expectation::new("amd.com/gpu", &BTreeMap::new()).unwrap();
    let render = "dri/renderD128";
    assert_eq!(failures(&amd, &of(Vendor::Amd, render, &["kfd", render])), []);
    let text = "the container has no /dev/kfd".to_owned();
    assert_eq!(failures(&amd, &of(Vendor::Amd, render, &[render])), [("device-files", text)]);
    let neuron = Expectation::new("aws.amazon.com/neuron", &BTreeMap::new()).unwrap();
    let chip = || of(Vendor::Aws, "neuron3", &["neuron3"]);
    assert_eq!(failures(&neuron, &chip()), []);
    let mut two = chip();
    two.device_files.push("neuron4".to_owned());
    two.units.push(VisibleUnit { id: "neuron4".to_owned(), ..two.units[0].clone() });
    assert_eq!(failures(&neuron, &two).len(), 2);
    let core = Expectation::new("aws.amazon.com/neuroncore", &BTreeMap::new()).unwrap();
    let mut one = chip();
    one.environment = labels(&[("NEURON_RT_VISIBLE_CORES", "12")]);
    assert_eq!(failures(&core, &one), []);
    one.environment = labels(&[("NEURON_RT_VISIBLE_CORES", "12,13")]);
    let text = "1 core was allocated, but NEURON_RT_VISIBLE_CORES is 12,13".to_owned();
    assert_eq!(failures(&core, &one), [("isolation", text)]);
}

#[test]
fn largest_report_fits_into_a_termination_message() {
    let long = "x".repeat(120);
    let mut unit = unit(&format!("{GPU}-{GPU}"), u64::MAX);
    unit.profile = Some("1c.3g.40gb+me.all".to_owned());
    let report = ContainerReport {
        device_files: vec!["nvidia-caps/nvidia-cap1234".to_owned(); 16],
        environment: labels(&[
            ("NVIDIA_VISIBLE_DEVICES", &long),
            ("NEURON_RT_VISIBLE_CORES", &long),
        ]),
        units: vec![unit; 8],
        nvml: Some(long),
    };
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.len() < 4096, "{}", text.len());
}

#[test]
fn outcome_follows_the_worst_step() {
    let ok = StepResult::ok(ValidationStep::Scheduled, String::new());
    let skipped = StepResult::skipped(ValidationStep::FreeUnits, String::new());
    let failed = StepResult::failing(ValidationStep::Started, String::new(), "do it");
    let outcome = |steps: &[&StepResult]| {
        let steps: Vec<StepResult> = steps.iter().copied().cloned().collect();
        Outcome::of_steps(&steps)
    };
    assert_eq!(outcome(&[&ok]), Outcome::Passed);
    assert_eq!(outcome(&[&skipped]), Outcome::Skipped);
    assert_eq!(outcome(&[&ok, &failed]), Outcome::Failed);
    let sorted = Validation::new("a", None, vec![failed, ok]);
    assert_eq!(sorted.steps[0].step, ValidationStep::Scheduled);
}
