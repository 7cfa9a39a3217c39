//! When capacity is counted, and the reported age of a count.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use octavo_fleet::availability::{CountBasis, Unknown, Wait};
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, PODS, Phase, PodKey, PodRequirements,
    Readiness,
};
use tokio::time::advance;

use super::*;
use crate::stale_while_revalidate::MAX_WAIT;

/// A cluster of one node with this many devices.
fn snapshot(devices: u64) -> Arc<ClusterSnapshot> {
    let amounts = Amounts::default().with("nvidia.com/gpu", devices).with(PODS, 110);
    let node = ClusterNode {
        name: "node-a".to_owned(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    Arc::new(ClusterSnapshot::new([node], []))
}

fn watched(snapshot: &Arc<ClusterSnapshot>, confirmed_at: Option<Instant>) -> Arc<WatchedCluster> {
    Arc::new(WatchedCluster {
        snapshot: Arc::clone(snapshot),
        current_at: confirmed_at,
        error: confirmed_at.is_none().then(|| "not read yet".to_owned()),
        invalid_objects: 0,
    })
}

/// A counter of a cluster without agents, with the senders for the cluster and the fleet.
fn counter(
    first: Arc<WatchedCluster>,
) -> (Counter, watch::Sender<Arc<WatchedCluster>>, watch::Sender<Fleet>) {
    let (fleet, readers) = watch::channel(Fleet::default());
    let (cluster, watched) = watch::channel(first);
    let view = FleetView::new(readers, Clock::start());
    let mut counter = Counter::new(view, Some(watched));
    // Wall-clock time follows the paused test time.
    counter.today = |clock| clock.wall(clock.now());
    (counter, cluster, fleet)
}

#[tokio::test(start_paused = true)]
async fn nfr_001_unconfirmed_cluster_is_stale_after_a_minute() {
    let cluster = snapshot(8);
    let (counter, sender, _fleet) = counter(watched(&cluster, Some(Instant::now())));
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.rows[0].free, 8);
    advance(STALE_AFTER).await;
    assert!(!counter.age(&made).is_stale);
    advance(Duration::from_secs(1)).await;
    let age = counter.age(&made);
    assert_eq!((age.is_stale, age.age.as_secs()), (true, 61));
    // The same objects, confirmed just now.
    sender.send_replace(watched(&cluster, Some(Instant::now())));
    let age = counter.age(&made);
    assert_eq!((age.is_stale, age.age.as_secs()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn unread_cluster_is_not_treated_as_empty() {
    let cluster = snapshot(8);
    let (counter, sender, _fleet) = counter(watched(&Arc::default(), None));
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.basis, CountBasis::Agents);
    let age = counter.age(&made);
    assert_eq!((age.is_stale, age.error.as_deref()), (true, Some("not read yet")));
    sender.send_replace(watched(&cluster, Some(Instant::now())));
    advance(MEANWHILE).await;
    let made = counter.current().await.unwrap();
    assert_eq!(made.availability.basis, CountBasis::Cluster);
    assert!(!counter.age(&made).is_stale);
}

#[tokio::test(start_paused = true)]
async fn recount_happens_only_after_a_change() {
    let cluster = snapshot(8);
    let now = Some(Instant::now());
    let (counter, sender, fleet) = counter(watched(&cluster, now));
    let first = counter.current().await.unwrap();
    let is_first =
        |counted: &AvailabilityCount| Arc::ptr_eq(&counted.availability, &first.availability);
    advance(PAUSE * 2).await;
    assert!(is_first(&counter.current().await.unwrap()));

    sender.send_replace(watched(&snapshot(4), now));
    // Requests during the count receive the previous one; later requests receive the new one.
    assert!(is_first(&counter.current().await.unwrap()));
    drop(counter.cache.state.lock().await);
    let second = counter.current().await.unwrap();
    assert_eq!(second.availability.rows[0].free, 4);
    // Within `PAUSE`, the last count is reused.
    sender.send_replace(watched(&snapshot(2), now));
    let same = async || {
        let latest = counter.current().await.unwrap();
        drop(counter.cache.state.lock().await);
        Arc::ptr_eq(&latest.availability, &second.availability)
    };
    assert!(same().await && same().await);
    // A count older than that is not returned.
    advance(MEANWHILE).await;
    let third = counter.current().await.unwrap();
    assert_eq!((third.availability.rows[0].free, third.revision), (2, 0));

    fleet.send_modify(|fleet| fleet.revision = 7);
    advance(MEANWHILE).await;
    assert_eq!(counter.current().await.unwrap().revision, 7);
}

/// A cluster of one device, which a pod has held since the Unix time `started_at`.
fn held(by: &str, began: i64) -> Arc<ClusterSnapshot> {
    let mut all = ClusterSnapshot::clone(&snapshot(1));
    let pod = ClusterPod {
        key: PodKey { namespace: "team".to_owned(), name: by.to_owned() },
        node: Some("node-a".to_owned()),
        phase: Phase::Bound,
        requirements: PodRequirements {
            amounts: Amounts::default().with("nvidia.com/gpu", 1),
            ..PodRequirements::default()
        },
        started_at: Some(began),
        ..ClusterPod::default()
    };
    all.insert_pod(Arc::new(pod));
    Arc::new(all)
}

#[tokio::test(start_paused = true)]
async fn ac_008_wait_is_estimated_from_observed_holding_intervals() {
    let free = snapshot(1);
    let (counter, sender, _fleet) = counter(watched(&free, Some(Instant::now())));
    let _watching = tokio::spawn(counter.clone().watch_holders());
    let clock = counter.view().clock();
    let seconds = || clock.wall(clock.now()).as_second();
    // Let the observing task run before time advances.
    let publish = async |snapshot: &Arc<ClusterSnapshot>| {
        sender.send_replace(watched(snapshot, Some(Instant::now())));
        tokio::task::yield_now().await;
    };
    let since = seconds();
    let wait = async |by: &str| {
        publish(&held(by, seconds())).await;
        advance(PAUSE).await;
        counter.current().await.unwrap().availability.rows[0].wait
    };
    publish(&free).await;
    let few = Unknown::TooFew { ended: 0, since };
    assert_eq!(wait("first").await, Wait::Unknown(few));
    for number in 0..20 {
        advance(Duration::from_mins(10)).await;
        publish(&held(&format!("next-{number}"), seconds())).await;
    }
    let Wait::Likely { from, samples, .. } = wait("last").await else { panic!("no estimate") };
    let ahead = from - seconds();
    assert_eq!((samples, (590..=600).contains(&ahead)), (20, true), "{ahead}");

    // The probability of an end depends on the time already waited, even if nothing changes.
    let first = counter.current().await.unwrap();
    advance(STALE_AFTER / 4 + PAUSE).await;
    let later = counter.current().await.unwrap();
    assert!(!Arc::ptr_eq(&first.availability, &later.availability));
}

#[tokio::test(start_paused = true)]
async fn many_simultaneous_ends_are_learned() {
    let (counter, sender, _fleet) = counter(watched(&snapshot(1), Some(Instant::now())));
    let _watching = tokio::spawn(counter.clone().watch_holders());
    tokio::task::yield_now().await;
    let clock = counter.view().clock();
    let since = clock.wall(clock.now()).as_second();
    let mut all = ClusterSnapshot::default();
    for number in 0..5000 {
        let one = ClusterSnapshot::clone(&held(&format!("pod-{number}"), since));
        one.pods().values().for_each(|pod| all.insert_pod(Arc::clone(pod)));
        all.nodes.extend(one.nodes);
    }
    for now in [Arc::new(all), held("last", since)] {
        advance(Duration::from_mins(10)).await;
        sender.send_replace(watched(&now, Some(Instant::now())));
        tokio::task::yield_now().await;
    }
    advance(PAUSE).await;
    let made = counter.current().await.unwrap();
    // All pods of the snapshot are one piece of work.
    assert_eq!(made.availability.rows[0].wait, Wait::Unknown(Unknown::TooFew { ended: 1, since }));
}

#[tokio::test(start_paused = true)]
async fn no_end_is_observed_while_watch_is_broken_or_clock_is_set_back() {
    /// Correction of this machine's clock, in seconds.
    static SET: AtomicI64 = AtomicI64::new(0);
    let since = 1_700_000_000;
    let (mut counter, sender, _fleet) = counter(watched(&snapshot(1), Some(Instant::now())));
    counter.today = |_| Timestamp::from_second(1_700_000_000 + SET.load(Relaxed)).unwrap();
    let _watching = tokio::spawn(counter.clone().watch_holders());
    let wait = async |pods: &Arc<ClusterSnapshot>, error: Option<&str>| {
        let mut now = WatchedCluster::clone(&watched(pods, Some(Instant::now())));
        now.error = error.map(str::to_owned);
        sender.send_replace(Arc::new(now));
        tokio::task::yield_now().await;
        advance(MEANWHILE).await;
        counter.current().await.unwrap().availability.rows[0].wait
    };
    tokio::task::yield_now().await;
    let few = |ended| Wait::Unknown(Unknown::TooFew { ended, since });
    assert_eq!(wait(&held("a", since), None).await, few(0));
    SET.store(1000, Relaxed);
    let next = || held("b", since + 900);
    assert_eq!(wait(&next(), Some("nodes: gone")).await, few(0));
    // The corrected clock applies to a pod that starts after the correction.
    SET.store(1500, Relaxed);
    assert_eq!(wait(&next(), None).await, few(1));
    SET.store(1499, Relaxed);
    assert_eq!(wait(&held("c", since + 1490), None).await, few(1));
    SET.store(1510, Relaxed);
    assert_eq!(wait(&held("c", since + 1490), None).await, few(2));
}

#[tokio::test(start_paused = true)]
async fn earlier_count_is_returned_while_a_recount_takes_long() {
    let now = Some(Instant::now());
    let (counter, sender, _fleet) = counter(watched(&snapshot(8), now));
    let first = counter.current().await.unwrap();
    sender.send_replace(watched(&snapshot(4), now));
    advance(PAUSE).await;
    let work = Arc::clone(&counter.cache.state).lock_owned().await;
    let same = counter.current().await.unwrap();
    assert!(Arc::ptr_eq(&same.availability, &first.availability));
    advance(MEANWHILE).await;
    let start = Instant::now();
    let same = counter.current().await.unwrap();
    assert!(Arc::ptr_eq(&same.availability, &first.availability));
    assert_eq!(start.elapsed().as_millis(), MAX_WAIT.as_millis());
    // Its age is reported.
    let age = counter.age(&same);
    assert_eq!((age.is_stale, age.age), (false, PAUSE + MEANWHILE + MAX_WAIT));
    drop(work);
    let second = counter.current().await.unwrap();
    assert_eq!(second.availability.rows[0].free, 4);
}

#[tokio::test(start_paused = true)]
async fn latest_waits_for_a_fresh_count() {
    let now = Some(Instant::now());
    let (counter, sender, _fleet) = counter(watched(&snapshot(8), now));
    counter.latest().await.unwrap();
    sender.send_replace(watched(&snapshot(4), now));
    advance(PAUSE).await;
    let latest = counter.latest().await.unwrap();
    assert_eq!(latest.availability.rows[0].free, 4);
}
