//! The journal's file format: a header line with the length and hash of the body, followed by the body in JSON.
//!
//! ```text
//! octavo-journal 1 214 9c1f0e63a1b2c3d4
//! {"plan":"...","layout":"...","devices":[...]}
//! ```
//!
//! An incomplete, overwritten or damaged file, or one written by a later version, is detected and reported as such.

use octavo_model::digest::Digest;
use octavo_planner::reconcile::ApplyRecord;
use thiserror::Error;

const MAGIC: &str = "octavo-journal";
const VERSION: u32 = 1;

/// Error while parsing a journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The first line is not a journal header.
    #[error("it does not start with the header of a journal")]
    BadHeader,
    /// The file was written by a later version.
    #[error("it has version {0}, but this program supports version {VERSION}")]
    Version(u32),
    /// The length of the body differs from the header.
    #[error(
        "it has {found} bytes after its first line instead of {wanted}: it is incomplete or corrupted"
    )]
    LengthMismatch {
        /// Expected length in bytes.
        wanted: usize,
        /// Actual length in bytes.
        found: usize,
    },
    /// The hash of the body differs from the header.
    #[error("its content is corrupted: the hash differs")]
    HashMismatch,
    /// The body is intact but cannot be parsed.
    #[error("cannot read its content")]
    MalformedContent(#[source] serde_json::Error),
}

/// Serializes a journal. An entry contains its plan and its layout only if they differ from those of the record.
pub fn write(record: &ApplyRecord) -> String {
    let mut record = record.clone();
    for entry in &mut record.devices {
        if entry.plan == record.plan {
            entry.plan.clear();
        }
        if entry.layout == record.layout {
            entry.layout.clear();
        }
    }
    // Serialization cannot fail: the type contains only numbers, strings and lists.
    let body = serde_json::to_string(&record).unwrap_or_default();
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
    let mut record: ApplyRecord =
        serde_json::from_slice(body).map_err(JournalError::MalformedContent)?;
    for entry in &mut record.devices {
        if entry.plan.is_empty() {
            entry.plan.clone_from(&record.plan);
        }
        if entry.layout.is_empty() {
            entry.layout.clone_from(&record.layout);
        }
    }
    Ok(record)
}

fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, JournalError> {
    text.parse().map_err(|_| JournalError::BadHeader)
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::Placement;
    use octavo_planner::layout::{InstanceTarget, MigTarget};
    use octavo_planner::reconcile::ApplyRecordEntry;

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
    fn journal_of_earlier_version_round_trips() {
        let text = include_str!("journal/recorded.journal");
        assert_eq!(parse(text.as_bytes()).unwrap(), record());
        assert_eq!(write(&record()), text);
    }

    #[test]
    fn journal_of_earlier_version_has_one_plan_for_all_its_devices() {
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
        assert!(matches!(parse(&longer), Err(JournalError::LengthMismatch { .. })));
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
        assert_eq!(error.to_string(), "it has version 7, but this program supports version 1");
    }

    #[test]
    fn i12_intact_file_with_invalid_content_is_rejected() {
        for body in [
            "",
            "[]",
            "{\"plan\":1}",
            r#"{"plan":"","layout":"","devices":[{"pci":"x","target":"disabled"}]}"#,
            r#"{"plan":"","layout":"","devices":[],"more":1}"#,
            r#"{"plan":"","layout":"","devices":[{"pci":"0000:07:00.0","target":"disabled","more":1}]}"#,
            r#"{"plan":"","layout":"","devices":[{"pci":"0000:07:00.0","target":{"enabled":[{"profile":9,"compute":[],"more":1}]}}]}"#,
            r#"{"plan":"","layout":"","devices":[{"pci":"0000:07:00.0","target":{"enabled":[{"profile":9,"compute":[],"start":1,"size":"x"}]}}]}"#,
            r#"{"plan":"","layout":"","devices":[{"pci":"0000:07:00.0","target":{"enabled":[{"profile":9,"compute":[],"start":1,"size":4294967296}]}}]}"#,
            r#"{"plan":"","layout":"","devices":[{"pci":"0000:07:00.0","target":{"enabled":[{"profile":9,"compute":[],"start":-1,"size":1}]}}]}"#,
        ] {
            let hash = Digest::from_bytes(body.as_bytes());
            let text = format!("{MAGIC} {VERSION} {} {hash:016x}\n{body}", body.len());
            assert!(
                matches!(parse(text.as_bytes()), Err(JournalError::MalformedContent(_))),
                "{body}"
            );
        }
    }
}
