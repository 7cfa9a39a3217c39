//! Hardware profiles that meet the objectives of a service, based on measurements from a model catalog: a form, and the
//! answer.
//!
//! Measurements are too long for an address, so the form is posted and cannot be linked to. It works without
//! JavaScript.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_files::measured_rows::parse;
use octavo_fleet::price::PriceError;
use octavo_fleet::slo::{Objectives, SloAnswer, SloRequest, SloRow};
use octavo_store::slo;
use octavo_toolkit::error::chain;

use crate::badges::printable;
use crate::frame::Frame;
use crate::{PageState, html, origin};

/// Maximum number of rows shown; the best come first.
const MAX_ROWS: usize = 200;

#[derive(Template)]
#[template(path = "objectives.html")]
struct ObjectivesPage {
    frame: Frame,
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
    rows: Vec<SloRow>,
    /// Number of rows that are not shown.
    more: usize,
}

/// Serves the empty form.
pub(crate) async fn form(State(site): State<PageState>, uri: Uri, headers: HeaderMap) -> Response {
    let page = ObjectivesPage {
        frame: Frame::new(&site.view),
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
    ReaderVisibility(visibility): ReaderVisibility,
    (uri, headers): (Uri, HeaderMap),
    Form(pairs): Form<Vec<(String, String)>>,
) -> Response {
    let form = ObjectivesForm::of(pairs);
    let answer = match form.request() {
        Err(why) => Err(why),
        Ok(request) => {
            let answer = slo::evaluate_objectives(&site.view, &visibility, request).await;
            answer.map_err(|error| error.to_string())
        }
    };
    let (status, refused, answer) = match answer {
        Ok(answer) => (StatusCode::OK, None, Some(ObjectivesAnswer::new(answer))),
        Err(why) => (StatusCode::BAD_REQUEST, Some(printable(&why)), None),
    };
    let page = ObjectivesPage {
        frame: Frame::new(&site.view),
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
            return Err("Paste the benchmark results of a model catalog, as JSON.".to_owned());
        }
        let found =
            parse(&self.rows).map_err(|error| format!("benchmark results: {}", chain(&error)))?;
        let number = |text: &str, of: &str| -> Result<f64, String> {
            let number = text.trim().parse().ok();
            number.ok_or_else(|| format!("{of}: {text:?} is not a number"))
        };
        let price = (!self.price.is_empty()).then(|| self.price.parse());
        let mut objectives = Objectives {
            price_at_most_per_hour: price
                .transpose()
                .map_err(|error: PriceError| error.to_string())?,
            ..Objectives::default()
        };
        if !self.rate.is_empty() {
            let rate = number(&self.rate, "requests/s")?;
            objectives.requests_per_second_at_least = Some(rate);
        }
        let latencies = self.latencies.split(',').map(str::trim);
        for one in latencies.filter(|one| !one.is_empty()) {
            let (name, most) = one.split_once('=').ok_or_else(|| {
                format!("latencies: invalid value {one:?}: expected a form such as ttft_p90=300")
            })?;
            let most = number(most, "latencies")?;
            objectives.latencies_at_most.insert(name.trim().to_owned(), most);
        }
        Ok(SloRequest { objectives, rows: found.rows })
    }
}

impl ObjectivesAnswer {
    fn new(answer: SloAnswer) -> Self {
        let count = answer.items.len();
        Self {
            summary: format!("{} of {count} results meet all objectives", answer.met),
            notices: answer.notices,
            rows: answer.items.into_iter().take(MAX_ROWS).collect(),
            more: count.saturating_sub(MAX_ROWS),
        }
    }
}
