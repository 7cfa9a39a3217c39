//! How long a training takes and how fast a model answers, by an engine's word or by a rule of thumb.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::body::Sent;
use super::nodes::Pairs;
use super::problem::Failure;
use super::seen::Seen;
use crate::domain::error::chain;
use crate::domain::estimate::{Devices, Figure, SOURCE, Workload, assumptions, cost, roofline};
use crate::domain::price::{PriceBook, PurchaseOption};
use crate::wire::api::{API_VERSION, Problem};
use crate::wire::estimates::{EstimateAnswer, EstimateRequest, EstimateRow, MOST_ITEMS, Said};

/// What an engine is called for who may not know where it is.
const ENGINE: &str = "the estimate engine";
/// What everybody is told who may not know why the file of prices cannot be used.
pub(super) const OLD_PRICES: &str = "prices are those of before: the price book cannot be used now";

/// Estimates of time, speed and cost
#[utoipa::path(
    post,
    path = "/api/v1/estimates",
    tag = "fleet",
    request_body(content = EstimateRequest, description = "What shall run, and on what"),
    responses(
        (status = 200, description = "Estimates; `times` is `none`, with the reason, where who estimates is away", body = EstimateAnswer),
        (status = 400, description = "The document cannot be meant; `parameter` names its field", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn estimate(
    State(api): State<Api>,
    Seen(sight): Seen,
    pairs: Pairs,
    Sent(asked): Sent<EstimateRequest>,
) -> Result<Json<EstimateAnswer>, Failure> {
    pairs.none()?;
    let workload = asked.workload()?;
    let option = asked.option()?;
    let mut notices = Vec::new();
    let devices = match asked.devices()? {
        Some(devices) => devices,
        None => of_fleet(&api, &mut notices),
    };
    let prices = api.view.prices();
    notices.extend(prices.notice.map(|why| sight.told(why, OLD_PRICES)));
    let money = (prices.book.as_deref(), option);
    let answer = match api.view.engine() {
        None => by_rule(&workload, &devices, money),
        Some(engine) => {
            let question = (&workload, asked.workload);
            match engine.ask(question, &devices, api.view.clock()).await {
                Ok(said) => by_engine(said, &devices, money),
                Err(error) => {
                    // Where it is can be a name of somebody's network.
                    let source = if sight.nodes { engine.url() } else { ENGINE };
                    let why = sight.told(chain(&error), &error.to_string());
                    without_times(source, &why, &devices)
                }
            }
        }
    };
    Ok(Json(EstimateAnswer { notices, ..answer }))
}

type Money<'b> = (Option<&'b PriceBook>, PurchaseOption);

/// One device of each type that the fleet has.
fn of_fleet(api: &Api, notices: &mut Vec<String>) -> Vec<Devices> {
    let types = api.view.fleet().types(api.view.clock().now());
    let mut all: Vec<Devices> = types
        .into_iter()
        .filter_map(|one| one.counts.type_name)
        .map(|type_name| Devices {
            type_name,
            count: 1,
        })
        .collect();
    if all.len() > MOST_ITEMS {
        notices.push(format!(
            "the fleet has {} types; the first {MOST_ITEMS} are answered",
            all.len()
        ));
        all.truncate(MOST_ITEMS);
    }
    all
}

fn by_rule(workload: &Workload, devices: &[Devices], money: Money<'_>) -> EstimateAnswer {
    let rows = devices.iter().map(|one| match roofline(workload, one) {
        Ok(figure) => row(one, figure, true, money),
        Err(why) => EstimateRow {
            why_not: Some(why.to_string()),
            ..bare(one)
        },
    });
    EstimateAnswer {
        assumptions: assumptions(workload),
        ..answer(SOURCE, rows.collect())
    }
}

fn by_engine(said: Said, devices: &[Devices], money: Money<'_>) -> EstimateAnswer {
    let rows = devices.iter().map(|one| {
        let key = (one.type_name.to_string(), one.count);
        match said.figures.get(&key) {
            Some((figure, interpolated)) => row(one, *figure, *interpolated, money),
            None => EstimateRow {
                why_not: Some("the engine has no figure for it".to_owned()),
                ..bare(one)
            },
        }
    });
    let rows = rows.collect();
    EstimateAnswer {
        assumptions: said.assumptions,
        ..answer(&said.source, rows)
    }
}

fn without_times(source: &str, why: &str, devices: &[Devices]) -> EstimateAnswer {
    EstimateAnswer {
        times: "none".to_owned(),
        reason: Some(why.to_owned()),
        ..answer(source, devices.iter().map(bare).collect())
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

fn row(of: &Devices, figure: Figure, interpolated: bool, (book, option): Money<'_>) -> EstimateRow {
    let price = book.and_then(|book| book.price(&of.type_name, option));
    let cost = price.and_then(|price| cost(figure, &price, of.count));
    let (seconds, speed) = match figure {
        Figure::Seconds(time) => (Some(time.into()), None),
        Figure::TokensPerSecond(speed) => (None, Some(speed.into())),
    };
    EstimateRow {
        seconds,
        tokens_per_second: speed,
        interpolated,
        cost: cost.map(Into::into),
        ..bare(of)
    }
}

fn bare(of: &Devices) -> EstimateRow {
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
