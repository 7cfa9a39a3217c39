//! The parts `sharing` and `usage`: round trips, and rejection of invalid input from a peer with its location.

use octavo_fleet::summary::{MAX_ITEMS, usage_for_report};
use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{HandOffConfig, Health, ResourceStatus, RetainedId, UnitStatus};
use octavo_node::sharing::usage::{DeviceUsage, PastUsage, Tenant, UnitUsage};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn word() -> impl Strategy<Value = String> {
    "[ -~]{0,12}"
}

fn id() -> impl Strategy<Value = ShareId> {
    of(0..9_u32).prop_map(|number| match number {
        Some(number) => ShareId::replica(GPU, number),
        None => ShareId::whole(GPU),
    })
}

fn resource() -> impl Strategy<Value = ResourceStatus> {
    let unit = (word(), of(0..99_u32), of(word()));
    let unit = unit.prop_map(|(uuid, replicas, reason)| UnitStatus {
        uuid,
        replicas,
        health: reason.map_or(Health::Healthy, |reason| Health::Unhealthy { reason }),
    });
    (any::<u64>(), of(any::<u64>()), vec(unit, 0..4)).prop_map(|(wanted, allocatable, units)| {
        ResourceStatus { name: ResourceName::gpu(), wanted, allocatable, units }
    })
}

fn retained_id() -> impl Strategy<Value = RetainedId> {
    (id(), word(), word(), word(), word()).prop_map(|(id, namespace, pod, container, resource)| {
        RetainedId { id, namespace, pod, container, resource }
    })
}

fn report() -> impl Strategy<Value = SharingStatus> {
    let lists = (vec(resource(), 0..3), vec(retained_id(), 0..3));
    let plugin = (of((word(), word())), of(word()));
    let texts = (word(), word(), of(word()), plugin);
    (texts, lists).prop_map(|((mode, state, message, (hand_off, named)), (resources, retained))| {
        SharingStatus {
            mode: Reported::parse(&mode),
            state: Reported::parse(&state),
            message,
            claim_shares: resources.iter().flat_map(|one| one.units.clone()).collect(),
            covered: (0..3).take(resources.len()).map(PciAddress::unreported).collect(),
            resources,
            retained,
            hand_off: hand_off.map(|(key, config)| HandOffConfig { key, config }),
            named,
        }
    })
}

fn memory() -> impl Strategy<Value = MemoryUse> {
    (0..99_999_u64, 0..99_999_u64, 0..999_u64).prop_map(|(total, used, reserved)| MemoryUse {
        total: Mebibytes::new(total),
        used: Mebibytes::new(used),
        reserved: Mebibytes::new(reserved),
    })
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let names = (of(word()), of(word()), of(word()), of(word()));
    let figures = (of(0..99_999_u64), of(0..=100_u8), any::<bool>());
    (names, figures, vec(id(), 0..3), vec(any::<u32>(), 0..3)).prop_map(
        |(names, figures, ids, processes)| {
            let tenant = Tenant {
                namespace: names.0,
                pod: names.1,
                container: names.3,
                ids,
                memory: figures.0.map(Mebibytes::new),
                utilization: figures.1.map(Percent),
                processes,
                is_over_share: figures.2,
                ..Tenant::default()
            };
            tenant.with_uid(names.2)
        },
    )
}

fn unit() -> impl Strategy<Value = UnitUsage> {
    let what = (word(), of((any::<u32>(), any::<u32>())), of(word()));
    let shares = (of(0..9_u32), of(0..9_999_u64), of(0..9_999_u64), of(any::<u64>()));
    let measured = (of(memory()), of(0..=100_u8));
    (what, shares, measured, vec(tenant(), 0..4), any::<(bool, bool)>()).prop_map(
        |(what, shares, (memory, utilization), tenants, is)| UnitUsage {
            uuid: what.0,
            gpu_instance: what.1.map(|(gpu_instance, _)| gpu_instance),
            compute_instance: what.1.map(|(_, compute_instance)| compute_instance),
            profile: what.2,
            resource: is.0.then(ResourceName::gpu),
            replicas: shares.0,
            fair_share: shares.1.map(Mebibytes::new),
            memory,
            utilization: utilization.map(Percent),
            tenants,
            unattributed: shares.2.map(Mebibytes::new),
            exhausted_in: shares.3,
            is_nearly_exhausted: is.1,
        },
    )
}

fn usage() -> impl Strategy<Value = Usage> {
    let sensors = (of(any::<u32>()), of(any::<u32>()));
    let device = (word(), of(memory()), of(0..=100_u8), sensors, vec(unit(), 0..3));
    let devices = vec(device, 0..3).prop_map(|devices| {
        let devices = devices.into_iter().enumerate();
        let device = |(number, fields): (usize, (String, _, Option<u8>, (_, _), _))| DeviceUsage {
            pci: PciAddress::new(0, u8::try_from(number).unwrap(), 0, 0).unwrap(),
            name: fields.0,
            memory: fields.1,
            utilization: fields.2.map(Percent),
            power_watts: fields.3.0,
            temperature_celsius: fields.3.1,
            units: fields.4,
        };
        devices.map(device).collect()
    });
    (devices, vec(word(), 0..3), any::<bool>()).prop_map(
        |(devices, missing, are_allocations_unknown)| Usage {
            devices,
            missing,
            are_allocations_unknown,
        },
    )
}

/// A complete status with additional parts.
fn parts(more: impl IntoIterator<Item = (PartKey, Content)>) -> Parts {
    let inventory = two_gpus();
    let parts = encode(&inventory, &LabelSet::default(), None);
    let all = parts.iter().map(|(key, part)| (key.clone(), part.clone()));
    all.chain(more).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sharing_and_usage_round_trip(report in report(), usage in usage()) {
        let parts = parts([encode_sharing(&report), encode_usage(&usage)]);
        let status = decode(&parts).unwrap();
        prop_assert_eq!(status.sharing, Some(report));
        prop_assert_eq!(status.usage, Some(usage));
    }

    #[test]
    fn past_usage_round_trips(times in vec((any::<i64>(), usage()), 0..4)) {
        let past: Vec<PastUsage> =
            times.into_iter().map(|(at, usage)| PastUsage { at, usage }).collect();
        let (key, content) = encode_past_usage(&past);
        prop_assert_eq!(decode_past_usage(&content).unwrap(), past);
        decode(&parts([(key, content)])).unwrap();
    }

    #[test]
    fn bounded_usage_is_always_decodable_and_bounding_is_idempotent(
        usage in usage(), most in 0..9_usize,
    ) {
        let once = usage_for_report(&usage, most);
        prop_assert_eq!(&usage_for_report(&once, usize::MAX), &once);
        let (_, content) = encode_usage(&once);
        prop_assert_eq!(decode_usage(&content).unwrap(), once);
    }

    #[test]
    fn decoder_never_panics_on_modified_parts(
        report in report(), usage in usage(), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let past = encode_past_usage(&[PastUsage { at: 7, usage: usage.clone() }]);
        for (key, content) in [encode_sharing(&report), encode_usage(&usage), past] {
            let mut bytes = content.bytes().to_vec();
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let _ = decode(&parts([(key, Content::new(bytes))]));
        }
    }
}

fn refused(key: &str, message: &impl Message) -> String {
    let content = Content::new(message.encode_to_vec());
    let error = decode(&parts([(key.parse().unwrap(), content)])).unwrap_err();
    format!("{}: {}", error.field, error.problem)
}

fn of_a_tenant(tenant: v1::Tenant) -> v1::Usage {
    let unit =
        v1::UnitUsage { tenants: vec![v1::Tenant::default(), tenant], ..v1::UnitUsage::default() };
    of_a_unit(unit)
}

fn of_a_unit(unit: v1::UnitUsage) -> v1::Usage {
    v1::Usage {
        devices: vec![v1::DeviceUsage {
            pci: "0000:07:00.0".to_owned(),
            units: vec![unit],
            ..v1::DeviceUsage::default()
        }],
        ..v1::Usage::default()
    }
}

#[test]
fn i12_invalid_past_usage_is_rejected_with_its_field() {
    let bad = v1::DeviceUsage { pci: "7".to_owned(), ..v1::DeviceUsage::default() };
    let usage = v1::Usage { devices: vec![bad], ..v1::Usage::default() };
    let good = v1::PastUsage { at: 1, usage: Some(v1::Usage::default()) };
    let with = |usages: Vec<v1::PastUsage>| refused("past-usage", &v1::PastUsages { usages });
    let refusal = with(vec![good.clone(), v1::PastUsage { at: 2, usage: Some(usage) }]);
    assert!(refusal.contains("usages[1].usage.devices[0].pci: "), "{refusal}");
    let refusal = with(vec![v1::PastUsage { at: 2, usage: None }]);
    assert!(refusal.contains("usages[0].usage: "), "{refusal}");
    let refusal = with(vec![good; 1025]);
    assert!(refusal.contains("usages: "), "{refusal}");
}

#[test]
fn i12_invalid_usage_is_rejected_with_its_field() {
    let tenant = |tenant: v1::Tenant| refused("usage", &of_a_tenant(tenant));
    let place = "devices[0].units[0].tenants[1]";
    let long = "x".repeat(300);
    let cases = [
        (
            tenant(v1::Tenant { utilization: Some(101), ..v1::Tenant::default() }),
            format!("{place}.utilization: 101 is more than the maximum of 100"),
        ),
        (
            tenant(v1::Tenant { ids: vec!["GPU-1".to_owned()], ..v1::Tenant::default() }),
            format!(
                "{place}.ids: \"GPU-1\" is not an id like GPU-<uuid>, MIG-<uuid> or GPU-<uuid>::2"
            ),
        ),
        (
            tenant(v1::Tenant { pod: Some(long), ..v1::Tenant::default() }),
            format!("{place}.pod: 300 bytes are too long for this field"),
        ),
        (
            tenant(v1::Tenant { processes: vec![7; 1000], ..v1::Tenant::default() }),
            format!("{place}.processes: 1000 is more than the maximum of 256"),
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn i12_invalid_unit_usage_is_rejected_with_its_field() {
    let long = "x".repeat(300);
    let cases = [
        (
            refused(
                "usage",
                &of_a_unit(v1::UnitUsage { compute_instance: Some(0), ..v1::UnitUsage::default() }),
            ),
            "devices[0].units[0].gpu_instance: it is missing".to_owned(),
        ),
        (
            refused(
                "usage",
                &of_a_unit(v1::UnitUsage { utilization: Some(101), ..v1::UnitUsage::default() }),
            ),
            "devices[0].units[0].utilization: 101 is more than the maximum of 100".to_owned(),
        ),
        (
            refused(
                "usage",
                &of_a_unit(v1::UnitUsage {
                    resource: Some("amd.com/gpu".to_owned()),
                    ..v1::UnitUsage::default()
                }),
            ),
            "devices[0].units[0].resource: \"amd.com/gpu\" does not start with nvidia.com/"
                .to_owned(),
        ),
        (
            refused(
                "usage",
                &of_a_unit(v1::UnitUsage {
                    tenants: vec![v1::Tenant::default(); MAX_ITEMS + 1],
                    ..v1::UnitUsage::default()
                }),
            ),
            "devices[0].units[0].tenants: 257 is more than the maximum of 256".to_owned(),
        ),
        (
            refused("usage", &v1::Usage { missing: vec![long; 400], ..v1::Usage::default() }),
            ": 121200 bytes are too long for this field".to_owned(),
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn i12_invalid_sharing_is_rejected_with_its_field() {
    let sharing = |sharing: v1::Sharing| refused("sharing", &sharing);
    let message = sharing(v1::Sharing {
        plugin_config_key: Some("a100".to_owned()),
        ..v1::Sharing::default()
    });
    assert_eq!(message, "plugin_config: it is missing");
    let message = sharing(v1::Sharing {
        plugin_config: Some("version: v1".to_owned()),
        ..v1::Sharing::default()
    });
    assert_eq!(message, "plugin_config_key: it is missing");
    let message =
        sharing(v1::Sharing { kept: vec![v1::KeptShare::default()], ..v1::Sharing::default() });
    assert!(message.starts_with("kept[0].id: \"\" is not an id"), "{message}");
    let unit = v1::SharedUnit { unhealthy: Some("x".repeat(5000)), ..v1::SharedUnit::default() };
    let message = sharing(v1::Sharing {
        resources: vec![v1::SharedResource {
            name: "nvidia.com/gpu".to_owned(),
            units: vec![unit],
            ..v1::SharedResource::default()
        }],
        ..v1::Sharing::default()
    });
    assert_eq!(message, "resources[0].units[0].unhealthy: 5000 bytes are too long for this field");
    let message = sharing(v1::Sharing {
        resources: vec![v1::SharedResource::default(); 65],
        ..v1::Sharing::default()
    });
    assert_eq!(message, "resources: 65 is more than the maximum of 64");
}
