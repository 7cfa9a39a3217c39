//! Whatever layouts are, what is written of them is read as the same.

use octavo::domain::id::{GpuUuid, PciAddress, TypeName};
use octavo::domain::layout::{
    Criteria, DeviceFilter, Dialect, IndexRange, Layout, Layouts, MigWish, Place, ProfileCount,
    Rule, Selector, TimeSlicing,
};
use octavo::domain::profile::ProfileName;
use octavo::domain::quantity::Mebibytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::checks;

proptest! {
    #[test]
    fn layouts_of_our_dialect_are_written_and_read_as_the_same(layouts in ours()) {
        checks::again(&layouts);
    }

    #[test]
    fn layouts_of_mig_parteds_dialect_are_written_and_read_as_the_same(layouts in theirs()) {
        checks::again(&layouts);
    }

    #[test]
    fn any_text_is_read_to_its_end(text in ".{0,200}") {
        checks::check(&text, &[]);
    }
}

fn ours() -> impl Strategy<Value = Layouts> {
    let names = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?";
    let alone = rule(Just(Selector::All)).prop_map(|rule| vec![rule]);
    let several = (
        vec(rule(criteria().prop_map(Selector::Matching)), 1..4),
        option::of(rule(Just(Selector::Rest))),
    );
    let several = several.prop_map(|(mut rules, rest)| {
        rules.extend(rest);
        rules
    });
    file(Dialect::Octavo, names, prop_oneof![alone, several])
}

/// A name may be any text there.
fn theirs() -> impl Strategy<Value = Layouts> {
    let rule = (option::of(some_indices()), option::of(filters()), wish());
    let rule = rule.prop_map(|(index, device_filter, mig)| Rule {
        place: Place::default(),
        devices: if index.is_none() && device_filter.is_none() {
            Selector::All
        } else {
            Selector::Matching(Criteria {
                index,
                device_filter,
                ..Criteria::default()
            })
        },
        mig: Some(mig),
        time_slicing: None,
    });
    file(Dialect::MigParted, ".{0,40}", vec(rule, 1..4))
}

fn file(
    dialect: Dialect,
    names: &'static str,
    rules: impl Strategy<Value = Vec<Rule>>,
) -> impl Strategy<Value = Layouts> {
    btree_map(names, rules, 1..4).prop_map(move |named| {
        let layout = |(name, rules)| Layout {
            name,
            place: Place::default(),
            rules,
        };
        Layouts {
            dialect,
            layouts: named.into_iter().map(layout).collect(),
        }
    })
}

/// A rule of ours asks for partitions, for sharing, or for both.
fn rule(devices: impl Strategy<Value = Selector>) -> impl Strategy<Value = Rule> {
    let asked = prop_oneof![
        wish().prop_map(|mig| (Some(mig), None)),
        sharing().prop_map(|sharing| (None, Some(sharing))),
        (wish(), sharing()).prop_map(|(mig, sharing)| (Some(mig), Some(sharing))),
    ];
    (devices, asked).prop_map(|(devices, (mig, time_slicing))| Rule {
        place: Place::default(),
        devices,
        mig,
        time_slicing,
    })
}

fn criteria() -> impl Strategy<Value = Criteria> {
    let types = "[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,6}){0,3}";
    let types = types.prop_map(|name| name.parse::<TypeName>().unwrap());
    let criteria = (
        option::of(ranges()),
        option::of(btree_set(any::<u128>().prop_map(uuid), 1..4)),
        option::of(btree_set(any::<u8>().prop_map(pci), 1..4)),
        option::of(btree_set(types, 1..4)),
        option::of(1..u64::from(u32::MAX)),
        option::of(any::<bool>()),
    );
    criteria
        .prop_map(
            |(index, uuid, pci, type_name, memory, mig_capable)| Criteria {
                index,
                uuid: uuid.map(|all| all.into_iter().collect()),
                pci: pci.map(|all| all.into_iter().collect()),
                type_name: type_name.map(|all| all.into_iter().collect()),
                memory_at_least: memory.map(Mebibytes::new),
                mig_capable,
                device_filter: None,
            },
        )
        .prop_filter("no criterion", |criteria| *criteria != Criteria::default())
}

fn uuid(bits: u128) -> GpuUuid {
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    format!("GPU-{}", parts.join("-")).parse().unwrap()
}

fn pci(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

/// Ranges that do not overlap, in any order.
fn ranges() -> impl Strategy<Value = Vec<IndexRange>> {
    btree_set(any::<u32>(), 2..8)
        .prop_map(|ends| {
            let ends: Vec<u32> = ends.into_iter().collect();
            let range = |ends: &[u32]| IndexRange {
                first: ends[0],
                last: *ends.last().unwrap(),
            };
            ends.chunks(2).map(range).collect::<Vec<IndexRange>>()
        })
        .prop_shuffle()
}

fn some_indices() -> impl Strategy<Value = Vec<IndexRange>> {
    let one = |index| IndexRange {
        first: index,
        last: index,
    };
    btree_set(any::<u32>(), 1..6)
        .prop_map(move |all| all.into_iter().map(one).collect::<Vec<IndexRange>>())
        .prop_shuffle()
}

fn filters() -> impl Strategy<Value = Vec<DeviceFilter>> {
    let one = any::<(u16, u16, Option<(u16, u16)>)>();
    let one = one.prop_map(|(device, vendor, subsystem)| DeviceFilter {
        device,
        vendor,
        subsystem,
    });
    vec(one, 1..4)
}

fn wish() -> impl Strategy<Value = MigWish> {
    let attributes = prop::sample::select(vec!["", "+me", "+me.all", "+gfx", "-me", "+gfx,me"]);
    let profile = (1..=8u8, 1..=8u8, 1..400u16, attributes);
    let profile = profile.prop_map(|(one, other, memory, attributes)| {
        let (compute, gpu) = (one.min(other), one.max(other));
        format!("{compute}c.{gpu}g.{memory}gb{attributes}")
            .parse::<ProfileName>()
            .unwrap()
    });
    let counts = btree_map(profile, 1..=u32::MAX, 0..5).prop_map(|counts| {
        let count = |(profile, count)| ProfileCount {
            place: Place::default(),
            profile,
            count,
        };
        MigWish::Enabled(counts.into_iter().map(count).collect())
    });
    prop_oneof![Just(MigWish::Disabled), counts]
}

fn sharing() -> impl Strategy<Value = TimeSlicing> {
    let sharing = (2..=u32::MAX, any::<bool>(), any::<bool>());
    sharing.prop_map(|(replicas, rename, fail)| TimeSlicing {
        place: Place::default(),
        replicas,
        rename,
        fail_requests_greater_than_one: fail,
    })
}
