//! Plans of layouts over HTTP.

use std::fs;

use axum::http::StatusCode;
use octavo_files::config_files::LayoutFile;
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};

const LAYOUTS: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  small:
  - devices: {index: [2]}
    mig: {1g.10gb: 2}
  all-disabled:
  - devices: {index: [0]}
    mig: disabled
";

fn verdicts(plan: &Value) -> Vec<&str> {
    let devices = plan["devices"].as_array().unwrap();
    devices.iter().map(|device| device["verdict"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn plan_of_node_equals_its_agents_plan_and_names_blockers() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let answer = aggregator.get("/api/v1/nodes/mixed-1/plan?layout=all-1g.10gb").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let plan = answer.json();
    assert_eq!(
        (&plan["kind"], &plan["node"], &plan["layout"]),
        (&json!("Plan"), &json!("mixed-1"), &json!("all-1g.10gb"))
    );
    assert_eq!(plan["outcome"], "blocked");
    assert_eq!(verdicts(&plan), ["change", "change", "change", "blocked"]);
    // Two Hopper GPUs without MIG: the mode change needs no reset.
    assert_eq!(plan["devices"][0]["modeChange"]["disruption"], "clients-bounce");
    // The third keeps its 1g.10gb.
    let after = plan["devices"][2]["after"].as_array().unwrap();
    let retained = after.iter().filter(|one| one.get("gpuInstance").is_some());
    assert_eq!((after.len(), retained.count()), (7, 1));
    let cause = &plan["devices"][3]["blockedBy"][0];
    assert_eq!(cause["holders"][0]["pid"], 99, "{cause}");
    // Without `allow` the mode change of the first GPU is blocked.
    let careful = "/api/v1/nodes/mixed-1/plan?layout=all-balanced&allow=none";
    let plan = aggregator.get(careful).await.json();
    assert_eq!(verdicts(&plan)[0], "blocked");
}

#[tokio::test]
async fn plans_of_a_selection_equal_those_of_its_nodes() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let path = "/api/v1/layouts/all-1g.10gb/plan";
    let list = aggregator.get(path).await.json();
    assert_eq!((&list["kind"], &list["layout"]), (&json!("NodePlanList"), &json!("all-1g.10gb")));
    let items = list["items"].as_array().unwrap();
    assert_eq!(list["total"], items.len());
    let (mut planned, mut sums) = (0, [0, 0]);
    for row in items {
        let node = row["node"].as_str().unwrap();
        let alone = aggregator.get(&format!("/api/v1/nodes/{node}/plan?layout=all-1g.10gb")).await;
        let Some(outcome) = row.get("outcome") else {
            assert_eq!(alone.status, StatusCode::NOT_FOUND, "{row}");
            assert_eq!(row["problems"].as_array().unwrap().len(), 1, "{row}");
            continue;
        };
        let plan = alone.json();
        assert_eq!(*outcome, plan["outcome"], "{node}");
        planned += 1;
        for (sum, field) in sums.iter_mut().zip(["destroyed", "created"]) {
            assert_eq!(row[field], plan[field], "{node}");
            *sum += row[field].as_u64().unwrap();
        }
    }
    let totals = &list["totals"];
    assert_eq!(totals["nodes"], items.len());
    assert_eq!(totals["unplanned"], items.len() - planned);
    assert_eq!([&totals["destroyed"], &totals["created"]], [&json!(sums[0]), &json!(sums[1])]);
    let mixed = items.iter().find(|row| row["node"] == "mixed-1").unwrap();
    assert_eq!((&mixed["devices"], &mixed["changedDevices"]), (&json!(4), &json!(3)));
    let problem = &mixed["problems"][0];
    assert_eq!(problem["device"], "GPU 3");
    assert!(problem["message"].as_str().unwrap().contains("pid 99"), "{problem}");

    let first = aggregator.get(&format!("{path}?limit=1")).await.json();
    let next = first["continue"].as_str().unwrap();
    let second = aggregator.get(&format!("{path}?limit=1&continue={next}")).await.json();
    let node = |list: &Value| list["items"][0]["node"].as_str().unwrap().to_owned();
    assert_eq!(
        [node(&first), node(&second)],
        [node(&list), items[1]["node"].as_str().unwrap().to_owned()]
    );
    let filtered = aggregator.get(&format!("{path}?search=mixed")).await.json();
    assert_eq!((&filtered["total"], &filtered["items"][0]), (&json!(1), mixed));
}

#[tokio::test]
async fn file_layouts_come_first_and_hide_built_in_layouts_of_same_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    fs::write(&file, LAYOUTS).unwrap();
    let machines = Machines::read().await;
    let aggregator = Aggregator::with_layouts(&machines, LayoutFile::open(&file).unwrap());
    let names = aggregator.get("/api/v1/nodes/mixed-1/layouts").await.json();
    let items = names["items"].as_array().unwrap();
    assert_eq!(items[0], json!({"name": "small", "source": "file"}));
    assert_eq!(items[1], json!({"name": "all-disabled", "source": "file"}));
    let of_the_name = items.iter().filter(|item| item["name"] == "all-disabled");
    assert_eq!(of_the_name.count(), 1);
    assert!(items.contains(&json!({"name": "all-balanced", "source": "made"})), "{names}");
    assert!(names.get("notice").is_none());

    let path = "/api/v1/nodes/mixed-1/plan?layout=small";
    let plan = aggregator.get(path).await.json();
    assert_eq!((verdicts(&plan), &plan["destroyed"]), (vec!["change"], &json!(1)));
    let plan = aggregator.get("/api/v1/nodes/mixed-1/plan?layout=all-disabled").await.json();
    assert_eq!(verdicts(&plan), ["unchanged"]);

    // An invalid file keeps the last layouts in use and its error has the location; a corrected one is used
    // immediately.
    fs::write(
        &file,
        "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts: {small: [{devicse: all}]}\n",
    )
    .unwrap();
    let plan = aggregator.get(path).await.json();
    assert_eq!(verdicts(&plan), ["change"]);
    let reported = plan["warnings"][0].as_str().unwrap();
    assert!(reported.contains("line 3:") && reported.contains("devicse"), "{reported}");
    fs::write(&file, LAYOUTS.replace("1g.10gb: 2", "1g.10gb: 1, 3g.40gb: 1")).unwrap();
    let plan = aggregator.get(path).await.json();
    assert_eq!((&plan["outcome"], &plan["warnings"]), (&json!("nothing"), &json!([])));
}

#[tokio::test]
async fn invalid_layout_request_is_rejected_and_stale_node_is_marked() {
    let aggregator = Aggregator::of(&Machines::read().await);
    for (path, status, kind, parameter) in [
        ("plan", 400, "invalid-parameter", "layout"),
        ("plan?layout=", 400, "invalid-parameter", "layout"),
        ("plan?layout=a&layout=b", 400, "invalid-parameter", "layout"),
        ("plan?layout=all-balanced&allow=all", 400, "invalid-parameter", "allow"),
        ("plan?layuot=all-balanced", 400, "unknown-parameter", "layuot"),
        ("plan?layout=all-1g.11gb", 404, "unknown-layout", "layout"),
        ("layouts?x=1", 400, "unknown-parameter", "x"),
    ] {
        let answer = aggregator.get(&format!("/api/v1/nodes/mixed-1/{path}")).await;
        let problem = answer.json();
        assert_eq!(answer.status.as_u16(), status, "{path}: {problem}");
        assert_eq!(
            (&problem["type"], &problem["parameter"]),
            (&json!(format!("/problems/{kind}")), &json!(parameter)),
            "{path}"
        );
    }
    let none = aggregator.get("/api/v1/nodes/gpu-9/plan?layout=x").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    for (path, kind) in [
        ("x/plan?layuot=y", "unknown-parameter"),
        ("x/plan?limit=0", "invalid-parameter"),
        (&format!("{}/plan", "x".repeat(5000)), "invalid-parameter"),
    ] {
        let answer = aggregator.get(&format!("/api/v1/layouts/{path}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(answer.json()["type"], format!("/problems/{kind}"), "{path}");
    }

    aggregator.silence("mixed-1");
    let plan = aggregator.get("/api/v1/nodes/mixed-1/plan?layout=all-balanced").await.json();
    let reported = plan["warnings"][0].as_str().unwrap();
    assert!(reported.contains("stale"), "{reported}");
}

#[test]
fn invalid_file_at_start_is_an_error_with_location() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    let missing = LayoutFile::open(&file).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the layouts in"), "{missing}");
    fs::write(&file, "version: v2\nmig-configs: {}\n").unwrap();
    let wrong = LayoutFile::open(&file).unwrap_err().to_string();
    assert!(wrong.contains("line 1:"), "{wrong}");
}
