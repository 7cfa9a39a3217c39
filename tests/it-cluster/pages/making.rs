//! Creation of a hardware profile on the page: from selected nodes to the object in a real cluster, by keyboard.

use serde_json::{Value, json};

use super::chrome::{Page, Start, browse};
use crate::cluster::Api;
use crate::fleet_api::Api as Readers;
use crate::machine::Machine;
use crate::process::Aggregator;
use crate::time_limits::until_async;

const HARDWARE: &str = include_str!("../../fixtures/crds/hardwareprofiles.yaml");
const H100: &str = "{machine: h100, driver: 570.133.20, gpus: [{board: H100_80GB_SXM}]}";
const TYPE: &str = "nvidia-h100-80gb";
const GPU: &str = "nvidia.com/gpu";
const TAINT: &str = "octavo.test/made=true:NoSchedule";
const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";
const ALL: &str = "\u{e009}a\u{e009}";

/// Presses Tab until the field with this id has the focus.
async fn reach(page: &Page, id: &str) {
    let here = format!("return document.activeElement.id === '{id}'");
    for _ in 0..60 {
        if page.ask(&here, json!([])).await == true {
            return;
        }
        page.press(TAB).await;
    }
    panic!("no way to {id}");
}

async fn type_into(page: &Page, id: &str, text: &str) {
    reach(page, id).await;
    page.press(ALL).await;
    page.press(text).await;
}

/// Selects the node in the list and opens the form of a profile.
async fn select(page: &Page, node: &str) {
    // Other tests create nodes in this cluster.
    page.open(&format!("/nodes?search={node}")).await;
    let row = format!("open-{node}");
    page.until_true(&format!("return document.getElementById('{row}') !== null")).await;
    page.press("j").await;
    page.until_true(&format!("return document.activeElement.id === '{row}'")).await;
    page.press("x").await;
    page.until("#picked", &["1 node selected"]).await;
    page.press("p").await;
    page.until("h1", &["New hardware profile"]).await;
}

/// Fills in changed values, first an invalid one.
async fn fill(page: &Page, namespace: &str) {
    let devices = format!("default:{GPU}");
    type_into(page, "name", "premium").await;
    type_into(page, "namespace", namespace).await;
    // An invalid value is reported beside its field, and there is no button.
    type_into(page, &devices, "9").await;
    page.press(TAB).await;
    let why = "nvidia.com/gpu, default: none of these nodes has more than 8.";
    page.until("#refused-why", &[why]).await;
    let wrong = "return document.querySelector('[aria-invalid]')?.id";
    assert_eq!(page.ask(wrong, json!([])).await, devices);
    assert_eq!(page.count("#make").await, 0);
    is_sound(page).await;

    type_into(page, &devices, "2").await;
    page.press(TAB).await;
    page.until_true("return document.getElementById('make') !== null").await;
    // If the fleet changed before, the page has sent a form that the server rejected.
    reports_refusals_only(page).await;
    // The taint of the nodes is tolerated by default.
    reach(page, "taint-0").await;
    let ticked = "return document.getElementById('taint-0').checked";
    assert_eq!(page.ask(ticked, json!([])).await, true);
    page.press(" ").await;
    page.until_true(
        "return document.getElementById('yaml')?.innerText.includes('tolerations') === false",
    )
    .await;
    type_into(page, "reason", "team vision").await;
}

/// Differences from the existing profile are shown, and it is not replaced.
async fn refuse(page: &Page) {
    let differs = page.text("#differences").await;
    assert!(differs.contains("+ spec.identifiers[2].defaultCount: 1"), "{differs}");
    reach(page, "make").await;
    page.press(ENTER).await;
    page.until("#answer-title", &["Profile not created"]).await;
    let why = page.text("#answer-text").await;
    assert!(why.contains("replace it, or choose another name"), "{why}");
    is_sound(page).await;
}

/// Checks that the page is accessible and the browser reports only rejected requests.
async fn is_sound(page: &Page) {
    assert_eq!(page.violations().await, Vec::<String>::new());
    reports_refusals_only(page).await;
}

/// Asserts that the browser reports only rejected requests; it logs each of them as an error.
async fn reports_refusals_only(page: &Page) {
    for complaint in page.complaints().await {
        let refusal = "Failed to load resource: the server responded with a status of 4";
        assert!(complaint.contains(refusal), "{complaint}");
    }
}

/// Replacing it must be confirmed.
async fn replace(page: &Page) {
    reach(page, "replace").await;
    page.press(" ").await;
    // The server renders the page again from the form.
    page.until_true("return document.getElementById('replace').hasAttribute('checked')").await;
    reach(page, "make").await;
    page.press(ENTER).await;
    page.until("#answer-title", &["Profile replaced"]).await;
    page.assert_clean().await;
}

/// A node of the cluster with eight devices, a type and a taint.
fn equip(api: &Api, node: &str) {
    api.kubectl(&["label", "node", node, &format!("octavo.dev/type={TYPE}")]);
    let all = json!({"cpu": "64", "memory": "512Gi", "pods": "500", GPU: "8"});
    let patch = json!({"status": {"capacity": all, "allocatable": all}}).to_string();
    api.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &patch]);
    api.kubectl(&["taint", "node", node, TAINT]);
    api.apply(HARDWARE);
    api.await_definitions();
}

/// The object, if it exists.
fn made(api: &Api, namespace: &str) -> Option<Value> {
    let get = ["get", "hardwareprofiles.infrastructure.opendatahub.io", "premium", "-n", namespace];
    let output = api.try_kubectl(&[&get[..], &["-o", "json"]].concat());
    serde_json::from_slice(&output.stdout).ok()
}

#[tokio::test]
async fn profile_is_validated_and_created_by_keyboard() {
    let api = Api::shared();
    let (node, namespace) = (api.node("made"), api.namespace());
    equip(api, node.name());
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let follow = ["--plaintext", "--follow-cluster", "--create-profiles", &kubeconfig];
    let aggregator = Aggregator::start(&follow);
    let machine = Machine::new(H100);
    let to = format!("--aggregator=http://{}", aggregator.grpc);
    let name = format!("--node-name={}", node.name());
    let _agent = machine.agent(&["--aggregator-plaintext", "--interval=1s", &to, &name]);
    let readers = Readers::at(aggregator.http);
    let path = format!("/api/v1/profile-draft?nodes={}", node.name());
    let draft = async || readers.get(&path).await;
    until_async(&path, draft, |answer| answer.status == 200).await;
    let object = || made(api, &namespace);
    let site = format!("http://{}", aggregator.http);
    browse(&site, Start::default(), async |page| {
        select(&page, node.name()).await;
        fill(&page, &namespace).await;
        reach(&page, "dry-run").await;
        page.press(ENTER).await;
        page.until("#answer-title", &["Dry run succeeded"]).await;
        assert_eq!(object(), None);
        page.assert_clean().await;
        reach(&page, "make").await;
        page.press(ENTER).await;
        page.until("#answer-title", &["Profile created"]).await;
        let made = object().unwrap();
        assert_eq!(made["metadata"]["annotations"]["octavo.dev/reason"], "team vision");
        let devices = &made["spec"]["identifiers"][2];
        assert_eq!((&devices["identifier"], &devices["defaultCount"]), (&json!(GPU), &json!(2)));
        assert_eq!(made["spec"]["scheduling"]["node"].get("tolerations"), None);

        // The page receives the profiles of the cluster with a delay.
        let known = format!("/api/v1/profiles/{namespace}/premium");
        let profile = async || readers.get(&known).await;
        until_async(&known, profile, |answer| answer.status == 200).await;
        let again = format!(
            "/profiles/new?node={}&name=premium&namespace={namespace}&displayName=Other",
            node.name()
        );
        page.open(&again).await;
        refuse(&page).await;
        assert_eq!(object(), Some(made));
        replace(&page).await;
        let count = &object().unwrap()["spec"]["identifiers"][2]["defaultCount"];
        assert_eq!(count, 1);
    })
    .await;
}
