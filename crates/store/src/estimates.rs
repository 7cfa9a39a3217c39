//! Estimated training times, decoding speeds and costs, from an engine or the built-in roofline model, with prices.
//!
//! Shared by the API and the pages. A failing engine is not an error: the answer then has no times and gives the
//! reason.

use octavo_documents::api::API_VERSION;
use octavo_documents::estimates::{
    EngineEstimates, EstimateAnswer, EstimateRequest, EstimateRow, MAX_ITEMS,
};
use octavo_fleet::access::Sight;
use octavo_fleet::estimate::{
    DeviceGroup, EstimateValue, SOURCE_NAME, Workload, assumptions, cost, roofline,
};
use octavo_fleet::matching::RequestError;
use octavo_fleet::price::{PriceBook, PurchaseOption};
use octavo_toolkit::error::chain;

use super::view::View;

/// Name of the engine for callers who are not allowed to see its URL.
const ENGINE_ALIAS: &str = "the estimate engine";
/// Message for callers who are not allowed to see why the price book cannot be read.
pub const PRICES_OUTDATED: &str = "prices are those of before: the price book cannot be used now";

type Money<'b> = (Option<&'b PriceBook>, PurchaseOption);

/// Estimates the request, with details limited by `sight`; an error names the invalid field.
pub async fn estimate(
    view: &View,
    sight: &Sight,
    asked: EstimateRequest,
) -> Result<EstimateAnswer, RequestError> {
    let workload = asked.workload()?;
    let option = asked.purchase_option()?;
    let mut notices = Vec::new();
    let devices = match asked.devices()? {
        Some(devices) => devices,
        None => one_device_per_type(view, &mut notices),
    };
    let prices = view.prices();
    notices.extend(prices.notice.map(|why| sight.told(why, PRICES_OUTDATED)));
    let money = (prices.book.as_deref(), option);
    let answer = match view.engine() {
        None => {
            let passed_over = asked.workload.ignored_fields();
            notices.extend(passed_over.iter().map(|what| {
                format!("{what} makes no difference to the rule of thumb; an engine may look at it")
            }));
            estimate_by_roofline(&workload, &devices, money)
        }
        Some(engine) => {
            let question = (&workload, asked.workload.with_total_tokens(&workload));
            match engine.ask(question, &devices, view.clock()).await {
                Ok(said) => answer_from_engine(said, &devices, money),
                Err(error) => {
                    // The URL can reveal the name of an internal network.
                    let source = if sight.nodes {
                        engine.url()
                    } else {
                        ENGINE_ALIAS
                    };
                    let why = sight.told(chain(&error), &error.to_string());
                    answer_without_times(source, &why, &devices)
                }
            }
        }
    };
    Ok(EstimateAnswer { notices, ..answer })
}

/// One device of each type in the fleet.
fn one_device_per_type(view: &View, notices: &mut Vec<String>) -> Vec<DeviceGroup> {
    let types = view.listed().types(view.clock().now());
    let mut all: Vec<DeviceGroup> = types
        .into_iter()
        .filter_map(|one| one.counts.type_name)
        .map(|type_name| DeviceGroup {
            type_name,
            count: 1,
        })
        .collect();
    if all.len() > MAX_ITEMS {
        notices.push(format!(
            "the fleet has {} types; the first {MAX_ITEMS} are answered",
            all.len()
        ));
        all.truncate(MAX_ITEMS);
    }
    all
}

fn estimate_by_roofline(
    workload: &Workload,
    devices: &[DeviceGroup],
    money: Money<'_>,
) -> EstimateAnswer {
    let rows = devices.iter().map(|one| match roofline(workload, one) {
        Ok(figure) => row(one, figure, true, money),
        Err(why) => EstimateRow {
            why_not: Some(why.to_string()),
            ..empty_row(one)
        },
    });
    EstimateAnswer {
        assumptions: assumptions(workload),
        ..answer(SOURCE_NAME, rows.collect())
    }
}

fn answer_from_engine(
    said: EngineEstimates,
    devices: &[DeviceGroup],
    money: Money<'_>,
) -> EstimateAnswer {
    let rows = devices.iter().map(|one| {
        let key = (one.type_name.to_string(), one.count);
        match said.figures.get(&key) {
            Some((figure, interpolated)) => row(one, *figure, *interpolated, money),
            None => EstimateRow {
                why_not: Some("the engine has no figure for it".to_owned()),
                ..empty_row(one)
            },
        }
    });
    let rows = rows.collect();
    EstimateAnswer {
        assumptions: said.assumptions,
        ..answer(&said.source, rows)
    }
}

fn answer_without_times(source: &str, why: &str, devices: &[DeviceGroup]) -> EstimateAnswer {
    EstimateAnswer {
        times: "none".to_owned(),
        reason: Some(why.to_owned()),
        ..answer(source, devices.iter().map(empty_row).collect())
    }
}

fn answer(source: &str, items: Vec<EstimateRow>) -> EstimateAnswer {
    EstimateAnswer {
        api_version: API_VERSION.to_owned(),
        kind: "EstimateAnswer".to_owned(),
        is_estimate: true,
        times: "estimated".to_owned(),
        reason: None,
        source: source.to_owned(),
        assumptions: Vec::new(),
        items,
        notices: Vec::new(),
    }
}

fn row(
    of: &DeviceGroup,
    figure: EstimateValue,
    interpolated: bool,
    (book, option): Money<'_>,
) -> EstimateRow {
    let price = book.and_then(|book| book.price(&of.type_name, option));
    let cost = price.and_then(|price| cost(figure, &price, of.count));
    let (seconds, speed) = match figure {
        EstimateValue::Seconds(time) => (Some(time.into()), None),
        EstimateValue::TokensPerSecond(speed) => (None, Some(speed.into())),
    };
    EstimateRow {
        seconds,
        tokens_per_second: speed,
        interpolated,
        cost: cost.map(Into::into),
        ..empty_row(of)
    }
}

fn empty_row(of: &DeviceGroup) -> EstimateRow {
    EstimateRow {
        type_name: of.type_name.to_string(),
        count: of.count,
        seconds: None,
        tokens_per_second: None,
        interpolated: false,
        cost: None,
        why_not: None,
    }
}
