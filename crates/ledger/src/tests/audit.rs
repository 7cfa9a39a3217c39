//! Tests of the chain of audit entries.

use jiff::Timestamp;
use octavo_fleet::changes::ChangeKind;
use octavo_fleet::digest::sha256;
use proptest::prelude::*;

use crate::audit::{
    AuditEvent, AuditRecord, ChainError, ChainHead, ChainSummary, ChainVerifier, ChangeEvent,
    ChangeOutcome, ChangeVerb, NodeEvent, RefusalEvent, ZERO_HASH, export_line,
};

fn record(number: i64, object: &str) -> AuditRecord {
    AuditRecord {
        time: Timestamp::from_second(1_800_000_000 + number).unwrap(),
        source: number.to_string(),
        event: AuditEvent::Refusal(RefusalEvent {
            user: "ada".to_owned(),
            peer: "192.0.2.1".to_owned(),
            verb: "GET".to_owned(),
            object: object.to_owned(),
            reason: "not allowed".to_owned(),
            omitted: 0,
        }),
    }
}

/// Lines of a chain.
fn lines(objects: &[String]) -> Vec<String> {
    let mut head = ChainHead::default();
    let numbered = (1_i64..).zip(objects);
    let entries = numbered.map(|(number, object)| head.append(&record(number, object)).unwrap());
    entries.map(|entry| export_line(&entry.text, &entry.hash)).collect()
}

fn verify(lines: &[String], noted: Option<String>) -> Result<ChainSummary, ChainError> {
    let mut verifier = ChainVerifier::new(noted);
    for line in lines {
        verifier.verify_line(line)?;
    }
    verifier.finish()
}

/// Modification of an export by someone who can recalculate hashes.
#[derive(Debug, Clone)]
enum Tampering {
    Replace { line: usize, at: usize, with: char },
    Remove { line: usize },
    RemoveEnd { line: usize },
    Swap { line: usize, other: usize },
    Repeat { line: usize, at: usize },
    Forge { line: usize },
    ForgeRest { line: usize },
}

fn tampering() -> impl Strategy<Value = Tampering> {
    let line = || any::<prop::sample::Index>().prop_map(|index| index.index(1000));
    prop_oneof![
        (line(), line(), any::<char>()).prop_map(|(line, at, with)| Tampering::Replace {
            line,
            at,
            with
        }),
        line().prop_map(|line| Tampering::Remove { line }),
        line().prop_map(|line| Tampering::RemoveEnd { line }),
        (line(), line()).prop_map(|(line, other)| Tampering::Swap { line, other }),
        (line(), line()).prop_map(|(line, at)| Tampering::Repeat { line, at }),
        line().prop_map(|line| Tampering::Forge { line }),
        line().prop_map(|line| Tampering::ForgeRest { line }),
    ]
}

/// Links new entries to the entries before them, with correct hashes.
fn forge(lines: &mut [String], from: usize, until: usize) {
    let mut head = ChainHead::default();
    for (number, line) in (1_i64..).zip(lines.iter_mut().take(until)) {
        let at = usize::try_from(number).unwrap() - 1;
        let object = if at < from { format!("/{at}") } else { "/forged".to_owned() };
        let entry = head.append(&record(number, &object)).unwrap();
        if at >= from {
            *line = export_line(&entry.text, &entry.hash);
        }
    }
}

impl Tampering {
    fn apply(&self, lines: &mut Vec<String>) {
        let count = lines.len();
        match *self {
            Self::Replace { line, at, with } => {
                let line = &mut lines[line % count];
                let at = at % line.chars().count();
                *line =
                    line.chars().enumerate().map(|(n, c)| if n == at { with } else { c }).collect();
            }
            Self::Remove { line } => drop(lines.remove(line % count)),
            Self::RemoveEnd { line } => lines.truncate(line % count),
            Self::Swap { line, other } => lines.swap(line % count, other % count),
            Self::Repeat { line, at } => {
                lines.insert(at % (count + 1), lines[line % count].clone());
            }
            Self::Forge { line } => forge(lines, line % count, line % count + 1),
            Self::ForgeRest { line } => forge(lines, line % count, count),
        }
    }
}

proptest! {
    #[test]
    fn every_modification_of_a_chain_is_found(count in 2_usize..12, tampering in tampering()) {
        let objects: Vec<String> = (0..count).map(|number| format!("/{number}")).collect();
        let original = lines(&objects);
        let summary = verify(&original, None).unwrap();
        prop_assert_eq!(summary.entries, u64::try_from(count).unwrap());
        prop_assert_eq!((summary.first.0, summary.last.0), (1, i64::try_from(count).unwrap()));
        prop_assert_eq!(&verify(&original, Some(summary.hash.clone())).unwrap(), &summary);

        let mut tampered = original.clone();
        tampering.apply(&mut tampered);
        let found = verify(&tampered, Some(summary.hash.clone()));
        let is_same = tampered == original || found.as_ref() == Ok(&summary);
        prop_assert_eq!(is_same, tampered == original, "{:?}: {:?}", tampering, found);
        // Old entries are deleted, so a chain without its first entries is valid, and the summary shows it.
        if let Ok(found) = found {
            prop_assert!(tampered == original || found.first.0 > 1);
        }
    }
}

#[test]
fn entry_has_documented_format_and_hash() {
    let all = lines(&["/nodes".to_owned(), "/usage".to_owned()]);
    let text = format!(
        "{{\"seq\":1,\"time\":\"2027-01-15T08:00:01Z\",\"previous\":\"{ZERO_HASH}\",\"kind\":\"refusal\",\
         \"user\":\"ada\",\"peer\":\"192.0.2.1\",\"verb\":\"GET\",\"object\":\"/nodes\",\"reason\":\"not allowed\",\"omitted\":0}}"
    );
    let hash = sha256(&[ZERO_HASH, &text]);
    assert_eq!(all[0], export_line(&text, &hash));
    assert!(
        all[1].contains(&format!(
            "\"seq\":2,\"time\":\"2027-01-15T08:00:02Z\",\"previous\":\"{hash}\""
        ))
    );
}

/// The text of the first entry of a chain after the field `previous`.
fn fields(event: AuditEvent) -> String {
    let entry = ChainHead::default().append(&AuditRecord { event, ..record(1, "") }).unwrap();
    let (_, fields) = entry.text.split_once(&format!("{ZERO_HASH}\",")).unwrap();
    fields.to_owned()
}

#[test]
fn words_of_entries_have_the_documented_format() {
    let change = |outcome| {
        let event = ChangeEvent {
            user: "ada".to_owned(),
            verb: ChangeVerb::Replace,
            namespace: "team".to_owned(),
            object: "HardwareProfile team/large".to_owned(),
            outcome,
            before: String::new(),
            after: "{}".to_owned(),
            reason: String::new(),
        };
        fields(AuditEvent::Change(event))
    };
    let text = |outcome: &str| {
        format!(
            "\"kind\":\"change\",\"user\":\"ada\",\"verb\":\"replace\",\"namespace\":\"team\",\
             \"object\":\"HardwareProfile team/large\",\"outcome\":\"{outcome}\",\"before\":\"\",\"after\":\"{{}}\",\"reason\":\"\"}}"
        )
    };
    for (outcome, word) in [
        (ChangeOutcome::Started, "begun"),
        (ChangeOutcome::Succeeded, "done"),
        (ChangeOutcome::Unchanged, "unchanged"),
        (ChangeOutcome::DryRun, "dry-run"),
        (ChangeOutcome::DryRunFailed, "dry-run-not-done"),
        (ChangeOutcome::Failed, "not-done"),
        (ChangeOutcome::Unknown, "unknown"),
    ] {
        assert_eq!(change(outcome), text(word));
    }
    let node = NodeEvent {
        node: "gpu-1".to_owned(),
        property: ChangeKind::LayoutState,
        object: None,
        before: None,
        after: Some("applied".to_owned()),
        message: None,
    };
    let node = fields(AuditEvent::Node(node));
    let expected =
        "\"kind\":\"node\",\"node\":\"gpu-1\",\"property\":\"layout-state\",\"after\":\"applied\"}";
    assert_eq!(node, expected);
}

#[test]
fn error_names_the_reason() {
    let objects: Vec<String> = (0..4).map(|number| format!("/{number}")).collect();
    let original = lines(&objects);
    let broken = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = original.clone();
        change(&mut lines);
        verify(&lines, None).unwrap_err().to_string()
    };
    let changed = broken(&|lines| lines[1] = lines[1].replace("ada", "bob"));
    assert!(changed.contains("the SHA-256 of entry 2 is"), "{changed}");
    let removed = broken(&|lines| drop(lines.remove(1)));
    assert!(removed.contains("entry 2 is expected, but this is entry 3"), "{removed}");
    let replaced = broken(&|lines| forge(lines, 1, 2));
    assert!(replaced.contains("entry 3 names"), "{replaced}");
    let cut = verify(&original[..3], Some(verify(&original, None).unwrap().hash)).unwrap_err();
    assert!(cut.to_string().contains("entries were removed"), "{cut}");
    assert_eq!(verify(&[], None).unwrap_err(), ChainError::Empty);
}
