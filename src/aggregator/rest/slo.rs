//! Which measured rows of a model catalogue meet objectives, on types that the fleet has.

use axum::Json;
use axum::extract::State;
use tokio::task::spawn_blocking;

use super::Api;
use super::body::Sent;
use super::nodes::Pairs;
use super::problem::{Failure, Kind};
use super::seen::Seen;
use crate::aggregator::estimates::OLD_PRICES;
use crate::domain::slo::{Objectives, judge};
use crate::wire::api::Problem;
use crate::wire::slo::{SloAnswer, SloRequest, rows};

/// Measured rows that meet objectives of a service
#[utoipa::path(
    post,
    path = "/api/v1/slo",
    tag = "fleet",
    request_body(content = SloRequest, description = "What the service shall keep, and rows of a model catalogue's performance data"),
    responses(
        (status = 200, description = "All rows: those that meet all first, and what the others miss", body = SloAnswer),
        (status = 400, description = "The document cannot be meant; `parameter` names its field", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn meet(
    State(api): State<Api>,
    Seen(sight): Seen,
    pairs: Pairs,
    Sent(asked): Sent<SloRequest>,
) -> Result<Json<SloAnswer>, Failure> {
    pairs.none()?;
    let wanted = Objectives::try_from(asked.objectives)?;
    let measured = rows(asked.rows)?;
    let prices = api.view.prices();
    // Names that nobody knows are looked for among all there are: not on the thread that answers others.
    let book = prices.book.clone();
    let judging = spawn_blocking(move || {
        let judged = judge(&measured, &wanted, book.as_deref());
        (measured, judged)
    });
    let (measured, judged) = judging.await.map_err(|_ended| {
        Failure::new(Kind::Internal, "the rows could not be judged; try again")
    })?;
    let types = api.view.listed().types(api.view.clock().now());
    let named = types.into_iter().filter_map(|one| one.counts.type_name);
    let here: Vec<String> = named.map(|name| name.to_string()).collect();
    let currency = prices.book.as_deref().map(|book| book.currency().clone());
    let answer = SloAnswer::of(&measured, judged, (&here, currency.as_ref()));
    let notice = prices.notice.map(|why| sight.told(why, OLD_PRICES));
    Ok(Json(SloAnswer {
        notices: notice.into_iter().collect(),
        ..answer
    }))
}
