//! Matching of a pod's needs with the fleet.

use std::mem;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::availability::CountBasis;
use octavo_fleet::matching::{
    self, Isolation, MatchAnswer, MatchRequest, Measurement, Offer, ProfileOffer, Request,
    ThroughputTable,
};
use octavo_fleet::measured_speed::measured_speeds;
use octavo_fleet::price::CurrentPrices;
use octavo_fleet::problem::Problem;
use octavo_model::accelerators::Catalog;
use octavo_store::availability::AvailabilityCount;
use octavo_store::fleet::Fleet;
use octavo_store::offers::{
    ClusterOffers, OfferCollector, OfferSource, redact_node_names, unoffered_units_note,
};
use octavo_store::profiles::ProfileTargets;
use octavo_store::view::PRICES_OUTDATED;
use tokio::task::{spawn_blocking, yield_now};

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

const MATCH_FAILED: &str = "matching failed because of an internal error; retry";

/// Match the requirements of a pod with hardware profiles and accelerators
///
/// The best match comes first. Hardware profiles come before accelerators that no profile covers. Rejected candidates are listed
/// with the reason. With `--follow-cluster`, free capacity is what the scheduler would place; otherwise it is what agents see
/// without a process. `freeBy` shows which. Clients with access to single types receive those types and the profiles that match
/// only those types.
#[utoipa::path(
    post,
    path = "/api/v1/match",
    tag = "fleet",
    request_body(content = MatchRequest, description = "Requirements of the pod; the request changes and reserves nothing"),
    responses(
        (status = 200, description = "Matches and rejections; `verdict` is the summary", body = MatchAnswer),
        (status = 400, description = "Invalid body; `parameter` names the field", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn find(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    JsonBody(mut body): JsonBody<MatchRequest>,
) -> Result<Json<MatchAnswer>, ApiError> {
    pairs.expect_empty()?;
    let measured = measured_speeds(&mem::take(&mut body.performance))?;
    let request = Request::try_from(body)?;
    let (fleet, prices) = (api.view.fleet(), api.view.prices());
    let revision = fleet.revision;
    let led = if visibility.profiles {
        let led = api.view.profiles().targets(fleet.clone()).await;
        led.map_err(|_not_led| ApiError::new(ProblemKind::Internal, MATCH_FAILED))?
    } else {
        None
    };
    let counted =
        if api.availability.has_cluster() { api.availability.current().await } else { None };
    let counted = counted.filter(|one| one.availability.basis == CountBasis::Cluster);
    let notice = prices.notice.map(|why| visibility.disclose(why, PRICES_OUTDATED));
    let mut notices: Vec<String> = notice.into_iter().collect();
    notices.extend(staleness_notices(&api, (counted.as_ref(), led.is_some()), &visibility));
    let free_by = counted.as_ref().map_or(CountBasis::Agents, |_| CountBasis::Cluster);
    let price_list = prices.prices;
    let agents = if counted.is_some() {
        Vec::new()
    } else {
        let isolation = led.as_ref().map_or(request.isolation, |_| Isolation::Shared);
        agent_offers(&api, &fleet, (&request, isolation), price_list.as_ref()).await
    };
    let known = MatchInputs { counted, agents, led, visibility };
    // Resolves names against the whole catalog and evaluates many profiles, so it runs on a blocking thread.
    let judging = spawn_blocking(move || known.answer(request, &measured, price_list.as_ref()));
    let (answer, more) =
        judging.await.map_err(|_ended| ApiError::new(ProblemKind::Internal, MATCH_FAILED))?;
    notices.extend(more);
    Ok(Json(MatchAnswer { revision, free_by: free_by.as_str().to_owned(), notices, ..answer }))
}

/// Collects offers from agents' reports in small steps, because other tasks share the thread.
async fn agent_offers(
    api: &Api,
    fleet: &Fleet,
    (request, isolation): (&Request, Isolation),
    price_list: Option<&CurrentPrices>,
) -> Vec<Offer> {
    let now = api.view.clock().now();
    let mut gathering = OfferCollector::new(fleet, &api.partitions, isolation, now);
    while gathering.step() {
        yield_now().await;
    }
    let offers = gathering.offers(price_list, request);
    api.partitions.retain_nodes_of(fleet);
    offers
}

/// Why the answer may be out of date or incomplete.
fn staleness_notices(
    api: &Api,
    (counted, is_led): (Option<&AvailabilityCount>, bool),
    visibility: &Visibility,
) -> Vec<String> {
    let mut notices = Vec::new();
    match counted.map(|counted| api.availability.age(counted)) {
        Some(age) if age.is_stale => notices.push(format!(
            "free capacity is based on cluster data that is {} s old",
            age.age.as_secs()
        )),
        None if api.availability.has_cluster() => notices.push(
            "cluster data has not been read yet: devices without a process count as free"
                .to_owned(),
        ),
        Some(_) | None => {}
    }
    let is_starting = api.view.startup().is_some();
    let notice = api.view.profiles_notice(visibility);
    notices.extend(notice.filter(|_| is_led || is_starting));
    if let VisibleTypes::Only(_) = visibility.types {
        notices.push("only types that you have access to are matched".to_owned());
    }
    notices
}

/// Inputs of an answer.
struct MatchInputs {
    counted: Option<AvailabilityCount>,
    agents: Vec<Offer>,
    led: Option<Arc<Vec<ProfileTargets>>>,
    visibility: Visibility,
}

impl MatchInputs {
    /// Returns the answer with its notices.
    fn answer(
        self,
        mut request: Request,
        measured: &[Measurement],
        price_list: Option<&CurrentPrices>,
    ) -> (MatchAnswer, Vec<String>) {
        request.currency = price_list.map(|prices| prices.currency().clone());
        request.throughput = ThroughputTable::from_rows(measured, &Catalog::built_in());
        let mut notices: Vec<String> = unknown_hardware_note(&request).into_iter().collect();
        let counted = self.counted.as_ref().map(|counted| &*counted.availability);
        let counts = counted.map(|counted| ClusterOffers::of(counted, &request, price_list));
        let ground = if let (Some(counted), Some(counts)) = (counted, &counts) {
            OfferSource::Cluster(counted, counts)
        } else {
            OfferSource::Agents(&self.agents)
        };
        let through = self.led.as_ref().map(|led| ground.resolve_profiles(led));
        let unoffered = counted.and_then(|counted| unoffered_units_note(&counted.rows));
        notices.extend(unoffered.filter(|_| self.sees_all()));
        let mut offers = match counts {
            Some(counts) => counts.into_offers(),
            None => self.agents,
        };
        let visibility = self.visibility;
        offers.retain(|offer| visibility.types.contains(Some(&offer.type_name)));
        if !visibility.nodes {
            redact_node_names(&mut offers);
        }
        let answer = if let Some(through) = through {
            let through = visible_profiles(through, &visibility);
            matching::match_profiles(&request, offers, through)
        } else {
            // Without profiles that offer partitions, they do not matter to requests for whole devices.
            let wants_whole = request.isolation == Isolation::Exclusive;
            offers.retain(|offer| !(wants_whole && offer.shape.is_part()));
            matching::answer(&request, offers)
        };
        (answer, notices)
    }

    fn sees_all(&self) -> bool {
        self.visibility.types == VisibleTypes::All
    }
}

/// Keeps profiles whose types the reader is allowed to see, and removes node names if necessary.
fn visible_profiles(mut through: Vec<ProfileOffer>, visibility: &Visibility) -> Vec<ProfileOffer> {
    if let VisibleTypes::Only(_) = visibility.types {
        through.retain(|one| {
            let mut types = one.offers.iter().map(|offer| &offer.type_name);
            !one.offers.is_empty()
                && one.rejections.is_empty()
                && types.all(|name| visibility.types.contains(Some(name)))
        });
    }
    if !visibility.nodes {
        for one in &mut through {
            redact_node_names(&mut one.offers);
        }
    }
    through
}

/// Describes unknown hardware in the measurements.
fn unknown_hardware_note(request: &Request) -> Option<String> {
    let names: Vec<String> =
        request.throughput.unknown().iter().take(8).map(|name| format!("{name:?}")).collect();
    (!names.is_empty()).then(|| {
        format!("benchmark results with unknown hardware are ignored: {}", names.join(", "))
    })
}
