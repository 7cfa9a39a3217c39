//! Files are read back with the reader of the `parquet` crate.

use std::fs::File;
use std::sync::Arc;

use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{Activity, Device, Holder, Method, PPM, Part, Utilization};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// Start of a day, in seconds since 1970.
const START: i64 = 1_799_971_200;

fn device() -> impl Strategy<Value = Arc<Device>> {
    let key = (any::<bool>(), option::of(".{0,9}"), option::of("[a-z]{1,9}"));
    ("[a-z]{1,9}", "[ -~]{1,20}", option::of(key)).prop_map(|(node, id, key)| {
        let key = key.map(|(is_spot, instance_type, region)| PriceKey {
            type_name: "nvidia-h100-80gb".parse().unwrap(),
            option: if is_spot { PurchaseOption::Spot } else { PurchaseOption::OnDemand },
            instance_type,
            region,
        });
        Arc::new(Device { node: node.parse().unwrap(), id, price_key: key })
    })
}

fn container() -> impl Strategy<Value = Holder> {
    let owner = option::of(("[A-Z][a-z]{2,9}", ".{0,9}"));
    let optional = (option::of(".{0,9}"), owner, option::of(".{0,9}"));
    ("[a-z]{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", optional).prop_map(
        |(namespace, pod, uid, container, (claim, owner, team))| {
            let owner = owner.map(|(kind, name)| PodOwner { kind, name });
            let held = Container { namespace, pod, uid, container, claim, owner, team };
            Holder::Container(Arc::new(held))
        },
    )
}

fn part() -> impl Strategy<Value = Part> {
    let holder = prop_oneof![container(), Just(Holder::Unallocated), Just(Holder::Unknown)];
    let activity =
        prop_oneof![Just(Activity::Active), Just(Activity::Idle), Just(Activity::Unknown)];
    let method = prop_oneof![Just(Method::WholeDevice), Just(Method::MigMemorySlices)];
    (holder, activity, method, option::of("MIG-[0-9]{1,4}"), option::of("[1-7]g"), 0..=PPM)
        .prop_map(|(holder, activity, method, partition, profile, ppm)| Part {
            partition: partition.map(Arc::from),
            profile: profile.map(Arc::from),
            method,
            holder,
            activity,
            ppm,
        })
}

fn interval() -> impl Strategy<Value = Interval> {
    let times = (0..86_400_i64, 0..86_400_i64);
    (device(), part(), times, any::<bool>(), (0..8_640_000_i64, 0..86_400_i64)).prop_map(
        |(device, part, (one, two), inferred, (percent_seconds, seconds))| Interval {
            device,
            start: START + one.min(two),
            end: START + one.max(two),
            slot: 0,
            part,
            inferred,
            utilization: Utilization { percent_seconds, seconds },
        },
    )
}

fn file(batches: Vec<Vec<Interval>>) -> File {
    let mut writer = UsageFileWriter::new(tempfile::tempfile().unwrap()).unwrap();
    for batch in batches {
        writer.add(batch).unwrap();
    }
    writer.finish().unwrap().try_clone().unwrap()
}

fn text(value: Option<&str>) -> Field {
    match value {
        Some(value) if !value.is_empty() => Field::Str(value.to_owned()),
        _ => Field::Null,
    }
}

/// The values of a row, without decimals, whose text is compared.
fn values(row: &Row) -> Vec<Field> {
    let plain = |field: &Field| {
        let is_decimal = matches!(field, Field::Decimal(_));
        if is_decimal { Field::Str(field.to_string()) } else { field.clone() }
    };
    row.get_column_iter().map(|(_, field)| plain(field)).collect()
}

/// The values of an interval, independent of the columns of the writer.
fn expected(one: &Interval) -> Vec<Field> {
    let holder = super::container(one);
    let key = one.device.price_key.as_ref();
    let owner = holder.and_then(|holder| holder.owner.as_ref());
    let (state, is_idle) = (&one.part.holder, one.part.activity == Activity::Idle);
    let state = match state {
        Holder::Container(_) if is_idle => "idle",
        Holder::Container(_) => "used",
        Holder::Unallocated => "unallocated",
        Holder::Unknown => "unknown",
    };
    let whole = i64::from(one.part.ppm) * (one.end - one.start);
    let decimal = |ppm: i64| Field::Str(format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000));
    vec![
        text(Some(one.device.node.as_str())),
        text(Some(&one.device.id)),
        text(key.map(|key| key.type_name.as_str())),
        text(key.and_then(|key| key.instance_type.as_deref())),
        text(key.and_then(|key| key.region.as_deref())),
        text(key.map(|key| match key.option {
            PurchaseOption::Spot => "spot",
            PurchaseOption::OnDemand => "on-demand",
            PurchaseOption::Reserved => "reserved",
        })),
        text(holder.map(|holder| holder.namespace.as_str())),
        text(holder.map(|holder| holder.pod.as_str())),
        text(holder.map(|holder| holder.uid.as_str())),
        text(holder.map(|holder| holder.container.as_str())),
        text(holder.and_then(|holder| holder.claim.as_deref())),
        text(owner.map(|owner| owner.kind.as_str())),
        text(owner.map(|owner| owner.name.as_str())),
        text(holder.and_then(|holder| holder.team.as_deref())),
        text(Some(state)),
        text(Some(if one.part.method == Method::WholeDevice {
            "whole-device/v1"
        } else {
            "mig-memory-slices/v1"
        })),
        text(one.part.profile.as_deref()),
        text(one.part.partition.as_deref()),
        Field::TimestampMicros(one.start * 1_000_000),
        Field::TimestampMicros(one.end * 1_000_000),
        decimal(one.part.ppm.into()),
        decimal(whole),
        Field::Bool(one.inferred),
        Field::Long(one.utilization.percent_seconds),
        Field::Long(one.utilization.seconds),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn file_has_the_intervals_and_their_sum(batches in vec(vec(interval(), 0..20), 0..4)) {
        let all: Vec<Interval> = batches.concat();
        let sum = all.iter().map(|one| i64::from(one.part.ppm) * (one.end - one.start)).sum();
        let file = file(batches);
        prop_assert_eq!(exported_ppm_seconds(&file), Some(sum));
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| values(&row.unwrap())).collect();
        prop_assert_eq!(rows, all.iter().map(expected).collect::<Vec<_>>());
    }
}

fn whole(number: i64) -> Interval {
    let device = Device { node: "gpu-1".parse().unwrap(), id: "GPU-1".to_owned(), price_key: None };
    Interval {
        device: Arc::new(device),
        start: START + number,
        end: START + number + 1,
        slot: 0,
        part: Part::whole(Holder::Unallocated),
        inferred: false,
        utilization: Utilization::default(),
    }
}

#[test]
fn many_intervals_are_in_several_row_groups() {
    let batches: Vec<Vec<Interval>> = (0..3)
        .map(|batch| (0..40_000).map(|number| whole(batch * 40_000 + number)).collect())
        .collect();
    let reader = SerializedFileReader::new(file(batches)).unwrap();
    let groups: Vec<i64> =
        reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
    assert_eq!(groups, [80_000, 40_000]);
}

#[test]
fn file_without_its_end_has_no_sum() {
    let complete = file(vec![vec![whole(0)]]);
    let length = complete.metadata().unwrap().len();
    assert_eq!(exported_ppm_seconds(&complete), Some(1_000_000));
    for missing in [1, 8, length] {
        complete.set_len(length - missing).unwrap();
        assert_eq!(exported_ppm_seconds(&complete), None);
    }
}

#[test]
fn full_disk_is_the_error_of_the_operating_system() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut writer = UsageFileWriter::new(full).unwrap();
    writer.add(vec![whole(0)]).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut writer = UsageFileWriter::new(full).unwrap();
    let error = writer.add((0..50_000).map(whole).collect()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
