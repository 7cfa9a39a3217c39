//! Web pages: the list of nodes, a node, availability and profiles, and their components.
//!
//! Pages are rendered on the server and work without JavaScript. With it, they update live: the script waits at
//! `/live`, reloads the page and replaces what differs. Nothing is loaded from other origins, pages contain no inline
//! script or style, and every text is escaped, because names and errors come from drivers and peers.

mod address;
mod assets;
mod availability;
mod bar;
mod chips;
mod facts;
mod form;
mod groups;
mod layout;
mod list;
mod live;
mod names;
mod node;
mod plan;
mod profiles;
mod rows;
mod shares;
mod slices;
mod words;

use std::sync::Arc;

use askama::Template;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::Semaphore;

use self::assets::Assets;
use super::access::{Refused, host, refused};
use super::availability::Counter;
use super::view::View;
use crate::domain::access::Sight;
use crate::domain::error::chain;
use crate::domain::id::NodeName;

/// Content Security Policy: a page can only load its own files and send requests to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Maximum number of pages that wait for changes; further ones poll every few seconds.
const MOST_STREAMS: usize = 256;

/// State shared by the handlers.
#[derive(Debug, Clone)]
struct Site {
    view: View,
    availability: Counter,
    streams: Arc<Semaphore>,
}

/// Routes of the pages, with an error page for unknown addresses.
pub fn router(availability: Counter) -> Router {
    let site = Site {
        view: availability.view().clone(),
        availability,
        streams: Arc::new(Semaphore::new(MOST_STREAMS)),
    };
    let long_forms = Arc::new(Semaphore::new(profiles::MAX_LONG_FORMS));
    Router::new()
        .route("/", get(nodes))
        .route("/nodes/{name}", get(one_node))
        .route("/nodes", get(to_the_list))
        .route("/nodes/", get(to_the_list))
        .route("/availability", get(what_is_to_be_had))
        .route("/compare", get(profiles::compare::page))
        .route(
            "/objectives",
            get(profiles::objectives::form)
                .post(profiles::objectives::answer)
                .layer(DefaultBodyLimit::max(profiles::MAX_FORM_BYTES)),
        )
        .route("/profiles", get(profiles::list))
        .route(
            "/profiles/new",
            get(profiles::new)
                .post(profiles::make)
                .layer(DefaultBodyLimit::max(profiles::MAX_DRAFT_FORM_BYTES))
                .layer(from_fn_with_state(long_forms, profiles::bounded)),
        )
        .route("/profiles/{name}", get(profiles::named))
        .route("/profiles/{namespace}/{name}", get(profiles::keyed))
        .route("/live", get(live::stream))
        .route("/assets/{file}", get(assets::file))
        .fallback(no_such_page)
        .layer(map_response(guarded))
        .with_state(site)
}

async fn nodes(
    State(site): State<Site>,
    sight: Option<Extension<Sight>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    // Without a guard in front of it, the page shows nothing.
    let sight = sight.map_or_else(Sight::nothing, |Extension(sight)| sight);
    let page = list::page(&site.view, &sight, &uri, &origin(&uri, &headers));
    let status = if page.is_wrong() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    html(status, &page)
}

/// Redirects `/nodes`, which users may type by analogy with the API's path.
async fn to_the_list(uri: Uri) -> Redirect {
    let query = uri.query().map(|query| format!("?{query}"));
    Redirect::permanent(&format!("/{}", query.unwrap_or_default()))
}

async fn one_node(
    State(site): State<Site>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let fleet = site.view.listed();
    let known = name.parse::<NodeName>().ok();
    let known = known.and_then(|name| fleet.nodes.get(&name));
    let Some(node) = known else {
        let page = Missing {
            assets: Assets::links(),
            title: "No such node",
            text: "No agent has reported a node of that name. It may have been removed, or its agent may not have come \
                back since the aggregator was started.",
        };
        return html(StatusCode::NOT_FOUND, &page);
    };
    let reader = node::Reader {
        layouts: site.view.layouts(),
        layout: parameter(&uri, "layout"),
        type_override: parameter(&uri, "type-override"),
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &node::page(node, site.view.clock(), reader))
}

async fn what_is_to_be_had(
    State(site): State<Site>,
    sight: Option<Extension<Sight>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let sight = sight.map_or_else(Sight::nothing, |Extension(sight)| sight);
    match site.availability.latest().await {
        Some(counted) => {
            let origin = origin(&uri, &headers);
            let page = availability::page(&site.availability, &counted, &sight, &origin);
            html(StatusCode::OK, &page)
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Value of a query parameter.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let found = pairs.into_iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// Renders the page for a refused request.
pub(super) fn refusal(refused: &Refused) -> Response {
    let (status, title) = match refused.kind() {
        refused::Kind::Unauthenticated => (StatusCode::UNAUTHORIZED, "It is not known who you are"),
        refused::Kind::BadProxy => (
            StatusCode::BAD_REQUEST,
            "The word of a proxy cannot be taken",
        ),
        refused::Kind::Forbidden => (StatusCode::FORBIDDEN, "You may not see or do this"),
        refused::Kind::Crossing => (StatusCode::FORBIDDEN, "Another site made this request"),
        refused::Kind::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            "This server is not known by that host name",
        ),
        refused::Kind::NotFound => (StatusCode::NOT_FOUND, "There is no such page"),
        refused::Kind::Method => (
            StatusCode::METHOD_NOT_ALLOWED,
            "This method is not possible here",
        ),
        refused::Kind::Unchecked => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Nobody can say now whether you may see or do this",
        ),
    };
    let page = Unseen {
        assets: Assets::links(),
        title,
        text: chain(refused),
    };
    let mut response = guard(html(status, &page));
    let mut say = |name, value: &'static str| {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value))
    };
    if status == StatusCode::UNAUTHORIZED {
        say(header::WWW_AUTHENTICATE, "Bearer");
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        say(header::RETRY_AFTER, "1");
    }
    if let Some(allowed) = refused.allowed() {
        say(header::ALLOW, allowed);
    }
    // The same request may succeed a moment later with another token.
    say(header::CACHE_CONTROL, "no-store");
    response
}

async fn no_such_page() -> Response {
    let page = Missing {
        assets: Assets::links(),
        title: "There is no such page",
        text: "The address may be mistyped, or the page was one of another version.",
    };
    html(StatusCode::NOT_FOUND, &page)
}

/// Page for a refused request.
#[derive(Template)]
#[template(path = "unseen.html")]
struct Unseen {
    assets: Assets,
    title: &'static str,
    text: String,
}

/// Page for an unknown address.
#[derive(Template)]
#[template(path = "missing.html")]
struct Missing {
    assets: Assets,
    title: &'static str,
    text: &'static str,
}

/// Base URL by which the reader reached this server, for the commands on a page. The script corrects the scheme if a
/// proxy does not report that it terminated TLS.
fn origin(uri: &Uri, headers: &HeaderMap) -> String {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let secure = word("x-forwarded-proto").or_else(|| uri.scheme_str()) == Some("https");
    let named = host(uri, headers).filter(|name| !name.is_empty());
    let host = named.unwrap_or("localhost");
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{host}")
}

fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn guarded(response: Response) -> Response {
    guard(response)
}

/// Sets the headers of every response.
fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, a browser would also omit the origin of a same-site form.
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let cache = headers.entry(header::CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests;
