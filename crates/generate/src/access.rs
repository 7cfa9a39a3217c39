//! Access of namespaces to accelerator types: admission policies on pods and resource claims, and quotas of 0.
//!
//! A resource such as `nvidia.com/gpu` does not name a type. A pod that requests it must therefore select its type by a label
//! of nodes, if the namespace may use only some of the types that offer the resource. The kubelet checks this selector too,
//! so that a pod with `nodeName` cannot bypass it.

mod policies;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use octavo_model::claim::DRIVER;
use octavo_model::id::TypeName;

pub use self::rules::{AccessRules, InvalidNamespace};
use crate::manifest::{Generated, Manifest, ManifestFile, config_map, named, namespaced};
use crate::note::Note;
use crate::pools::Pools;

/// Beginning of the names of all objects.
const NAME: &str = "octavo-access";
/// Prefix of types whose devices have claims, and suffix of the names of classes.
const VENDOR: &str = "nvidia-";
const CLASS_SUFFIX: &str = ".octavo.dev";

/// Namespaces with the same access.
struct Subject<'a> {
    /// Name of its parameter and bindings.
    name: String,
    /// The namespace; `None` for all that no other rule names.
    namespace: Option<&'a str>,
    access: Access,
}

/// Types and resources of a namespace.
struct Access {
    types: BTreeSet<TypeName>,
    /// Resources that no allowed type offers.
    forbidden: BTreeSet<String>,
    /// Resources that also types offer that are not allowed.
    selected: BTreeSet<String>,
}

/// Generates the objects. The parameters of the policies are in this namespace.
pub fn access(pools: &Pools, rules: &AccessRules, parameters: &str) -> Generated {
    let offers = offers(pools);
    // A node that no pool contains may offer any resource.
    let is_complete = !pools.notes.iter().any(|note| matches!(note, Note::Excluded { .. }));
    let subjects: Vec<Subject<'_>> = subjects((&offers, is_complete), rules);
    let config_maps = subjects
        .iter()
        .map(|subject| config_map(parameters, &subject.name, subject.access.parameters()));
    let names: Vec<&str> = rules.namespaces.keys().map(String::as_str).collect();
    let bindings = subjects.iter().flat_map(|subject| {
        policies::bindings(
            subject,
            &[&names[..], &["kube-system", parameters]].concat(),
            parameters,
        )
    });
    let file = |name, manifests| ManifestFile { name, manifests };
    let files = vec![
        file("access-parameters.yaml", config_maps.collect()),
        file("admission-policies.yaml", policies::policies()),
        file("admission-policy-bindings.yaml", bindings.collect()),
        file("resource-quotas.yaml", subjects.iter().filter_map(quota).collect()),
        file("device-classes.yaml", device_classes(rules)),
    ];
    let known: BTreeSet<&TypeName> = pools.all.iter().map(|pool| &pool.type_name).collect();
    let absent = rules.types().filter(|type_name| !known.contains(type_name));
    let absent: BTreeSet<String> = absent.map(ToString::to_string).collect();
    let mut notes = pools.notes.clone();
    notes.extend(absent.into_iter().map(|type_name| Note::AbsentType { type_name }));
    notes.sort_unstable();
    Generated { files, notes }
}

/// Types that offer each resource.
fn offers(pools: &Pools) -> BTreeMap<&str, BTreeSet<&TypeName>> {
    let mut offers: BTreeMap<&str, BTreeSet<&TypeName>> = BTreeMap::new();
    for pool in &pools.all {
        for (resource, _) in pool.allocatable.accelerators() {
            offers.entry(resource).or_default().insert(&pool.type_name);
        }
    }
    offers
}

fn subjects<'a>(
    (offers, is_complete): (&BTreeMap<&str, BTreeSet<&TypeName>>, bool),
    rules: &'a AccessRules,
) -> Vec<Subject<'a>> {
    let others = rules.others.iter().map(|types| (None, types));
    let named = rules.namespaces.iter().map(|(name, types)| (Some(name.as_str()), types));
    let all = others.chain(named);
    all.map(|(namespace, types)| Subject {
        name: namespace.map_or_else(|| NAME.to_owned(), |name| format!("{NAME}-{name}")),
        namespace,
        access: Access::new((offers, is_complete), types),
    })
    .collect()
}

impl Access {
    fn new(
        (offers, is_complete): (&BTreeMap<&str, BTreeSet<&TypeName>>, bool),
        types: &BTreeSet<TypeName>,
    ) -> Self {
        let (mut forbidden, mut selected) = (BTreeSet::new(), BTreeSet::new());
        for (resource, offering) in offers {
            let allowed = offering.iter().filter(|one| types.contains(**one)).count();
            match allowed {
                0 => forbidden.insert((*resource).to_owned()),
                all if all == offering.len() && is_complete => false,
                _ => selected.insert((*resource).to_owned()),
            };
        }
        Self { types: types.clone(), forbidden, selected }
    }

    /// Lists with commas, as the policies read them.
    fn parameters(&self) -> BTreeMap<String, String> {
        let join = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(",");
        let types = self.types.iter().map(ToString::to_string).collect();
        let classes = self.types.iter().filter_map(class_name).collect();
        [
            ("types", join(&types)),
            ("forbidden", join(&self.forbidden)),
            ("selected", join(&self.selected)),
            ("classes", join(&classes)),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }
}

/// Quota of the resources whose pods the policies reject, also for pods that existed before.
fn quota(subject: &Subject<'_>) -> Option<Manifest> {
    let namespace = subject.namespace?;
    let none = |name: &String| (format!("requests.{name}"), Quantity("0".to_owned()));
    let hard: BTreeMap<String, Quantity> = subject.access.forbidden.iter().map(none).collect();
    (!hard.is_empty()).then(|| {
        Manifest::ResourceQuota(Box::new(ResourceQuota {
            metadata: namespaced(namespace, NAME),
            spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
            status: None,
        }))
    })
}

/// Class of the devices of a type; `None` if the DRA driver does not publish them.
fn class_name(type_name: &TypeName) -> Option<String> {
    type_name.as_str().starts_with(VENDOR).then(|| format!("{type_name}{CLASS_SUFFIX}"))
}

/// A class for each type that a rule names: other classes contain devices of several types.
fn device_classes(rules: &AccessRules) -> Vec<Manifest> {
    let types: BTreeSet<&TypeName> = rules.types().collect();
    let classes = types.into_iter().filter_map(|type_name| {
        let attributes = format!("device.attributes['{DRIVER}']");
        let expression = format!(
            "device.driver == '{DRIVER}' && has({attributes}.acceleratorType) && \
             {attributes}.acceleratorType == '{type_name}'"
        );
        Some(Manifest::DeviceClass(Box::new(DeviceClass {
            metadata: named(&class_name(type_name)?),
            spec: DeviceClassSpec {
                selectors: Some(vec![DeviceSelector {
                    cel: Some(CELDeviceSelector { expression }),
                }]),
                ..DeviceClassSpec::default()
            },
        })))
    });
    classes.collect()
}

#[cfg(test)]
mod tests;
