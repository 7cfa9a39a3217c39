//! Any layout is read again as written.

use octavo_model::id::{GpuUuid, PciAddress, TypeName};
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    Criteria, DeviceFilter, Dialect, IndexRange, Layout, Layouts, MigSpec, ProfileCount,
    ResourceRename, Rule, Selector, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef,
    UnitSelector,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::checks;

proptest! {
    #[test]
    fn layouts_in_octavo_dialect_round_trip(layouts in ours()) {
        checks::again(&layouts);
    }

    #[test]
    fn layouts_in_mig_parted_dialect_round_trip(layouts in theirs()) {
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

/// Names may be any text in this dialect.
fn theirs() -> impl Strategy<Value = Layouts> {
    let rule = (option::of(some_indices()), option::of(filters()), spec());
    let rule = rule.prop_map(|(index, device_filter, mig)| Rule {
        position: SourcePosition::default(),
        devices: if index.is_none() && device_filter.is_none() {
            Selector::All
        } else {
            Selector::Matching(Criteria { index, device_filter, ..Criteria::default() })
        },
        mig: Some(mig),
        time_slicing: None,
        claims: false,
    });
    file(Dialect::MigParted, ".{0,40}", vec(rule, 1..4))
}

fn file(
    dialect: Dialect,
    names: &'static str,
    rules: impl Strategy<Value = Vec<Rule>>,
) -> impl Strategy<Value = Layouts> {
    btree_map(names, rules, 1..4).prop_map(move |named| {
        let layout = |(name, rules)| Layout { name, position: SourcePosition::default(), rules };
        Layouts { dialect, layouts: named.into_iter().map(layout).collect() }
    })
}

/// A rule requests partitions, sharing or both, or leaves the partitions to claims.
fn rule(devices: impl Strategy<Value = Selector>) -> impl Strategy<Value = Rule> {
    let empty = Just(Some(MigSpec::Enabled(Vec::new())));
    let whole = prop_oneof![Just(None), Just(Some(MigSpec::Disabled)), empty];
    let requested = prop_oneof![
        spec().prop_map(|mig| (Some(mig), None, false)),
        sharing().prop_map(|sharing| (None, Some(sharing), false)),
        (spec(), sharing()).prop_map(|(mig, sharing)| (Some(mig), Some(sharing), false)),
        whole.prop_map(|mig| (mig, None, true)),
    ];
    (devices, requested).prop_map(|(devices, (mig, time_slicing, claims))| Rule {
        position: SourcePosition::default(),
        devices,
        mig,
        time_slicing,
        claims,
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
        .prop_map(|(index, uuid, pci, type_name, memory, mig_capable)| Criteria {
            index,
            uuid: uuid.map(|all| all.into_iter().collect()),
            pci: pci.map(|all| all.into_iter().collect()),
            type_name: type_name.map(|all| all.into_iter().collect()),
            memory_at_least: memory.map(Mebibytes::new),
            mig_capable,
            device_filter: None,
        })
        .prop_filter("no criterion", |criteria| *criteria != Criteria::default())
}

fn uuid(bits: u128) -> GpuUuid {
    let hex = format!("{bits:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
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
            let range = |ends: &[u32]| IndexRange { first: ends[0], last: *ends.last().unwrap() };
            ends.chunks(2).map(range).collect::<Vec<IndexRange>>()
        })
        .prop_shuffle()
}

fn some_indices() -> impl Strategy<Value = Vec<IndexRange>> {
    let one = |index| IndexRange { first: index, last: index };
    btree_set(any::<u32>(), 1..6)
        .prop_map(move |all| all.into_iter().map(one).collect::<Vec<IndexRange>>())
        .prop_shuffle()
}

fn filters() -> impl Strategy<Value = Vec<DeviceFilter>> {
    let one = any::<(u16, u16, Option<(u16, u16)>)>();
    let one =
        one.prop_map(|(device, vendor, subsystem)| DeviceFilter { device, vendor, subsystem });
    vec(one, 1..4)
}

fn profile() -> impl Strategy<Value = ProfileName> {
    let attributes = prop::sample::select(vec!["", "+me", "+me.all", "+gfx", "-me", "+gfx,me"]);
    let profile = (1..=8u8, 1..=8u8, 1..400u16, attributes);
    profile.prop_map(|(one, other, memory, attributes)| {
        let (compute, gpu) = (one.min(other), one.max(other));
        format!("{compute}c.{gpu}g.{memory}gb{attributes}").parse::<ProfileName>().unwrap()
    })
}

fn spec() -> impl Strategy<Value = MigSpec> {
    let counts = btree_map(profile(), 1..=u32::MAX, 0..5).prop_map(|counts| {
        let count =
            |(profile, count)| ProfileCount { position: SourcePosition::default(), profile, count };
        MigSpec::Enabled(counts.into_iter().map(count).collect())
    });
    prop_oneof![Just(MigSpec::Disabled), counts]
}

pub(crate) fn sharing() -> impl Strategy<Value = TimeSlicing> {
    let everything = option::of(share(Just(ShareTarget::AllUnits)));
    let profiles = btree_map(profile(), share(Just(ShareTarget::AllUnits)), 0..3);
    let resources = vec(share(resource()), 0..3);
    let slice = option::of(prop::sample::select(&TimeSlice::ALL[..]));
    let all = (everything, profiles, resources, slice);
    all.prop_map(|(everything, profiles, resources, slice)| {
        let profiles = profiles
            .into_iter()
            .map(|(profile, share)| Share { of: ShareTarget::Profile(profile), ..share });
        let mut shares: Vec<Share> = everything.into_iter().chain(profiles).collect();
        for share in resources {
            if shares.iter().all(|other| other.of != share.of) {
                shares.push(share);
            }
        }
        TimeSlicing {
            position: SourcePosition::default(),
            slice: slice.filter(|_| !shares.is_empty()),
            shares,
        }
    })
}

fn share(of: impl Strategy<Value = ShareTarget>) -> impl Strategy<Value = Share> {
    let rename = prop_oneof![
        Just(ResourceRename::No),
        Just(ResourceRename::Shared),
        "[a-z][a-z0-9]{0,20}".prop_map(|name| ResourceRename::To(resource_name(&name))),
    ];
    let memory = option::of(1_u64..1 << 30);
    let replicas = Share::MIN_REPLICAS..=Share::MAX_REPLICAS;
    let all = (of, replicas, rename, any::<bool>(), memory);
    all.prop_map(|(of, replicas, rename, fail, memory)| Share {
        position: SourcePosition::default(),
        of,
        replicas,
        rename,
        fail_requests_greater_than_one: fail,
        memory_per_replica: memory.map(Mebibytes::new),
    })
}

fn resource() -> impl Strategy<Value = ShareTarget> {
    let item = prop_oneof![
        any::<u32>().prop_map(UnitRef::Index),
        (any::<u32>(), any::<u32>()).prop_map(|(gpu, part)| UnitRef::Partition(gpu, part)),
        any::<u128>().prop_map(|bits| UnitRef::Gpu(uuid(bits))),
        any::<u128>().prop_map(|bits| {
            let mig = uuid(bits).as_str().replace("GPU-", "MIG-");
            UnitRef::Mig(mig.parse().unwrap())
        }),
    ];
    let which = prop_oneof![
        Just(UnitSelector::All),
        (1..=u32::MAX).prop_map(UnitSelector::First),
        btree_set(item, 1..4).prop_map(|items| UnitSelector::Listed(items.into_iter().collect())),
    ];
    let name = "(gpu|mig-1g\\.10gb|[a-z][a-z0-9-]{0,20}[a-z0-9])";
    (name, which)
        .prop_map(|(name, which)| ShareTarget::Resource { name: resource_name(&name), which })
}

fn resource_name(short: &str) -> ResourceName {
    format!("nvidia.com/{short}").parse().unwrap()
}
