//! Sums of large ledgers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use octavo_ledger::{Dimension, UsageSum};
use tempfile::TempDir;

use super::{DAY, START, query, runtime, three_days, url};
use crate::LedgerWriter;

#[test]
fn usage_of_any_size_is_visited_group_by_group() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut writer).await;
        let pool = writer.database().pool.clone();
        // 60,000 pods, whose holders are not in the order of their names.
        let numbers = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 60000) ";
        for rows in [
            "INSERT INTO ledger_holder (id, namespace, pod, uid, container) \
             SELECT 1000 + n, 'team-' || (n % 7), 'pod-' || (n * 7919 % 60000), n, 'main' FROM numbers",
            "INSERT INTO ledger_interval (day, device, start_s, slot, end_s, holder, state, activity, method, ppm, inferred, \
             percent_s, measured_s) SELECT 20833, 1, 1799971200 + n, 100, 1799971200 + n + 1, 1000 + n, 0, \
             CASE n % 2 WHEN 0 THEN 'idle' ELSE 'active' END, 'device', 1000000, 0, 0, 0 FROM numbers",
        ] {
            sqlx::query(sqlx::AssertSqlSafe(format!("{numbers}{rows}"))).execute(&pool).await.unwrap();
        }
        let query = query(START, START + 3 * DAY, &[Dimension::Namespace, Dimension::Pod]);
        assert_eq!(writer.database().usage(&query).await.unwrap(), None, "too many for the memory");
        let mut groups: BTreeMap<Vec<Option<String>>, i64> = BTreeMap::new();
        let mut last: Option<UsageSum> = None;
        let mut namespaces = 0;
        let visit = |sum: UsageSum| {
            let is_new = last.as_ref().is_none_or(|last| last.values != sum.values);
            assert!(!is_new || !groups.contains_key(&sum.values), "sums of a group are together");
            if last.as_ref().is_none_or(|last| last.values[0] != sum.values[0]) {
                namespaces += 1;
            }
            *groups.entry(sum.values.clone()).or_default() += sum.ppm_seconds;
            last = Some(sum);
            ControlFlow::Continue(())
        };
        let visited = writer.database().visit_usage(&query, visit).await.unwrap();
        assert!(visited.is_continue());
        // Seven namespaces, and the devices that are not allocated.
        assert_eq!(namespaces, 8);
        assert!(groups.len() > 60_000, "{}", groups.len());
    });
}
