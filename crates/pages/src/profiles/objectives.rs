//! Hardware profiles that meet the objectives of a service, based on measurements from a model catalog: a form, and the
//! answer.
//!
//! Measurements are too long for an address, so the form is posted and cannot be linked to. It works without
//! JavaScript.

use std::fmt::Write;

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::slo::{ObjectivesJson, SloAnswer, SloProfile, SloRequest, SloRow, parse};
use octavo_fleet::price::shown as amount;
use octavo_store::slo;
use octavo_toolkit::error::chain;

use crate::address::encoded;
use crate::assets::Assets;
use crate::format::printable;
use crate::{PageState, html, origin};

/// Maximum number of rows shown; the best come first.
const MAX_ROWS: usize = 200;

#[derive(Template)]
#[template(path = "objectives.html")]
struct ObjectivesPage {
    assets: Assets,
    form: ObjectivesForm,
    refused: Option<String>,
    answer: Option<ObjectivesAnswer>,
    origin: String,
}

/// Fields of the form.
#[derive(Debug, Default)]
struct ObjectivesForm {
    rate: String,
    latencies: String,
    price: String,
    rows: String,
}

/// Answer as shown on the page.
#[derive(Debug)]
struct ObjectivesAnswer {
    summary: String,
    notices: Vec<String>,
    lines: Vec<MeasurementRow>,
    /// Number of rows that are not shown.
    more: usize,
}

/// Measured configuration.
#[derive(Debug)]
struct MeasurementRow {
    hardware: String,
    here: bool,
    count: u32,
    copies: String,
    cost: String,
    keeps: bool,
    misses: Vec<String>,
    profiles: Vec<ProfileLink>,
}

/// Matching hardware profile.
#[derive(Debug)]
struct ProfileLink {
    href: String,
    shown: String,
    key: String,
    free: String,
}

/// Serves the empty form.
pub(crate) async fn form(uri: Uri, headers: HeaderMap) -> Response {
    let page = ObjectivesPage {
        assets: Assets::links(),
        form: ObjectivesForm::default(),
        refused: None,
        answer: None,
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &page)
}

/// Serves the submitted form with its answer.
pub(crate) async fn answer(
    State(site): State<PageState>,
    ReaderVisibility(sight): ReaderVisibility,
    (uri, headers): (Uri, HeaderMap),
    Form(pairs): Form<Vec<(String, String)>>,
) -> Response {
    let form = ObjectivesForm::of(pairs);
    let answer = match form.request() {
        Err(why) => Err(why),
        Ok(request) => {
            let answer = slo::evaluate_objectives(&site.view, &sight, request).await;
            answer.map_err(|error| error.to_string())
        }
    };
    let (status, refused, answer) = match answer {
        Ok(answer) => (StatusCode::OK, None, Some(ObjectivesAnswer::of(&answer))),
        Err(why) => (StatusCode::BAD_REQUEST, Some(printable(&why)), None),
    };
    let page = ObjectivesPage {
        assets: Assets::links(),
        form,
        refused,
        answer,
        origin: origin(&uri, &headers),
    };
    html(status, &page)
}

impl ObjectivesForm {
    fn of(pairs: Vec<(String, String)>) -> Self {
        let mut fields = Self::default();
        for (name, value) in pairs {
            let field = match name.as_str() {
                "rate" => &mut fields.rate,
                "latencies" => &mut fields.latencies,
                "price" => &mut fields.price,
                "rows" => &mut fields.rows,
                _ => continue,
            };
            value.trim().clone_into(field);
        }
        fields
    }

    fn request(&self) -> Result<SloRequest, String> {
        if self.rows.is_empty() {
            return Err("Paste the measured rows of a model catalog, as JSON.".to_owned());
        }
        let found =
            parse(&self.rows).map_err(|error| format!("measured rows: {}", chain(&error)))?;
        let number = |text: &str, of: &str| -> Result<f64, String> {
            let number = text.trim().parse().ok();
            number.ok_or_else(|| format!("{of}: {text:?} is no number"))
        };
        let mut objectives = ObjectivesJson {
            price_at_most_per_hour: (!self.price.is_empty()).then(|| self.price.clone()),
            ..ObjectivesJson::default()
        };
        if !self.rate.is_empty() {
            let rate = number(&self.rate, "requests a second")?;
            objectives.requests_per_second_at_least = Some(rate);
        }
        let latencies = self.latencies.split(',').map(str::trim);
        for one in latencies.filter(|one| !one.is_empty()) {
            let (name, most) = one
                .split_once('=')
                .ok_or_else(|| format!("latencies: {one:?} is not like ttft_p90=300"))?;
            let most = number(most, "latencies")?;
            objectives
                .latencies_at_most
                .insert(name.trim().to_owned(), most);
        }
        Ok(SloRequest {
            objectives,
            rows: found.rows,
        })
    }
}

impl ObjectivesAnswer {
    fn of(answer: &SloAnswer) -> Self {
        let rows = answer.items.iter();
        let lines: Vec<MeasurementRow> = rows.take(MAX_ROWS).map(MeasurementRow::of).collect();
        Self {
            summary: format!(
                "{} of {} rows keep all objectives",
                answer.met,
                answer.items.len()
            ),
            notices: answer.notices.iter().map(|text| printable(text)).collect(),
            more: answer.items.len().saturating_sub(lines.len()),
            lines,
        }
    }
}

impl MeasurementRow {
    fn of(row: &SloRow) -> Self {
        let cost = row.per_hour.as_ref().map(|price| {
            let mut text = amount(price);
            if let Some(currency) = &row.currency {
                let _written = write!(text, " {currency}");
            }
            text
        });
        Self {
            hardware: printable(&row.hardware),
            here: !row.here.is_empty(),
            count: row.count,
            copies: row
                .replicas
                .map_or_else(|| "-".to_owned(), |copies| copies.to_string()),
            cost: cost.unwrap_or_else(|| "no price".to_owned()),
            keeps: row.misses.is_empty(),
            misses: row.misses.iter().map(|text| printable(text)).collect(),
            profiles: row.profiles.iter().map(ProfileLink::of).collect(),
        }
    }
}

impl ProfileLink {
    fn of(one: &SloProfile) -> Self {
        let name = encoded(&one.name);
        Self {
            href: match one.namespace.as_str() {
                "" => format!("/profiles/{name}"),
                namespace => format!("/profiles/{}/{name}", encoded(namespace)),
            },
            shown: printable(&one.display_name),
            key: printable(&one.key()),
            free: match one.available {
                Some(free) => format!("{free} available"),
                None => "availability unknown".to_owned(),
            },
        }
    }
}
