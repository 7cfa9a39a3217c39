//! Tests of the audit.

use octavo_ledger::audit::{
    AuditEvent, AuditQuery, AuditRecord, ChainHead, ChainSummary, ChainVerifier, RefusalEvent,
};

use super::*;

/// All lines of an export, with a small part of the chain at a time.
async fn export(database: &Database, query: &AuditQuery) -> Vec<String> {
    let mut lines = Vec::new();
    let Some((mut first, last)) = database.audit_range(query).await.unwrap() else { return lines };
    loop {
        let page = database.audit_page(query, (first, last)).await.unwrap();
        lines.extend(page.lines.lines().map(str::to_owned));
        let Some(next) = page.next else { return lines };
        first = next;
    }
}

async fn verified(database: &Database) -> ChainSummary {
    let mut verifier = ChainVerifier::default();
    for line in export(database, &AuditQuery::default()).await {
        verifier.verify_line(&line).unwrap();
    }
    verifier.finish().unwrap()
}

fn refusals(from: i64, count: i64) -> Vec<AuditRecord> {
    let record = |number: i64| AuditRecord {
        time: Timestamp::from_second(START + number).unwrap(),
        source: format!("event/{number}"),
        event: AuditEvent::Refusal(RefusalEvent {
            user: "ada".to_owned(),
            peer: "192.0.2.1".to_owned(),
            verb: "GET".to_owned(),
            object: "/api/v1/nodes\0".to_owned(),
            reason: "no permission".to_owned(),
            omitted: 0,
        }),
    };
    (from..from + count).map(record).collect()
}

fn of_namespace(namespace: &str) -> AuditQuery {
    AuditQuery { namespace: Some(namespace.to_owned()), ..AuditQuery::default() }
}

#[test]
fn repeated_append_changes_nothing_and_restarted_writer_continues_the_chain() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        assert_eq!(writer.database().audit_head().await.unwrap(), ChainHead::default());
        let end = writer.append(&refusals(0, 3)).await.unwrap();
        assert_eq!(end.seq, 3);
        // The confirmation of the first append was lost, and two more events were added.
        let end = writer.append(&refusals(0, 5)).await.unwrap();
        assert_eq!(end.seq, 5);
        let (mut restarted, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        assert_eq!(restarted.append(&refusals(4, 1000)).await.unwrap().seq, 1004);
        let error = writer.append(&refusals(2000, 1)).await.unwrap_err();
        assert!(error.to_string().contains("another program writes"), "{error}");
        let summary = verified(restarted.database()).await;
        assert_eq!((summary.entries, summary.first.0, summary.last.0), (1004, 1, 1004));
        assert_eq!(summary.hash, restarted.database().audit_head().await.unwrap().hash);
    });
}

#[test]
fn usage_is_appended_when_a_day_is_closed_and_only_changes_are_corrected() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut writer).await;
        let now = Timestamp::from_second(START + 3 * DAY + 60).unwrap();
        writer.close_days(now).await.unwrap();
        writer.close_days(now).await.unwrap();
        let all = export(writer.database(), &of_namespace("team-0")).await;
        assert_eq!(all.len(), 3, "{all:#?}");
        for part in [
            "\"kind\":\"usage\",\"namespace\":\"team-0\",\"pod\":\"pod-2\",\"uid\":\"uid-2\",\"container\":\"main\"",
            "\"workload\":\"Job/train\",\"node\":\"node-0\",\"device\":\"GPU-0\",\"type\":\"nvidia-h100-80gb\"",
            "\"partition\":\"MIG-1\",\"profile\":\"1g.10gb\"",
            "\"from\":\"2027-01-15T00:00:00Z\",\"until\":\"2027-01-16T00:00:00Z\",\"seconds\":86400,\"inferredSeconds\":0",
            "\"state\":\"used\",\"corrected\":false",
        ] {
            assert!(all[0].contains(part), "{part} in {}", all[0]);
        }

        // A late report of another device changes the first day.
        let mut recorder = Recorder::default();
        let node = device(1).node;
        for at in [START, START + 60] {
            recorder.observe(&node, at, 60, vec![state(1, &[1, 2])]);
        }
        writer.write(&recorder.take_changed()).await.unwrap();
        writer.close_days(now).await.unwrap();
        let all = export(writer.database(), &AuditQuery::default()).await;
        assert_eq!(all.len(), 5, "{all:#?}");
        for (line, state, pod) in [(&all[3], "used", "pod-2"), (&all[4], "idle", "pod-3")] {
            let expected = format!("\"seconds\":60,\"inferredSeconds\":0,\"state\":\"{state}\",\"corrected\":true");
            assert!(line.contains(&expected) && line.contains(pod), "{line}");
        }
        assert_eq!(verified(writer.database()).await.entries, 5);
        assert_eq!(export(writer.database(), &of_namespace("team-1")).await, all[4..]);
    });
}

#[test]
fn old_entries_are_deleted_from_the_front_and_the_chain_continues() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let mut records = refusals(0, 10);
        records.extend(refusals(DAY, 10));
        // An event that waited for the database.
        records.extend(refusals(20, 1));
        records.extend(refusals(DAY + 20, 1));
        writer.append(&records).await.unwrap();
        let next = Day(Day::of(START).0 + 1);
        writer.delete_before(next, next).await.unwrap();
        let summary = verified(writer.database()).await;
        assert_eq!((summary.entries, summary.first.0, summary.last.0), (12, 11, 22));
        let range = AuditQuery { from: Some(next.start_time()), ..AuditQuery::default() };
        assert_eq!(export(writer.database(), &range).await.len(), 12);
        let range = AuditQuery { until: Some(next.start_time()), ..AuditQuery::default() };
        assert_eq!(export(writer.database(), &range).await.len(), 11);

        let later = Day(next.0 + 1);
        writer.delete_before(later, later).await.unwrap();
        assert_eq!(verified(writer.database()).await.first.0, 22);
        assert_eq!(writer.append(&refusals(3 * DAY, 1)).await.unwrap().seq, 23);
        assert_eq!(verified(writer.database()).await.entries, 2);
    });
}
