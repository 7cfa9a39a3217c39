//! NVIDIA's keys for MIG devices with the strategies `single` and `mixed`.

use std::collections::BTreeMap;

use octavo_model::catalog::InstanceResources;
use octavo_model::id::MigUuid;
use octavo_model::inventory::{ComputeInstance, GpuInstance, Mig};
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;

use super::sharing::Sharing;
use super::{Gpu, sanitized};
use crate::labels::note::LabelsBuilder;
use crate::labels::{Note, Omission};
use crate::mig_strategy::InvalidMig;
use crate::sharing::Offers;

/// A MIG device.
#[derive(Debug, Clone, Copy)]
struct MigDevice<'a> {
    model: &'a str,
    memory: Option<Mebibytes>,
    resources: Option<InstanceResources>,
}

/// The MIG devices of one profile; the first one supplies the attributes.
#[derive(Debug)]
struct ProfileGroup<'a> {
    first: MigDevice<'a>,
    /// UUIDs of all MIG devices; `None` where the driver does not report one.
    uuids: Vec<Option<&'a MigUuid>>,
}

impl ProfileGroup<'_> {
    fn sharing(&self, offers: Option<&Offers>, name: &ResourceName) -> Sharing {
        let uuids = self.uuids.iter().filter_map(|uuid| *uuid);
        Sharing::from_offers(offers, name, uuids.map(MigUuid::as_str))
    }
}

/// Presents MIG devices as GPUs, which requires that every GPU is partitioned and all MIG devices have the same
/// profile.
pub(super) fn add_single(draft: &mut LabelsBuilder, gpus: &[Gpu], offers: Option<&Offers>) {
    draft.put("nvidia.com/mig.strategy", "single");
    if !are_all_reported(gpus) {
        // These keys already describe whole GPUs. Whether MIG devices replace them is unknown.
        for name in ["product", "count", "replicas", "memory", "sharing-strategy"] {
            draft.omit(&format!("nvidia.com/gpu.{name}"), Omission::PartitionsUnknown);
        }
        return;
    }
    let partitioned: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.device.mig.is_enabled()).collect();
    let Some(first) = partitioned.first() else {
        return;
    };
    let (groups, nameless) = groups(gpus);
    let reason = if partitioned.iter().any(|gpu| compute_instances(gpu).next().is_none()) {
        Some(InvalidMig::EmptyGpu)
    } else if partitioned.len() < gpus.len() {
        Some(InvalidMig::MixedMigModes)
    } else if nameless > 0 {
        Some(InvalidMig::ProfileUnknown)
    } else if groups.len() > 1 {
        Some(InvalidMig::MultipleProfiles)
    } else {
        None
    };
    match reason {
        Some(reason) => add_invalid(draft, first.model, reason),
        None => {
            for (profile, group) in &groups {
                let sharing = group.sharing(offers, &ResourceName::gpu());
                add_group(draft, "nvidia.com/gpu", (profile, group), sharing);
            }
        }
    }
}

/// Presents each profile as a resource of its own, next to whole GPUs.
pub(super) fn add_mixed(draft: &mut LabelsBuilder, gpus: &[Gpu], offers: Option<&Offers>) {
    draft.put("nvidia.com/mig.strategy", "mixed");
    if !are_all_reported(gpus) {
        draft.omit("nvidia.com/mig-*", Omission::PartitionsUnknown);
        return;
    }
    let (groups, nameless) = groups(gpus);
    if nameless > 0 {
        draft.omit("nvidia.com/mig-*", Omission::ProfileUnknown);
    }
    for (profile, group) in &groups {
        let resource = format!("nvidia.com/mig-{profile}");
        let sharing = match resource.parse() {
            Ok(name) => group.sharing(offers, &name),
            Err(_) => Sharing::EXCLUSIVE,
        };
        add_group(draft, &resource, (profile, group), sharing);
    }
}

/// Returns true if the driver reports the MIG devices of all GPUs. Otherwise no count is certain: an unreported device
/// may have any profile.
fn are_all_reported(gpus: &[Gpu]) -> bool {
    gpus.iter().all(|gpu| gpu.device.mig.is_fully_known())
}

fn add_invalid(draft: &mut LabelsBuilder, model: &str, reason: InvalidMig) {
    draft.note(Note::InvalidMig(reason));
    draft.put_parts("nvidia.com/gpu.product", model, "-MIG-INVALID");
    for name in ["count", "replicas", "memory"] {
        draft.put(&format!("nvidia.com/gpu.{name}"), &0);
    }
    draft.put("nvidia.com/gpu.sharing-strategy", "");
}

fn add_group(
    draft: &mut LabelsBuilder,
    resource: &str,
    (profile, group): (&str, &ProfileGroup),
    sharing: Sharing,
) {
    let MigDevice { model, memory, resources } = group.first;
    draft.put_parts(
        &format!("{resource}.product"),
        model,
        &format!("-MIG-{profile}{}", sharing.suffix()),
    );
    draft.put(&format!("{resource}.count"), &group.uuids.len());
    sharing.put(draft, resource);
    match memory {
        Some(memory) => draft.put(&format!("{resource}.memory"), &memory.get()),
        None => draft.omit(&format!("{resource}.memory"), Omission::AttributesUnknown),
    }
    let Some(has) = resources else {
        draft.omit(&format!("{resource}.slices.*"), Omission::AttributesUnknown);
        return;
    };
    for (name, value) in [
        ("multiprocessors", has.multiprocessors),
        ("slices.gi", has.gpu_slices),
        ("slices.ci", has.compute_slices),
        ("engines.copy", has.copy_engines),
        ("engines.decoder", has.decoders),
        ("engines.encoder", has.encoders),
        ("engines.jpeg", has.jpeg_engines),
        ("engines.ofa", has.ofa_engines),
    ] {
        draft.put(&format!("{resource}.{name}"), &value);
    }
}

/// Groups all MIG devices by profile name as spelled in keys, and counts those without a profile name.
///
/// The same profile on two models is one resource, described by the first device, as in the original.
fn groups<'a>(gpus: &[Gpu<'a>]) -> (BTreeMap<String, ProfileGroup<'a>>, usize) {
    let mut groups: BTreeMap<String, ProfileGroup> = BTreeMap::new();
    let mut nameless = 0;
    for gpu in gpus {
        for (instance, compute) in compute_instances(gpu) {
            let Some(name) = gpu.device.profile_of(instance, compute) else {
                nameless += 1;
                continue;
            };
            let group = groups.entry(key_spelling(&name)).or_insert_with(|| ProfileGroup {
                first: MigDevice {
                    model: gpu.model,
                    memory: compute.memory,
                    resources: compute.resources,
                },
                uuids: Vec::new(),
            });
            group.uuids.push(compute.uuid.as_ref());
        }
    }
    (groups, nameless)
}

/// Returns the MIG devices of a GPU in MIG mode.
fn compute_instances<'a>(
    gpu: &Gpu<'a>,
) -> impl Iterator<Item = (&'a GpuInstance, &'a ComputeInstance)> {
    let mig = Some(&gpu.device.mig).filter(|mig| mig.is_enabled());
    mig.into_iter().flat_map(Mig::compute_instances)
}

/// Spells a profile name for keys and values: `1g.10gb+me` becomes `1g.10gb.me`; `1g.24gb-me` is unchanged.
fn key_spelling(name: &ProfileName) -> String {
    sanitized(&name.to_string().replace(['+', ','], "."))
}
