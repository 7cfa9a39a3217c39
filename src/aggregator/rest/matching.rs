//! Which of the fleet suits what a pod needs.

use axum::Json;
use axum::extract::State;
use tokio::task::yield_now;

use super::Api;
use super::body::Sent;
use super::nodes::Pairs;
use super::problem::Failure;
use super::seen::Seen;
use crate::aggregator::estimates::OLD_PRICES;
use crate::aggregator::offers::Gathering;
use crate::domain::matching::{self, Request};
use crate::wire::api::Problem;
use crate::wire::matching::{MatchAnswer, MatchRequest};

/// What is said where the scheduler's view is known too.
const OTHER_COUNT: &str = "free is what agents see without a process; /api/v1/availability says what the scheduler would place";

/// What suits a pod, the best first, and why not the rest
#[utoipa::path(
    post,
    path = "/api/v1/match",
    tag = "fleet",
    request_body(content = MatchRequest, description = "What the pod needs; nothing is changed or reserved by asking"),
    responses(
        (status = 200, description = "What fits and what does not; `verdict` says what it comes to", body = MatchAnswer),
        (status = 400, description = "The document cannot be meant; `parameter` names its field", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn find(
    State(api): State<Api>,
    Seen(sight): Seen,
    pairs: Pairs,
    Sent(asked): Sent<MatchRequest>,
) -> Result<Json<MatchAnswer>, Failure> {
    pairs.none()?;
    let request = Request::try_from(asked)?;
    let prices = api.view.prices();
    let fleet = api.view.fleet();
    let now = api.view.clock().now();
    let mut gathering = Gathering::new(&fleet, &api.shelf, &request, now);
    // The one thread that answers is others' too.
    while gathering.step() {
        yield_now().await;
    }
    if !sight.nodes {
        gathering.name_no_node();
    }
    let offers = gathering.offers(prices.book.as_deref(), &request);
    api.shelf.tidy(&fleet);
    let answer = matching::answer(&request, offers);
    let notice = prices.notice.map(|why| sight.told(why, OLD_PRICES));
    let mut notices: Vec<String> = notice.into_iter().collect();
    notices.extend(api.availability.follows().then(|| OTHER_COUNT.to_owned()));
    Ok(Json(MatchAnswer::of(answer, fleet.revision, notices)))
}
