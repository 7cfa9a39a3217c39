//! The pages of policies: by keyboard, live, without scripts, narrow, and their accessibility.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot, Readiness};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::Presence;
use octavo_kube::policies::KnownPolicies;
use octavo_policy::{Content, Policy, PolicySpec};
use octavo_store::policies::PolicyView;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::chrome::{Start, browse};
use super::fixture::{MACHINES, Site, inventory};
use super::quality::check;

const ENTER: &str = "\u{e007}";

/// A policy in this state, which waits for a pod.
fn policy(name: &str, state: &str, applied: u32) -> Policy {
    let time = "2026-01-01T00:00:00Z";
    let blocked = "hgx-a100, which is blocked: in use by `pod team/train`";
    let spec = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": "serving", "nodeLabels": {"tier": "gold"},
        "rollout": {"maxUnavailable": "10%", "pause": "10m"},
    });
    let spec: PolicySpec = serde_json::from_value(spec).unwrap();
    let revision = Content::of(&spec).revision();
    let status: Value = json!({
        "observedGeneration": 1, "state": state, "revision": revision, "rollout": 1, "updating": ["hgx-a100"],
        "waitsFor": if state == "Complete" { None } else { Some(blocked) },
        "nodes": {"selected": 7, "updated": 2, "applied": applied, "updating": 1},
        "failures": [{"node": "h200", "reason": "failed", "message": "gi 2: in use by `pod team/long-running-job`"}],
        "revisions": [
            {"revision": revision, "time": time, "layout": "serving", "nodeLabels": {"tier": "gold"}},
            {"revision": "9876543210", "time": time, "layout": "training"},
        ],
        "conditions": [{"type": "Progressing", "status": "True", "reason": state, "message": blocked, "lastTransitionTime": time}],
    });
    Policy {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        generation: 1,
        created: None,
        is_deleting: false,
        has_finalizer: true,
        rollback_to: None,
        approved: BTreeSet::new(),
        spec: Ok(spec),
        status: serde_json::from_value(status).unwrap(),
    }
}

/// The demo's machines in one pool, and the policies that select them.
struct Rollout {
    site: Site,
    known: watch::Sender<Arc<KnownPolicies>>,
    _cluster: watch::Sender<Arc<WatchedCluster>>,
}

impl Rollout {
    async fn new(policies: &[Policy]) -> Self {
        let nodes = MACHINES.map(|name| ClusterNode {
            name: name.to_owned(),
            labels: [("pool".to_owned(), "a".to_owned())].into(),
            readiness: Readiness::Ready,
            ..ClusterNode::default()
        });
        let cluster = watch::Sender::new(Arc::new(WatchedCluster {
            snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
            current_at: Some(tokio::time::Instant::now()),
            error: None,
            invalid_objects: 0,
        }));
        let known = watch::Sender::new(Arc::new(known(policies)));
        let view = PolicyView::new(known.subscribe(), cluster.subscribe());
        let site = Site::viewed(|fleet| fleet.with_policies(Some(view)));
        for machine in MACHINES {
            site.put(machine, &inventory(machine).await);
        }
        Self { site, known, _cluster: cluster }
    }

    fn set(&self, policies: &[Policy]) {
        self.known.send_replace(Arc::new(known(policies)));
    }
}

fn known(policies: &[Policy]) -> KnownPolicies {
    let all = policies.iter().map(|policy| (policy.name.clone(), Arc::new(policy.clone())));
    KnownPolicies { all: all.collect(), presence: Some(Presence::Present), error: None }
}

#[tokio::test]
async fn p5_policy_is_found_from_every_page_and_updates_live() {
    let rollout = Rollout::new(&[]).await;
    browse(&rollout.site.url.clone(), Start::default(), async move |page| {
        page.open("/").await;
        page.click(".places a[href='/policies']").await;
        page.until("nav.places [aria-current]", &["Policies"]).await;
        page.until("#empty h2", &["No policies"]).await;
        page.until(".live", &["Live"]).await;
        rollout.set(&[policy("inference", "RollingOut", 1)]);
        page.until("#policy-inference th a", &["inference"]).await;
        page.press("j").await;
        page.until_true("return document.activeElement.innerText === 'inference'").await;
        page.press(ENTER).await;
        page.until_address(|address| address == "/policies/inference").await;
        page.until("h1", &["inference"]).await;
        let waits = page.text("#waits-for").await;
        assert_eq!(waits, "Waits for hgx-a100, which is blocked: in use by pod team/train");
        let first = page.text("#main tbody tr").await;
        assert!(first.starts_with("h200 failed"), "{first}");
        assert_eq!(page.text("#pause").await, "octavo policy pause inference");
        page.until(".live", &["Live"]).await;
        rollout.set(&[policy("inference", "Complete", 7)]);
        page.until(".title .badge", &["Complete"]).await;
        rollout.set(&[policy("inference", "RollingOut", 2)]);
        page.open("/").await;
        page.until_text("#policies-title", |text| text == "Policies in progress").await;
        page.open("/search?q=infer").await;
        page.click("#found-policies + ul a").await;
        page.until_address(|address| address == "/policies/inference").await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn p5_pages_of_policies_are_accessible_wide_and_narrow() {
    let long = policy("inference-of-a-pool-with-a-long-name", "Stopped", 1);
    let rollout = Rollout::new(&[policy("inference", "RollingOut", 1), long]).await;
    let empty = Rollout::new(&[]).await;
    for narrow in [false, true] {
        let start = Start { narrow, ..Start::default() };
        browse(&rollout.site.url, start, async |page| {
            let paths = ["/policies", "/policies/inference", "/", "/search?q=inference"];
            for path in paths {
                check(&page, path).await;
                if narrow {
                    let width = "return document.documentElement.scrollWidth";
                    assert_eq!(page.ask(width, json!([])).await, 380, "{path}");
                }
            }
        })
        .await;
    }
    browse(&empty.site.url, Start::default(), async |page| check(&page, "/policies").await).await;
    let disabled = Site::empty();
    browse(&disabled.url, Start::default(), async |page| check(&page, "/policies").await).await;
}

#[tokio::test]
async fn p5_pages_of_policies_work_without_scripts() {
    let rollout = Rollout::new(&[policy("inference", "RollingOut", 1)]).await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&rollout.site.url, start, async |page| {
        page.open("/policies").await;
        page.click("#policy-inference th a").await;
        page.until("h1", &["inference"]).await;
        page.click("#node-h200 a").await;
        page.until("h1", &["h200"]).await;
        page.assert_clean().await;
    })
    .await;
}
