//! When is counted, and how old it is said to be.

use std::collections::BTreeMap;

use tokio::time::advance;

use super::*;
use crate::aggregator::clock::Clock;
use crate::domain::availability::Basis;
use crate::domain::cluster::{Amounts, ClusterNode, PODS, Readiness, Sights};

/// A cluster of one node with so many devices.
fn sights(devices: u64) -> Arc<Sights> {
    let amounts = Amounts::default()
        .with("nvidia.com/gpu", devices)
        .with(PODS, 110);
    let node = ClusterNode {
        name: "node-a".to_owned(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    Arc::new(Sights {
        nodes: BTreeMap::from([(node.name.clone(), Arc::new(node))]),
        pods: BTreeMap::new(),
    })
}

fn followed(sights: &Arc<Sights>, heard: Option<Instant>) -> Arc<Followed> {
    Arc::new(Followed {
        sights: Arc::clone(sights),
        heard,
        trouble: heard.is_none().then(|| "not read yet".to_owned()),
        odd: 0,
    })
}

/// A counter of a cluster without agents, and who says what is in the cluster and in the fleet.
fn counter(first: Arc<Followed>) -> (Counter, watch::Sender<Arc<Followed>>, watch::Sender<Fleet>) {
    let (fleet, readers) = watch::channel(Fleet::default());
    let (cluster, followed) = watch::channel(first);
    let view = View::new(readers, Clock::start());
    (Counter::new(view, Some(followed)), cluster, fleet)
}

#[tokio::test(start_paused = true)]
async fn nfr_001_what_is_not_heard_of_is_stale_after_a_minute_and_what_is_quiet_is_not() {
    let cluster = sights(8);
    let (counter, says, _fleet) = counter(followed(&cluster, Some(Instant::now())));
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.rows[0].free, 8);
    advance(STALE_AFTER).await;
    assert!(!counter.age(&made).is_stale);
    advance(Duration::from_secs(1)).await;
    let age = counter.age(&made);
    assert_eq!((age.is_stale, age.age.as_secs()), (true, 61));
    // The same objects, heard of just now.
    says.send_replace(followed(&cluster, Some(Instant::now())));
    let age = counter.age(&made);
    assert_eq!((age.is_stale, age.age.as_secs()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_not_read_yet_is_not_taken_for_an_empty_one() {
    let cluster = sights(8);
    let (counter, says, _fleet) = counter(followed(&Arc::default(), None));
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.basis, Basis::Agents);
    let age = counter.age(&made);
    assert_eq!(
        (age.is_stale, age.trouble.as_deref()),
        (true, Some("not read yet"))
    );
    says.send_replace(followed(&cluster, Some(Instant::now())));
    advance(PAUSE).await;
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.basis, Basis::Cluster);
    assert!(!counter.age(&made).is_stale);
}

#[tokio::test(start_paused = true)]
async fn it_is_counted_again_when_something_changed_and_not_before() {
    let cluster = sights(8);
    let now = Some(Instant::now());
    let (counter, says, fleet) = counter(followed(&cluster, now));
    let first = counter.current().await.unwrap();
    let is_first = |counted: &Counted| Arc::ptr_eq(&counted.availability, &first.availability);
    advance(PAUSE * 2).await;
    assert!(is_first(&counter.current().await.unwrap()));

    says.send_replace(followed(&sights(4), now));
    let second = counter.current().await.unwrap();
    assert_eq!(second.availability.rows[0].free, 4);
    // Within the pause what was counted last will do.
    says.send_replace(followed(&sights(2), now));
    let same = counter.current().await.unwrap();
    assert!(Arc::ptr_eq(&same.availability, &second.availability));
    advance(PAUSE).await;
    let third = counter.current().await.unwrap();
    assert_eq!((third.availability.rows[0].free, third.revision), (2, 0));

    fleet.send_modify(|fleet| fleet.revision = 7);
    advance(PAUSE).await;
    assert_eq!(counter.current().await.unwrap().revision, 7);
}
