//! The journal's file format: a header line with the length and hash of the body, followed by the body in JSON.
//!
//! ```text
//! octavo-journal 1 214 9c1f0e63a1b2c3d4
//! {"plan":"...","layout":"...","devices":[...]}
//! ```
//!
//! An incomplete, overwritten or damaged file, or one written by a later version, is detected and reported as such.

use octavo_model::catalog::Placement;
use octavo_model::digest::Digest;
use octavo_planner::layout::{InstanceTarget, MigTarget};
use octavo_planner::reconcile::{ApplyRecord, ApplyRecordEntry};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAGIC: &str = "octavo-journal";
const VERSION: u32 = 1;

/// Error while parsing a journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The first line is not a journal header.
    #[error("it does not begin as a journal does")]
    BadHeader,
    /// The file was written by a later version.
    #[error("it is of version {0}, and this program knows version {VERSION}")]
    Version(u32),
    /// The length of the body differs from the header.
    #[error("it has {found} bytes after its first line instead of {wanted}: it was torn or cut")]
    LengthMismatch {
        /// Expected length in bytes.
        wanted: usize,
        /// Actual length in bytes.
        found: usize,
    },
    /// The hash of the body differs from the header.
    #[error("its content is not what was written: the hash differs")]
    HashMismatch,
    /// The body is intact but cannot be parsed.
    #[error("cannot read its content")]
    MalformedContent(#[source] serde_json::Error),
    /// A value is invalid.
    #[error("its content has an impossible value: {0}")]
    InvalidValue(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordJson {
    plan: String,
    layout: String,
    devices: Vec<EntryJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryJson {
    pci: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// Absent if it is the same as in the record, as in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    /// Absent if it is the same as in the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<TargetJson>,
    target: TargetJson,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum TargetJson {
    Disabled,
    Enabled(Vec<InstanceJson>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceJson {
    profile: u32,
    compute: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
}

/// Serializes a journal.
pub fn write(record: &ApplyRecord) -> String {
    let body = RecordJson {
        plan: record.plan.clone(),
        layout: record.layout.clone(),
        devices: record
            .devices
            .iter()
            .map(|entry| write_entry(record, entry))
            .collect(),
    };
    // Serialization cannot fail: the type contains only numbers, strings and lists.
    let body = serde_json::to_string(&body).unwrap_or_default();
    let hash = Digest::from_bytes(body.as_bytes());
    format!("{MAGIC} {VERSION} {} {hash:016x}\n{body}", body.len())
}

/// Parses a journal.
pub fn parse(bytes: &[u8]) -> Result<ApplyRecord, JournalError> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (head, rest) = bytes.split_at(end.ok_or(JournalError::BadHeader)?);
    let body = rest.get(1..).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| JournalError::BadHeader)?;
    let mut words = head.split(' ');
    let mut word = || words.next().ok_or(JournalError::BadHeader);
    if word()? != MAGIC {
        return Err(JournalError::BadHeader);
    }
    let version: u32 = parse_number(word()?)?;
    if version != VERSION {
        return Err(JournalError::Version(version));
    }
    let wanted: usize = parse_number(word()?)?;
    let hash = word()?;
    if body.len() != wanted {
        let found = body.len();
        return Err(JournalError::LengthMismatch { wanted, found });
    }
    if format!("{:016x}", Digest::from_bytes(body)) != hash {
        return Err(JournalError::HashMismatch);
    }
    let body: RecordJson = serde_json::from_slice(body).map_err(JournalError::MalformedContent)?;
    let (plan, layout) = (&body.plan, &body.layout);
    let devices: Result<Vec<ApplyRecordEntry>, JournalError> = body
        .devices
        .into_iter()
        .map(|entry| read_entry(entry, (plan, layout)))
        .collect();
    let devices = devices?;
    Ok(ApplyRecord {
        plan: body.plan,
        layout: body.layout,
        devices,
    })
}

fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, JournalError> {
    text.parse().map_err(|_| JournalError::BadHeader)
}

fn write_entry(record: &ApplyRecord, entry: &ApplyRecordEntry) -> EntryJson {
    let other = |own: &str, common: &str| (own != common).then(|| own.to_owned());
    EntryJson {
        pci: entry.pci.to_string(),
        uuid: entry.uuid.as_ref().map(ToString::to_string),
        plan: other(&entry.plan, &record.plan),
        layout: other(&entry.layout, &record.layout),
        previous: entry.previous.as_ref().map(write_target),
        target: write_target(&entry.target),
    }
}

fn write_target(target: &MigTarget) -> TargetJson {
    match target {
        MigTarget::Disabled => TargetJson::Disabled,
        MigTarget::Enabled(instances) => {
            let all = instances.iter().map(|instance| InstanceJson {
                profile: instance.profile_id,
                compute: instance.compute.clone(),
                start: instance.placement.map(|place| place.start),
                size: instance.placement.map(|place| place.size),
            });
            TargetJson::Enabled(all.collect())
        }
    }
}

fn read_entry(
    entry: EntryJson,
    (plan, layout): (&str, &str),
) -> Result<ApplyRecordEntry, JournalError> {
    let value = |what: &str| JournalError::InvalidValue(what.to_owned());
    let uuid = entry
        .uuid
        .map(|uuid| uuid.parse().map_err(|_| value(&uuid)));
    Ok(ApplyRecordEntry {
        pci: entry.pci.parse().map_err(|_| value(&entry.pci))?,
        uuid: uuid.transpose()?,
        plan: entry.plan.unwrap_or_else(|| plan.to_owned()),
        layout: entry.layout.unwrap_or_else(|| layout.to_owned()),
        previous: entry.previous.map(read_target),
        target: read_target(entry.target),
    })
}

fn read_target(target: TargetJson) -> MigTarget {
    match target {
        TargetJson::Disabled => MigTarget::Disabled,
        TargetJson::Enabled(instances) => {
            let all = instances.into_iter().map(|instance| InstanceTarget {
                profile_id: instance.profile,
                compute: instance.compute,
                placement: instance
                    .start
                    .zip(instance.size)
                    .map(|(start, size)| Placement { start, size }),
            });
            MigTarget::Enabled(all.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ApplyRecord {
        let instance = |start| InstanceTarget {
            profile_id: 9,
            compute: vec![2, 1],
            placement: Some(Placement { start, size: 4 }),
        };
        ApplyRecord {
            plan: "20261121T120000Z-1".to_owned(),
            layout: "serving".to_owned(),
            devices: vec![
                ApplyRecordEntry {
                    pci: "0000:07:00.0".parse().unwrap(),
                    uuid: "GPU-3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24".parse().ok(),
                    plan: "20261121T120000Z-1".to_owned(),
                    layout: "serving".to_owned(),
                    previous: Some(MigTarget::Enabled(vec![instance(0), instance(4)])),
                    target: MigTarget::Disabled,
                },
                ApplyRecordEntry {
                    pci: "0000:08:00.0".parse().unwrap(),
                    uuid: None,
                    plan: "20261121T110000Z-1".to_owned(),
                    layout: "training".to_owned(),
                    previous: None,
                    target: MigTarget::Enabled(vec![InstanceTarget {
                        placement: None,
                        ..instance(0)
                    }]),
                },
            ],
        }
    }

    #[test]
    fn journal_round_trips() {
        let text = write(&record());
        assert_eq!(parse(text.as_bytes()).unwrap(), record());
        assert!(record().devices[0].uuid.is_some());
    }

    #[test]
    fn a_journal_of_an_earlier_version_has_one_plan_for_all_its_devices() {
        let body =
            r#"{"plan":"p","layout":"l","devices":[{"pci":"0000:07:00.0","target":"disabled"}]}"#;
        let hash = Digest::from_bytes(body.as_bytes());
        let text = format!("{MAGIC} {VERSION} {} {hash:016x}\n{body}", body.len());
        let record = parse(text.as_bytes()).unwrap();
        let entry = &record.devices[0];
        assert_eq!((entry.plan.as_str(), entry.layout.as_str()), ("p", "l"));
        assert_eq!(write(&record), text);
    }

    #[test]
    fn i3_truncated_or_modified_journal_is_detected() {
        let text = write(&record());
        let bytes = text.as_bytes();
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).is_err(), "{end}");
        }
        let mut longer = bytes.to_vec();
        longer.push(b' ');
        assert!(matches!(
            parse(&longer),
            Err(JournalError::LengthMismatch { .. })
        ));
        for at in 0..bytes.len() {
            for bit in [1, 0x20, 0x80] {
                let mut other = bytes.to_vec();
                other[at] ^= bit;
                // A hash in upper case is the same number but a different text.
                assert!(parse(&other).is_err(), "byte {at} with bit {bit:#x}");
            }
        }
    }

    #[test]
    fn later_version_is_reported_with_its_number() {
        let text = write(&record()).replacen("journal 1", "journal 7", 1);
        let error = parse(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is of version 7, and this program knows version 1"
        );
    }

    #[test]
    fn i12_intact_file_with_invalid_content_is_rejected() {
        for body in [
            "",
            "[]",
            "{\"plan\":1}",
            "{\"plan\":\"\",\"layout\":\"\",\"devices\":[{\"pci\":\"x\",\"target\":\"disabled\"}]}",
        ] {
            let hash = Digest::from_bytes(body.as_bytes());
            let text = format!("{MAGIC} {VERSION} {} {hash:016x}\n{body}", body.len());
            assert!(
                matches!(
                    parse(text.as_bytes()),
                    Err(JournalError::MalformedContent(_) | JournalError::InvalidValue(_))
                ),
                "{body}"
            );
        }
    }
}
