//! Output of `nvml-simctl`.

use nvml_sim::fault::Rule;
use nvml_sim::model::{Gpu, Placement, Process, World};
use serde_json::{Value, json};

/// The whole machine.
pub(super) fn table(world: &World) -> String {
    let driver = &world.driver;
    let loaded = if driver.loaded { "" } else { ", not loaded" };
    let mut lines = vec![format!(
        "{}: driver {}{loaded}, {} GPUs",
        world.machine,
        driver.version,
        world.gpus.len()
    )];
    for gpu in &world.gpus {
        lines.push(gpu_line(gpu));
        lines.push(format!("     {}", gpu.uuid));
        lines.extend(instances(gpu));
    }
    lines.extend(world.processes.iter().map(process));
    lines.push(String::new());
    lines.join("\n")
}

/// The GPUs with their instances, and the processes, for programs.
pub(super) fn json(world: &World) -> Value {
    let gpus = world.gpus.iter().map(|gpu| {
        let instances = gpu.mig.iter().flat_map(|mig| &mig.instances);
        let instances = instances.map(|gi| {
            let profile = gpu.profile_of(gi).ok().map(|profile| profile.name.as_str());
            let compute = gi.compute.iter().map(|ci| json!({"id": ci.id, "uuid": ci.uuid}));
            json!({"id": gi.id, "profile": profile, "compute": compute.collect::<Vec<_>>()})
        });
        let instances: Vec<Value> = instances.collect();
        json!({"index": gpu.index, "uuid": gpu.uuid, "lost": gpu.lost, "instances": instances})
    });
    let processes = world.processes.iter();
    let processes = processes
        .map(|one| json!({"pid": one.pid, "gpu": one.gpu_uuid, "memoryMib": one.memory_mib}));
    json!({"gpus": gpus.collect::<Vec<_>>(), "processes": processes.collect::<Vec<_>>()})
}

/// The profiles of one GPU.
pub(super) fn profiles(gpu: &Gpu) -> String {
    let mut lines = vec![format!(
        "{:<16} {:>3} {:>9} {:>4} {:>9}  {}",
        "profile", "id", "free/max", "SMs", "MiB", "starts"
    )];
    for profile in gpu.profiles.iter() {
        let free = gpu.remaining_capacity(profile.id);
        let free = free.map_or_else(|_| "-".to_owned(), |free| free.to_string());
        let starts: Vec<String> = profile.placements.iter().copied().map(start).collect();
        lines.push(format!(
            "{:<16} {:>3} {:>9} {:>4} {:>9}  {}",
            profile.name,
            profile.id,
            format!("{free}/{}", profile.max_count),
            profile.multiprocessors,
            profile.memory_mib,
            starts.join(",")
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A rule in the format in which it can be added again.
pub(super) fn fault(rule: &Rule) -> String {
    let written = Rule { made: 0, ..rule.clone() };
    serde_json::to_string(&written).unwrap_or_else(|_| rule.id.clone())
}

fn gpu_line(gpu: &Gpu) -> String {
    let mig = match &gpu.mig {
        None => "no MIG",
        Some(mig) if mig.current != mig.pending => "MIG mode pending",
        Some(mig) if mig.current => "MIG on",
        Some(_) => "MIG off",
    };
    let lost = if gpu.lost { ", LOST" } else { "" };
    format!(
        "{:>3}  {}  {}  {} MiB, {mig}{lost}",
        gpu.index,
        gpu.pci.sysfs(),
        gpu.name,
        gpu.memory_mib
    )
}

fn instances(gpu: &Gpu) -> Vec<String> {
    let Some(mig) = &gpu.mig else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for gi in &mig.instances {
        let name = gpu.profile_of(gi).map_or("?", |profile| profile.name.as_str());
        let place = format!("{}+{}", gi.placement.start, gi.placement.size);
        lines.push(format!("     GI {:>2}  {name:<14} at {place}", gi.id));
        lines.extend(gi.compute.iter().map(|ci| format!("        CI {}  {}", ci.id, ci.uuid)));
    }
    lines
}

fn process(process: &Process) -> String {
    let part = |name: &str, id: Option<u32>| id.map_or(String::new(), |id| format!(" {name} {id}"));
    format!(
        "process {} {} on {}{}{}, {} MiB, {:?}",
        process.pid,
        process.name,
        process.gpu_uuid,
        part("GI", process.gi),
        part("CI", process.ci),
        process.memory_mib,
        process.kind
    )
}

fn start(placement: Placement) -> String {
    placement.start.to_string()
}
