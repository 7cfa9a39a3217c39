//! Estimated training times, decoding speeds and costs, from an engine or the built-in roofline model, with prices.
//!
//! Shared by the API and the pages. A failing engine is not an error: the answer then has no times and gives the
//! reason.

use octavo_fleet::access::Visibility;
use octavo_fleet::estimate::{
    DeviceGroup, EstimateAnswer, EstimateRequest, EstimateRow, EstimateValue, MAX_ITEMS,
    SOURCE_NAME, TimesStatus, Workload, assumptions, cost, roofline,
};
use octavo_fleet::matching::RequestError;
use octavo_fleet::price::{CurrentPrices, PurchaseOption};
use octavo_toolkit::error::chain;

use super::estimate_engine::EngineEstimates;
use super::view::{FleetView, PRICES_OUTDATED};

/// Name of the engine for callers who are not allowed to see its URL.
const ENGINE_ALIAS: &str = "the estimate engine";

type Money<'b> = (Option<&'b CurrentPrices>, PurchaseOption);

/// Estimates the request, with details limited by `visibility`; an error names the invalid field.
pub async fn estimate(
    view: &FleetView,
    visibility: &Visibility,
    request: EstimateRequest,
) -> Result<EstimateAnswer, RequestError> {
    let EstimateRequest { workload, devices, purchase_option } = request.validated()?;
    let mut notices = Vec::new();
    let devices = match devices {
        Some(devices) => devices,
        None => one_device_per_type(view, &mut notices),
    };
    let prices = view.prices();
    notices.extend(prices.notice.map(|why| visibility.disclose(why, PRICES_OUTDATED)));
    let money = (prices.prices.as_ref(), purchase_option.unwrap_or_default());
    let answer = match view.engine() {
        None => {
            let passed_over = workload.ignored_fields();
            notices.extend(passed_over.iter().map(|what| {
                format!("{what} is ignored by the built-in estimate; an estimate engine can use it")
            }));
            estimate_by_roofline(&workload, &devices, money)
        }
        Some(engine) => {
            match engine.ask(&workload, &devices, view.clock()).await {
                Ok(estimates) => answer_from_engine(estimates, &devices, money),
                Err(error) => {
                    // The URL can reveal the name of an internal network.
                    let source = if visibility.nodes { engine.url() } else { ENGINE_ALIAS };
                    let why = visibility.disclose(chain(&error), &error.to_string());
                    answer_without_times(source, &why, &devices)
                }
            }
        }
    };
    Ok(EstimateAnswer { notices, ..answer })
}

/// One device of each type in the fleet.
fn one_device_per_type(view: &FleetView, notices: &mut Vec<String>) -> Vec<DeviceGroup> {
    let types = view.listed().types(view.clock().now());
    let mut all: Vec<DeviceGroup> = types
        .into_iter()
        .filter_map(|one| one.counts.type_name)
        .map(|type_name| DeviceGroup { type_name, count: 1 })
        .collect();
    if all.len() > MAX_ITEMS {
        notices.push(format!(
            "the fleet has {} types; only the first {MAX_ITEMS} are estimated",
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
        Err(why) => EstimateRow { why_not: Some(why.to_string()), ..EstimateRow::new(one) },
    });
    EstimateAnswer {
        assumptions: assumptions(workload),
        ..EstimateAnswer::new(SOURCE_NAME, rows.collect())
    }
}

fn answer_from_engine(
    estimates: EngineEstimates,
    devices: &[DeviceGroup],
    money: Money<'_>,
) -> EstimateAnswer {
    let rows = devices.iter().map(|one| {
        let key = (one.type_name.clone(), one.count);
        match estimates.figures.get(&key) {
            Some((figure, interpolated)) => row(one, *figure, *interpolated, money),
            None => EstimateRow {
                why_not: Some("the estimate engine returned no value for these devices".to_owned()),
                ..EstimateRow::new(one)
            },
        }
    });
    let rows = rows.collect();
    EstimateAnswer {
        assumptions: estimates.assumptions,
        ..EstimateAnswer::new(&estimates.source, rows)
    }
}

fn answer_without_times(source: &str, why: &str, devices: &[DeviceGroup]) -> EstimateAnswer {
    EstimateAnswer {
        times: TimesStatus::Unavailable.into(),
        reason: Some(why.to_owned()),
        ..EstimateAnswer::new(source, devices.iter().map(EstimateRow::new).collect())
    }
}

fn row(
    of: &DeviceGroup,
    figure: EstimateValue,
    interpolated: bool,
    (price_list, option): Money<'_>,
) -> EstimateRow {
    let price = price_list.and_then(|price_list| price_list.price(&of.type_name, option));
    let cost = price.and_then(|price| cost(figure, &price, of.count));
    let (seconds, speed) = match figure {
        EstimateValue::Seconds(time) => (Some(time), None),
        EstimateValue::TokensPerSecond(speed) => (None, Some(speed)),
    };
    EstimateRow { seconds, tokens_per_second: speed, interpolated, cost, ..EstimateRow::new(of) }
}
