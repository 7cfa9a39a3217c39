//! Rows of intervals.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::PriceKey;
use octavo_ledger::{Activity, Container, Device, Holder, Interval, Method, Part, Utilization};
use sqlx::any::AnyRow;
use sqlx::{Error, Row};

/// Columns of intervals, as [`interval`] reads them, and the tables that contain them.
macro_rules! intervals {
    () => {
        "SELECT i.start_s, i.slot, i.end_s, i.state, i.activity, i.method, i.partition_uid, i.profile, i.ppm, i.inferred, \
                i.percent_s, i.measured_s, \
                d.id AS device_id, d.node, d.uid AS device_uid, d.type, d.instance_type, d.region, d.purchase_option, \
                h.id AS holder_id, h.namespace, h.pod, h.uid, h.container, h.claim, h.owner_kind, h.owner_name, h.team \
         FROM ledger_interval i \
         JOIN ledger_device d ON d.id = i.device \
         LEFT JOIN ledger_holder h ON h.id = i.holder "
    };
}

/// The written intervals with the latest end of each device, for the devices that were reported since a time.
pub(crate) const LAST_INTERVALS: &str = concat!(
    intervals!(),
    "JOIN (SELECT device, MAX(end_s) AS end_s FROM ledger_interval WHERE day >= $1 GROUP BY device) l \
       ON l.device = i.device AND l.end_s = i.end_s \
     WHERE i.day >= $1"
);

/// Intervals of a day ($1) after a device, start and slot ($2 to $4), in the order of the primary key; at most $5.
pub(crate) const INTERVALS_OF_DAY: &str = concat!(
    intervals!(),
    "WHERE i.day = $1 AND (i.device, i.start_s, i.slot) > ($2, $3, $4) ORDER BY i.device, i.start_s, i.slot LIMIT $5"
);

/// Values of the column `state`.
pub(crate) const ALLOCATED: i64 = 0;
pub(crate) const UNALLOCATED: i64 = 1;
pub(crate) const UNKNOWN: i64 = 2;

/// Ids of devices and holders in the database.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pub(crate) devices: BTreeMap<Arc<Device>, i64>,
    pub(crate) holders: BTreeMap<Arc<Container>, i64>,
}

/// Reads a row with the columns of intervals, and notes the ids in it.
pub(crate) fn interval(row: &AnyRow, ids: &mut Ids) -> Result<Interval, Error> {
    let device = device(row, "device_uid")?;
    let device = match ids.devices.get_key_value(&device) {
        Some((known, _)) => Arc::clone(known),
        None => Arc::new(device),
    };
    ids.devices.insert(Arc::clone(&device), row.try_get("device_id")?);
    let holder = match row.try_get::<i64, _>("state")? {
        ALLOCATED => {
            let container = container(row)?;
            let container = match ids.holders.get_key_value(&container) {
                Some((known, _)) => Arc::clone(known),
                None => Arc::new(container),
            };
            ids.holders.insert(Arc::clone(&container), row.try_get("holder_id")?);
            Holder::Container(container)
        }
        UNALLOCATED => Holder::Unallocated,
        _ => Holder::Unknown,
    };
    let part = Part {
        partition: row.try_get::<Option<String>, _>("partition_uid")?.map(Arc::from),
        profile: row.try_get::<Option<String>, _>("profile")?.map(Arc::from),
        method: word::<Method>(row, "method")?,
        holder,
        activity: word::<Activity>(row, "activity")?,
        ppm: number(row, "ppm")?,
    };
    Ok(Interval {
        device,
        start: row.try_get("start_s")?,
        end: row.try_get("end_s")?,
        slot: number(row, "slot")?,
        part,
        inferred: row.try_get::<i64, _>("inferred")? != 0,
        utilization: Utilization {
            percent_seconds: row.try_get("percent_s")?,
            seconds: row.try_get("measured_s")?,
        },
    })
}

/// Reads a device; the column of its own id is given, because holders have one of the same name.
pub(crate) fn device(row: &AnyRow, uid: &str) -> Result<Device, Error> {
    let node: String = row.try_get("node")?;
    Ok(Device {
        node: node.parse().map_err(decode("node"))?,
        id: row.try_get(uid)?,
        price_key: price_key(row)?,
    })
}

/// Reads the columns that decide the price of a device.
pub(crate) fn price_key(row: &AnyRow) -> Result<Option<PriceKey>, Error> {
    let Some(type_name) = optional_word(row, "type")? else { return Ok(None) };
    Ok(Some(PriceKey {
        type_name,
        option: optional_word(row, "purchase_option")?.unwrap_or_default(),
        instance_type: row.try_get("instance_type")?,
        region: row.try_get("region")?,
    }))
}

/// Reads the columns of a container.
pub(crate) fn container(row: &AnyRow) -> Result<Container, Error> {
    let kind: Option<String> = row.try_get("owner_kind")?;
    let name: Option<String> = row.try_get("owner_name")?;
    Ok(Container {
        namespace: row.try_get("namespace")?,
        pod: row.try_get("pod")?,
        uid: row.try_get("uid")?,
        container: row.try_get("container")?,
        claim: row.try_get("claim")?,
        owner: kind.zip(name).map(|(kind, name)| PodOwner { kind, name }),
        team: row.try_get("team")?,
    })
}

/// Reads a column with a word.
pub(crate) fn word<T: std::str::FromStr>(row: &AnyRow, column: &'static str) -> Result<T, Error>
where
    T::Err: ToString,
{
    row.try_get::<String, _>(column)?.parse().map_err(decode(column))
}

/// Reads a column with a word that can be absent.
fn optional_word<T: std::str::FromStr>(
    row: &AnyRow,
    column: &'static str,
) -> Result<Option<T>, Error>
where
    T::Err: ToString,
{
    let text: Option<String> = row.try_get(column)?;
    text.map(|text| text.parse()).transpose().map_err(decode(column))
}

/// Reads a column with a small number.
pub(crate) fn number<T: TryFrom<i64>>(row: &AnyRow, column: &'static str) -> Result<T, Error>
where
    T::Error: ToString,
{
    T::try_from(row.try_get::<i64, _>(column)?).map_err(decode(column))
}

fn decode<E: ToString>(column: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::ColumnDecode { index: column.to_owned(), source: error.to_string().into() }
}
