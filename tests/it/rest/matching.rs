//! `POST /api/v1/match` through the real router, with inventories of simulated machines.

use std::fs;
use std::path::Path;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_files::config_files::prices::PriceFile;
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};

const MATCH: &str = "/api/v1/match";

#[track_caller]
fn names(answer: &Value) -> Vec<String> {
    let matches = answer["matches"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let shown = matches.iter().map(|one| {
        let (count, name) = (&one["count"], one["name"].as_str().unwrap());
        format!("{count} {name} {}", one["availability"].as_str().unwrap())
    });
    shown.collect()
}

#[track_caller]
fn reported(of: &Value) -> String {
    let texts = of.as_array().into_iter().flatten();
    texts.map(|text| text.as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

async fn requested(aggregator: &Aggregator, request: Value) -> Value {
    let answer = aggregator.post(MATCH, &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn matching_types_list_free_devices_and_those_after_a_change() {
    let aggregator = Aggregator::of(&Machines::read().await);
    // Two are whole and free, one has unused partitions, one has a partition with a process.
    for (request, expected, verdict) in [
        (json!({"memoryPerDeviceAtLeast": "80GB"}), &["1 nvidia-h100-80gb free"][..], "fits-now"),
        (
            json!({"memoryPerDeviceAtLeast": "80GB", "count": 3}),
            &["3 nvidia-h100-80gb could-become"],
            "nothing-free",
        ),
        (
            json!({"memoryPerDeviceAtLeast": "80GB", "count": 4}),
            &["4 nvidia-h100-80gb taken"],
            "nothing-free",
        ),
        (json!({"memoryPerDeviceAtLeast": "80GB", "count": 5}), &[], "nothing-fits"),
        (
            json!({"memoryTotalAtLeast": "150GB", "architectureAtLeast": "hopper"}),
            &["2 nvidia-h100-80gb free"],
            "fits-now",
        ),
        (
            json!({"memoryPerDeviceAtLeast": "30GB", "isolation": "mig"}),
            &[
                "1 nvidia-h100-80gb/3g.40gb free",
                "1 nvidia-h100-80gb free",
                "1 nvidia-h100-80gb/7g.80gb taken",
            ],
            "fits-now",
        ),
        (
            json!({"preferred": ["L4"]}),
            &["1 nvidia-l4-24gb free", "1 nvidia-h100-80gb free"],
            "fits-now",
        ),
    ] {
        let answer = requested(&aggregator, request.clone()).await;
        assert_eq!(names(&answer), expected, "{request}");
        assert_eq!(answer["verdict"], verdict, "{request}");
    }
    let later = requested(&aggregator, json!({"memoryPerDeviceAtLeast": "80GB", "count": 3})).await;
    assert_eq!(
        later["summary"],
        "3 x nvidia-h100-80gb fits, none is free, could become free by repartitioning mixed-1"
    );
    let best = &later["matches"][0];
    assert_eq!(best["free"], json!({"total": 2, "onOneNode": 2}));
    assert_eq!(best["couldBecome"], json!({"onOneNode": 3, "how": "by repartitioning mixed-1"}));
    assert_eq!(
        reported(&later["refused"][0]["why"]),
        "needs 74.5 GiB or more per device; it has 22.4 GiB; needs 3 on one node; no node has more than 1"
    );
}

#[tokio::test]
async fn free_devices_of_silent_node_are_unknown() {
    let aggregator = Aggregator::of(&Machines::read().await);
    aggregator.silence("mixed-1");
    let answer = requested(&aggregator, json!({"memoryPerDeviceAtLeast": "80GB"})).await;
    assert_eq!(names(&answer), ["1 nvidia-h100-80gb unknown"]);
    assert_eq!(answer["verdict"], "nothing-free");
    assert_eq!(answer["matches"][0].get("free"), None);
    aggregator.silence("gpu-1");
    let answer = requested(&aggregator, json!({"preferred": ["L4"]})).await;
    let best = &answer["matches"][0];
    assert_eq!(best["free"], json!({"total": 1, "onOneNode": 1}));
    assert!(reported(&best["warnings"]).contains("1 of unknown availability"), "{best}");
}

fn book(path: &Path, price: &str) {
    let text = format!(
        "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: EUR\nprices:\n- {{type: nvidia-h100-80gb, perHour: {price}}}\n"
    );
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[tokio::test]
async fn price_comes_from_current_price_book_and_is_absent_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    book(&path, "2.10");
    let prices = PriceFile::open(&path).unwrap();
    let aggregator = Aggregator::viewed(&Machines::read().await, |view| view.with_prices(prices));
    let request = json!({"count": 2, "memoryPerDeviceAtLeast": "80GB"});
    let answer = requested(&aggregator, request.clone()).await;
    let cost = json!({"perHour": "4.20", "currency": "EUR", "purchaseOption": "on-demand"});
    assert_eq!(answer["matches"][0]["cost"], cost);
    book(&path, "3");
    let answer = requested(&aggregator, request.clone()).await;
    assert_eq!(answer["matches"][0]["cost"]["perHour"], "6");
    book(&path, "dear");
    let answer = requested(&aggregator, request).await;
    assert_eq!(answer["matches"][0]["cost"]["perHour"], "6");
    assert!(reported(&answer["notices"]).contains("The previous prices stay in use"), "{answer}");
    let spot =
        requested(&aggregator, json!({"purchaseOption": "spot", "preferred": ["H100 80GB"]})).await;
    assert!(
        spot["matches"].as_array().unwrap().iter().all(|one| one.get("cost").is_none()),
        "{spot}"
    );
    let capped = requested(&aggregator, json!({"priceAtMostPerHour": "1"})).await;
    assert_eq!(capped["verdict"], "nothing-fits");
    let whys: Vec<String> =
        capped["refused"].as_array().unwrap().iter().map(|one| reported(&one["why"])).collect();
    assert!(
        whys[0].contains("the cost for 1 is 3.00 EUR")
            && whys[1].contains("the price book has no entry for it"),
        "{whys:?}"
    );
}

#[tokio::test]
async fn price_that_is_valid_now_applies_and_other_currencies_meet_no_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: EUR\nprices:\n\
        - {type: nvidia-h100-80gb, perHour: 9, until: 2020-01-01}\n\
        - {type: nvidia-h100-80gb, perHour: 2, currency: USD, from: 2020-01-01, until: 9000-01-01}\n\
        - {type: nvidia-h100-80gb, perHour: 1, from: 9000-01-01}\n\
        - {type: nvidia-h100-80gb, perHour: 7, region: eu-west-1}\n";
    fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    let aggregator = Aggregator::viewed(&Machines::read().await, |view| view.with_prices(prices));
    let answer = requested(&aggregator, json!({"memoryPerDeviceAtLeast": "80GB"})).await;
    let cost = json!({"perHour": "2", "currency": "USD", "purchaseOption": "on-demand"});
    assert_eq!(answer["matches"][0]["cost"], cost);
    let capped = json!({"memoryPerDeviceAtLeast": "80GB", "priceAtMostPerHour": "5"});
    let capped = requested(&aggregator, capped).await;
    assert_eq!(capped["verdict"], "nothing-fits");
    let why = reported(&capped["refused"][0]["why"]);
    assert!(why.contains("the price limit is in EUR; its price is in USD"), "{why}");
}

#[tokio::test]
async fn invalid_request_is_a_problem_naming_the_field() {
    let aggregator = Aggregator::of(&Machines::default());
    let long = json!({"preferred": ["x".repeat(300_000)]}).to_string();
    for (body, status, kind, parameter, detail) in [
        (r#"{"count": 0}"#, 400, "invalid-body", "count", "from 1 to 1024"),
        (
            r#"{"memoryPerDeviceAtLeast": "80"}"#,
            400,
            "invalid-body",
            "memoryPerDeviceAtLeast",
            "80GB",
        ),
        (r#"{"preferred": ["A100"]}"#, 400, "invalid-body", "preferred", "is ambiguous"),
        (r#"{"memory": "80GB"}"#, 400, "invalid-body", "memory", "unknown field `memory`"),
        ("{\n\"count\": ", 400, "invalid-body", "", "line 2 column 9"),
        (&long, 413, "body-too-long", "", "256 KiB"),
    ] {
        let answer = aggregator.post(MATCH, body).await;
        let problem = answer.json();
        assert_eq!(answer.status, status, "{problem}");
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), parameter, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    let form = aggregator.ask("POST".parse().unwrap(), MATCH).await;
    assert_eq!(form.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}", form.body);
    let get = aggregator.get(MATCH).await;
    assert_eq!((get.status.as_u16(), get.header("allow")), (405, "POST"));
    let nothing = requested(&aggregator, json!({})).await;
    assert_eq!(nothing["verdict"], "nothing-fits");
}

#[tokio::test]
async fn arrays_in_place_of_objects_and_compressed_bodies_are_rejected() {
    let aggregator = Aggregator::of(&Machines::default());
    for document in ["[8, \"80GB\"]", "[]", "{\"performance\": [[]]}"] {
        let answer = aggregator.post(MATCH, document).await;
        let problem = answer.json();
        assert_eq!(problem["type"], "/problems/invalid-body", "{document}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("invalid type: sequence"), "{detail}");
    }
    let compressed = Request::post(MATCH)
        .header("content-type", "application/json")
        .header("content-encoding", "gzip")
        .body(Body::from(vec![0x1f, 0x8b, 8]))
        .unwrap();
    let compressed = aggregator.answer(compressed).await;
    assert_eq!(compressed.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(compressed.json()["type"], "/problems/wrong-encoding");
}
