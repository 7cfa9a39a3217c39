//! `kill -9` of the aggregator after every single write.

use serde_json::json;

use super::rig::{Pool, aggregator, spec};
use crate::cluster::agent::proxy::Proxy;
use crate::time_limits::until_async;

#[tokio::test]
async fn i3_aggregator_killed_after_every_write_completes_the_roll_out_within_the_budget() {
    let mut pool = Pool::new(5).await;
    pool.apply("a", &spec("serving", &json!({"maxUnavailable": 2})));
    let mut crashes = 0;
    loop {
        // The killed aggregator still holds the Lease.
        pool.api.kubectl(&[
            "delete",
            "lease",
            "octavo-policies",
            "-n",
            "octavo-system",
            "--ignore-not-found",
        ]);
        let proxy = Proxy::start(&pool.api);
        proxy.allow_writes(1);
        let mut killed = aggregator(&proxy.kubeconfig(), &[]);
        let complete = until_async(
            "a write or the end",
            async || is_complete(&pool) || proxy.is_out_of_writes(),
            |done| *done,
        );
        complete.await;
        killed.kill();
        pool.check_records().await;
        if is_complete(&pool) {
            break;
        }
        crashes += 1;
        assert!(crashes < 60, "{:#}", pool.status("a"));
        pool.act(2, 1).await;
    }
    // The finalizer, five nodes, and at least one status before and after them.
    assert!(crashes >= 8, "{crashes}");
    assert_eq!(pool.with_layout("serving").await.len(), 5);
    assert!(pool.largest >= 1);
}

fn is_complete(pool: &Pool) -> bool {
    pool.status("a")["state"] == "Complete"
}
