//! The chart: the rendered manifests equal the committed ones and are valid, and invalid values are rejected with their
//! location.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::manifests::chart::{
    all_values, helm, helm_output, path, render, render_with, tools, values,
};
use crate::manifests::privileges::objects;
use crate::manifests::{deploy, list};
use crate::time_limits::Finish;

#[test]
fn manifests_equal_rendered_chart() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/render.sh");
    let directory = tempfile::tempdir().unwrap();
    let rewrite = std::env::var_os("OCTAVO_GOLDEN").is_some_and(|mode| mode == "rewrite");
    let into = if rewrite { deploy() } else { directory.path().to_owned() };
    let rendered = Command::new(script).arg(&into).finish();
    assert!(rendered.status.success(), "{rendered:?}");
    for requested in list::FOLDERS {
        let file = format!("{}/octavo.yaml", requested.name);
        let committed = fs::read_to_string(deploy().join(&file)).unwrap();
        let rendered = fs::read_to_string(into.join(&file)).unwrap();
        let differs = committed.lines().zip(rendered.lines());
        let differs = differs.enumerate().find(|(_, (one, other))| one != other);
        assert!(
            committed == rendered,
            "deploy/{file} differs from the chart (`hack/render.sh` renders it; review the diff): {differs:?}"
        );
    }
}

#[test]
fn ignored_device_errors_reach_the_built_in_device_plugin() {
    let shown = |mode: &str, ignored: Value| {
        let values = serde_json::json!({
            "tier": "applier",
            "agent": {"sharing": {"mode": mode, "ignoreXids": ignored}},
        });
        let all = render_with(&values);
        let agent = all.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
        let pod = &agent["spec"]["template"]["spec"];
        let flags = pod["containers"][0]["args"].as_array().unwrap().iter();
        let flags = flags.filter_map(Value::as_str);
        let mut flags = flags.filter_map(|flag| flag.strip_prefix("--ignore-xid="));
        flags.next().map(ToOwned::to_owned)
    };
    let list = || serde_json::json!([79, 119]);
    assert_eq!(shown("embedded", list()).as_deref(), Some("79,119"));
    assert_eq!(shown("embedded", "all".into()).as_deref(), Some("all"));
    assert_eq!(shown("embedded", serde_json::json!([])), None);
    assert_eq!(shown("off", list()), None);
}

#[test]
fn strategy_and_withholding_reach_the_built_in_device_plugin() {
    let flags = |tier: &str, agent: Value| {
        let all = render_with(&serde_json::json!({"tier": tier, "agent": agent}));
        let agent = all.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
        let flags = agent["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let flags = flags.unwrap().iter().filter_map(Value::as_str);
        let requested =
            |flag: &&str| flag.contains("--mig-strategy") || flag.contains("--withhold-after");
        flags.filter(requested).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let embedded = serde_json::json!({"sharing": {"mode": "embedded"}});
    // The default strategy of the agent advertises partitions.
    assert_eq!(flags("applier", embedded), ["--withhold-after=5m"]);
    let single = serde_json::json!({
        "migStrategy": "single",
        "sharing": {"mode": "embedded", "withholdAfter": "none"},
    });
    assert_eq!(flags("applier", single), ["--mig-strategy=single", "--withhold-after=none"]);
    let mixed = serde_json::json!({"migStrategy": "mixed"});
    assert_eq!(flags("reader", mixed), ["--mig-strategy=mixed"]);
}

#[test]
fn pods_are_annotated_by_default_if_agents_know_their_devices() {
    let annotates = |values: &Value| {
        let all = render_with(values);
        let named = |kind: &str, name: &str| {
            all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
        };
        let role = named("ClusterRole", "octavo-aggregator-pods").is_some();
        let policy = named("ValidatingAdmissionPolicy", "octavo-aggregator-pods").is_some();
        let flags = named("Deployment", "octavo-aggregator").map_or_else(String::new, |one| {
            one["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
        });
        let flag = flags.contains("--annotate-pods");
        assert_eq!((role, policy), (flag, flag), "{values}");
        assert_eq!(flags.contains("--lease-namespace"), flag, "{values}");
        flag
    };
    let pool = |tier: &str| {
        serde_json::json!({"pools": [{
            "name": "a", "tier": tier, "match": {"key": "pool", "values": ["a"]},
        }]})
    };
    for annotated in [
        serde_json::json!({"tier": "applier"}),
        pool("applier"),
        serde_json::json!({"tier": "reader", "aggregator": {"annotatePods": true}}),
    ] {
        assert!(annotates(&annotated), "{annotated}");
    }
    for unchanged in [
        serde_json::json!({}),
        pool("reporter"),
        serde_json::json!({"tier": "applier", "aggregator": {"annotatePods": false}}),
        serde_json::json!({"tier": "applier", "policy": {"enabled": false}}),
        serde_json::json!({"tier": "applier", "agent": {"usage": {"interval": ""}}}),
        serde_json::json!({"tier": "applier", "agent": {"cleanup": true}}),
        serde_json::json!({
            "tier": "applier",
            "aggregator": {"enabled": false, "tls": {"generate": false}},
            "agent": {"aggregator": {"address": "https://octavo.example.com:7443"}},
        }),
    ] {
        assert!(!annotates(&unchanged), "{unchanged}");
    }
}

#[test]
fn service_selects_the_leader_only_if_there_are_several_replicas() {
    let rendered = |values: &Value| {
        let all = render_with(values);
        let of = |kind: &str, name: &str| {
            let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
            all.iter().find(is_it).cloned().unwrap_or_default()
        };
        (
            of("Service", "octavo-aggregator")["spec"]["selector"].clone(),
            of("Deployment", "octavo-aggregator")["spec"].clone(),
            of("Role", "octavo-aggregator-standby"),
        )
    };
    let own = serde_json::json!({"app.kubernetes.io/name": "octavo-aggregator"});
    let (selector, deployment, role) = rendered(&serde_json::json!({}));
    assert_eq!((&selector, &role), (&own, &Value::Null));
    assert_eq!(deployment["strategy"]["type"], "Recreate");
    let pod = &deployment["template"]["spec"];
    assert!(pod["affinity"].is_null() && !pod.to_string().contains("--leader-election"));

    let (selector, deployment, role) =
        rendered(&serde_json::json!({"aggregator": {"replicas": 3}}));
    let mut leader = own.clone();
    leader["octavo.dev/role"] = "leader".into();
    assert_eq!(selector, leader);
    assert!(role.is_object());
    assert_eq!(
        (&deployment["replicas"], &deployment["strategy"]["type"]),
        (&3.into(), &"RollingUpdate".into())
    );
    // The label of the leader is not part of the template, so a new pod is a standby.
    let template = &deployment["template"];
    assert!(template["metadata"]["labels"]["octavo.dev/role"].is_null());
    assert_eq!(deployment["selector"]["matchLabels"], own);
    let pod = &template["spec"];
    assert!(pod["affinity"]["podAntiAffinity"].is_object());
    let container = &pod["containers"][0];
    let flags = container["args"].as_array().unwrap();
    assert!(flags.contains(&"--leader-election=$(POD_NAME)".into()), "{flags:?}");
    assert!(flags.contains(&"--lease-namespace=octavo-system".into()), "{flags:?}");
    let name = serde_json::json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    assert_eq!(container["env"], serde_json::json!([name]));
}

#[test]
fn helm_lint_reports_no_issue() {
    let chart = path();
    let chart = chart.to_str().unwrap();
    for name in all_values() {
        let values = values(&name);
        helm_output(&["lint", "--strict", chart, "--values", values.to_str().unwrap()]);
    }
}

fn kubeconform(directory: &Path) -> Output {
    let tools = tools();
    let place = "schemas/{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json";
    Command::new(tools.join("kubeconform"))
        .args(["-strict", "-summary", "-output=json", "-schema-location"])
        .arg(tools.join(place))
        .arg(directory)
        .finish()
}

#[test]
fn every_object_has_only_fields_of_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(format!("{name}.yaml")), text).unwrap();
    };
    for name in all_values() {
        write(&name, &render(&values(&name)));
    }
    for requested in list::FOLDERS {
        let file = deploy().join(requested.name).join("octavo.yaml");
        write(&requested.name.replace('/', "-"), &fs::read_to_string(file).unwrap());
    }
    let output = kubeconform(directory.path());
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{reported:#}");
    let summary = &reported["summary"];
    assert!(summary["valid"].as_u64().unwrap() > 150, "{summary}");
    for none in ["invalid", "errors", "skipped"] {
        assert_eq!(summary[none], 0, "{reported:#}");
    }
    // It would detect a misspelled field.
    let applier = fs::read_to_string(deploy().join("tiers/applier/octavo.yaml")).unwrap();
    write("wrong", &applier.replace("hostPath:", "hostPaths:"));
    let output = kubeconform(directory.path());
    assert!(!output.status.success());
    let reported = String::from_utf8(output.stdout).unwrap();
    assert!(reported.contains("hostPaths"), "{reported}");
}

#[test]
fn names_over_length_limit_are_rejected_and_longest_are_accepted() {
    let chart = path();
    let pool = ["--set-json", r#"pools=[{"name":"NAME","match":{"key":"pool","values":["a"]}}]"#];
    let render = |release: usize, pool_name: usize| {
        let (release, pool_name) = ("r".repeat(release), "p".repeat(pool_name));
        let pool = pool.map(|word| word.replace("NAME", &pool_name));
        let [flag, value] = &pool;
        let output = helm(&["template", &release, chart.to_str().unwrap(), flag, value]);
        let errors = String::from_utf8(output.stderr).unwrap();
        output.status.success().then_some(()).ok_or(errors)
    };
    // RELEASE-octavo-aggregator, RELEASE-octavo-agent-POOL.
    assert_eq!(render(45, 4), Ok(()));
    let reported = render(46, 3).unwrap_err();
    assert!(reported.contains("choose a shorter name for the release"), "{reported}");
    let reported = render(45, 5).unwrap_err();
    assert!(reported.contains("choose a shorter name for the release or the pool"), "{reported}");
}

/// Places of the schema that accept any key.
const OPEN: &[&str] = &[
    "/affinity/nodeAffinity",
    "/affinity/podAffinity",
    "/affinity/podAntiAffinity",
    "/agent/extraEnv/*/valueFrom",
    "/agent/extraVolumeMounts/*",
    "/agent/extraVolumes/*",
    "/aggregator/proxy/env/*/valueFrom",
    "/global",
    "/labels",
    "/peers/*/ipBlock",
    "/peers/*/namespaceSelector",
    "/peers/*/podSelector",
    "/resources/claims/*",
    "/resources/limits",
    "/resources/requests",
];

/// All values by location; a free-form map counts as one.
fn places(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                places(&format!("{at}/{key}"), value, found);
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::String(_)
        | Value::Number(_)
        | Value::Bool(_)
        | Value::Null => {
            found.insert(at.to_owned());
        }
    }
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_value_is_documented_in_schema_and_tested() {
    let text = fs::read_to_string(path().join("values.yaml")).unwrap();
    let defaults = yaml(&path().join("values.yaml"));
    let mut all = BTreeSet::new();
    places("", &defaults, &mut all);
    assert!(all.len() > 60, "{all:?}");
    for name in all_values() {
        let tried = yaml(&values(&name));
        all.retain(|place| {
            let tried = tried.pointer(place);
            tried.is_none() || tried == defaults.pointer(place)
        });
    }
    // For a default inside a user's map, tests set other keys.
    all.retain(|place| {
        ![
            "/agent/resources/",
            "/agent/nodeSelector/",
            "/agent/updateStrategy/",
            "/aggregator/resources/",
            "/monitoring/grafanaDashboard/labels/",
        ]
        .iter()
        .any(|free| place.starts_with(free))
    });
    assert_eq!(all, BTreeSet::new(), "values that no file in ci tries");
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(path().join("values.schema.json")).unwrap())
            .unwrap();
    let known: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let ours: BTreeSet<&String> = defaults.as_object().unwrap().keys().collect();
    let more: Vec<_> = known.symmetric_difference(&ours).collect();
    assert_eq!(more, [&"global"], "helm itself adds only this value");
    let agent: BTreeSet<&String> =
        schema["$defs"]["agent"]["properties"].as_object().unwrap().keys().collect();
    let ours: BTreeSet<&String> = defaults["agent"].as_object().unwrap().keys().collect();
    assert_eq!(agent, ours);
    for line in text.lines() {
        assert!(line.len() <= 140, "{line}");
    }
}

/// Objects without a list of their keys: Kubernetes defines what is in there, or users choose the keys.
fn open_objects(at: &str, schema: &Value, found: &mut BTreeSet<String>) {
    let Some(fields) = schema.as_object() else {
        return;
    };
    if fields.get("type").is_some_and(|kind| kind == "object")
        && fields.get("additionalProperties") != Some(&Value::Bool(false))
    {
        found.insert(at.to_owned());
    }
    let nested = ["properties", "$defs"].into_iter().filter_map(|key| fields.get(key)?.as_object());
    for (key, schema) in nested.flatten() {
        open_objects(&format!("{at}/{key}"), schema, found);
    }
    if let Some(items) = fields.get("items") {
        open_objects(&format!("{at}/*"), items, found);
    }
    for one in ["anyOf", "allOf", "oneOf"].iter().filter_map(|key| fields.get(*key)?.as_array()) {
        for schema in one {
            open_objects(at, schema, found);
        }
    }
}

#[test]
fn schema_rejects_unknown_keys_except_in_kubernetes_fields() {
    let text = fs::read_to_string(path().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeSet::new();
    open_objects("", &schema, &mut found);
    let expected: BTreeSet<String> = OPEN.iter().map(|&place| place.to_owned()).collect();
    assert_eq!(found, expected);
}

#[test]
fn certificate_is_valid_through_forwarded_port() {
    let made = objects(&render(&values("default")));
    let secret = made
        .iter()
        .find(|one| one["kind"] == "Secret" && one["metadata"]["name"] == "octavo-aggregator-tls");
    let names = &secret.unwrap()["metadata"]["annotations"]["octavo.dev/certificate-for"];
    let names: Vec<&str> = names.as_str().unwrap().split(',').collect();
    for name in ["localhost", "127.0.0.1", "octavo-aggregator.octavo-system.svc"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let requested = objects(&render(&values("cert-manager")));
    let requested = requested.iter().find(|one| one["kind"] == "Certificate");
    let spec = &requested.unwrap()["spec"];
    let names = spec["dnsNames"].as_array().unwrap();
    assert!(names.contains(&Value::from("localhost")), "{names:?}");
    assert_eq!(spec["ipAddresses"], serde_json::json!(["127.0.0.1"]));
}
