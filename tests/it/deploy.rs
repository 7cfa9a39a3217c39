//! What the manifests in `deploy` ask for is what is on a list, and a real API server takes them.

pub(crate) mod chart;
mod cleanup;
mod documents;
mod list;
mod network;
mod pools;
mod privileges;
mod wrong;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::Api;

use list::{Asked, List};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// Every folder below `deploy` that can be applied.
fn kustomizations(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            kustomizations(&path, found);
        } else if path.ends_with("kustomization.yaml") {
            let name = folder.strip_prefix(deploy()).unwrap();
            found.insert(name.to_str().unwrap().to_owned());
        }
    }
}

fn path(kustomization: &str) -> String {
    deploy().join(kustomization).to_str().unwrap().to_owned()
}

/// Compares all, so that one look says everything.
fn compare(list: &List, all: &[Asked], rendered: impl Fn(&Asked) -> String) {
    let wrong = all
        .iter()
        .filter_map(|asked| difference(list, asked, &rendered(asked)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is asked for and not listed, and what is listed and no longer asked for.
fn difference(list: &List, asked: &Asked, rendered: &str) -> Option<String> {
    let found = privileges::of(rendered);
    let listed = list.of(asked);
    let more: Vec<&String> = found.difference(&listed).collect();
    let less: Vec<&String> = listed.difference(&found).collect();
    (!more.is_empty() || !less.is_empty()).then(|| {
        format!(
            "{} asks for what docs/permissions.md does not list: {more:#?}\nand no longer for: {less:#?}",
            asked.name
        )
    })
}

fn names(all: &[Asked]) -> BTreeSet<String> {
    all.iter().map(|asked| asked.name.to_owned()).collect()
}

#[test]
fn the_manifests_ask_for_what_is_on_the_list_and_nothing_else() {
    let api = Api::shared();
    let list = List::read();
    let mut found = BTreeSet::new();
    kustomizations(&deploy(), &mut found);
    assert_eq!(
        found,
        names(list::FOLDERS),
        "each kustomization has its list"
    );
    compare(&list, list::FOLDERS, |asked| {
        api.kubectl(&["kustomize", &path(asked.name)])
    });
}

#[test]
fn the_chart_asks_for_what_is_on_the_list_and_nothing_else_whatever_is_chosen() {
    let list = List::read();
    assert_eq!(
        chart::all_values(),
        names(list::CHART),
        "all values have their list"
    );
    compare(&list, list::CHART, |asked| {
        chart::render(&chart::values(asked.name))
    });
    assert_eq!(list.unused(), Vec::<&String>::new(), "needed by nothing");
}

#[test]
fn what_is_listed_is_explained_above_the_list() {
    let (explained, _) = list::page().split_once("\n## The list").unwrap();
    let mut looked = 0;
    for line in List::read().lines() {
        let (_, what) = line.split_once(": ").unwrap();
        let words: Vec<&str> = what.split([' ', '=']).collect();
        let word = match words.as_slice() {
            [_, "has", _, _] => words[2],
            [_, key, value] if key.ends_with("capabilities.add") => value,
            [_, key, value] if key.ends_with("hostPath.path") => value,
            [_, key, _] if key.ends_with("appArmorProfile.type") => "AppArmor",
            ["runtimeClassName", _] => "runtimeClassName",
            [_verb, resource, "of", ..] => resource,
            _ => continue,
        };
        looked += 1;
        assert!(
            explained.contains(word),
            "{word:?} of {line:?} has no reason"
        );
    }
    assert!(looked > 20, "{looked}");
}

/// Applies as people do, who look at warnings; what the server says of each object.
fn apply(api: &Api, kustomization: &str) -> String {
    let output = api.try_kubectl(&["apply", "-k", &path(kustomization)]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{kustomization}: {errors}");
    assert_eq!(errors, "", "{kustomization}: a warning");
    String::from_utf8(output.stdout).unwrap()
}

/// What comes of making the pod that a controller would make of its template.
fn pod(api: &Api, of: &str, namespace: &str) -> Result<(), String> {
    let owner = api.kubectl(&["get", of, "--namespace=octavo-system", "--output=json"]);
    let owner: Value = serde_json::from_str(&owner).unwrap();
    let mut spec = owner["spec"]["template"]["spec"].clone();
    if namespace != "octavo-system" {
        spec["serviceAccountName"] = json!("default");
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"generateName": "octavo-", "namespace": namespace},
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.json");
    fs::write(&file, pod.to_string()).unwrap();
    let output = api.try_kubectl(&["create", "-f", file.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        assert_eq!(errors, "", "{of}: a warning");
        return Ok(());
    }
    Err(errors)
}

#[test]
fn an_api_server_takes_the_manifests_without_a_warning_and_their_pods_where_restricted_is_enforced()
{
    let api = Api::fresh();
    api.apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}");
    let agent = "daemonset/octavo-agent";
    for tier in ["tiers/reporter", "tiers/reader", "tiers/applier"] {
        apply(&api, tier);
        // A second time nothing is left to do, or every look of a tool that keeps manifests applied would be a write.
        for line in apply(&api, tier).lines() {
            assert!(line.ends_with(" unchanged"), "{tier}: {line}");
        }
        assert_eq!(pod(&api, agent, "octavo-system"), Ok(()), "{tier}");
        assert_eq!(
            pod(&api, "deployment/octavo-aggregator", "octavo-system"),
            Ok(()),
            "{tier}"
        );
    }
    for option in ["options/drain", "options/nodefeature"] {
        apply(&api, option);
    }
    whatever_is_chosen_is_taken(&api);
    // The tier that is as mighty as root is not let in where the standard is held: the others were let in by a server that looks.
    api.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
    );
    api.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: strict}}",
    );
    let refused = pod(&api, agent, "strict").unwrap_err();
    for violation in [
        "violates PodSecurity \"restricted",
        "SYS_ADMIN",
        "hostPath",
        "runAsUser=0",
    ] {
        assert!(refused.contains(violation), "{violation}: {refused}");
    }
}

/// With the kinds of others there, which are defined as they define them.
fn whatever_is_chosen_is_taken(api: &Api) {
    let definitions = chart::definitions();
    api.kubectl(&["create", "-f", definitions.to_str().unwrap()]);
    api.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd",
        "--all",
        "--timeout=120s",
    ]);
    // Where NVIDIA's device plugin is, which is there before.
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rendered.yaml");
    for name in chart::all_values() {
        fs::write(&file, chart::render(&chart::values(&name))).unwrap();
        let file = file.to_str().unwrap();
        let taken = ["apply", "--dry-run=server", "-f", file];
        let output = api.try_kubectl(&taken);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.success() && errors.is_empty(),
            "{name}: {errors}"
        );
    }
}
