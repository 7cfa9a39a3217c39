//! Web pages: the overview, the list of nodes, a node, layouts, policies, availability, demand, teams, cost and
//! profiles, and their components.
//!
//! Pages are rendered on the server and work without JavaScript. With it, they update live: the script waits at
//! `/live`, reloads the page and replaces what differs. Nothing is loaded from other origins, pages contain no inline
//! script or style, and every text is escaped, because names and errors come from drivers and peers.

mod address;
mod assets;
mod availability;
mod badges;
mod bar;
mod card_lines;
mod chart;
mod cost;
mod demand;
mod device_card;
mod filter_form;
mod frame;
mod groups;
mod health;
mod history;
mod layout;
mod layouts;
mod list;
mod live;
mod live_values;
mod map;
mod node;
mod nodes_csv;
mod overview;
mod pager;
mod plan;
mod policies;
mod profiles;
mod prometheus;
mod rollouts;
mod rows;
mod search;
mod sharing;
mod slice_diagram;
mod slots;
mod teams;
mod timeline;
mod topology;
mod unknown_devices;
mod unreported_use;
mod vendor_devices;

use std::sync::Arc;

use askama::Template;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use octavo_access::guard::{AccessError, error, requested_host};
use octavo_fleet::access::{RouteRule, Visibility};
use octavo_model::id::NodeName;
use octavo_store::availability::Counter;
use octavo_store::view::FleetView;
use octavo_toolkit::error::chain;
use tokio::sync::Semaphore;

use self::address::{parameter_error, query_parameter};
use self::frame::Frame;
use self::policies::NodePolicy;

/// Content Security Policy: a page can only load its own files and send requests to its own server.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Maximum number of pages that wait for changes; further ones poll every few seconds.
const MAX_STREAMS: usize = 256;

/// State shared by the handlers.
#[derive(Debug, Clone)]
struct PageState {
    view: FleetView,
    availability: Counter,
    streams: Arc<Semaphore>,
}

/// Routes of the pages, with an error page for unknown addresses.
pub fn router(availability: Counter) -> Router {
    let site = PageState {
        view: availability.view().clone(),
        availability,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
    };
    let long_forms = Arc::new(Semaphore::new(profiles::MAX_LONG_FORMS));
    Router::new()
        .route("/", get(overview::show))
        .route("/nodes/{name}", get(node))
        .route("/nodes", get(nodes))
        .route("/nodes.csv", get(nodes_csv::download))
        .route("/map", get(map::page))
        .route("/layouts", get(layouts::show))
        .route("/layouts/dry-run", get(layouts::dry_run::show))
        .route("/policies", get(policies::show))
        .route("/policies/{name}", get(policies::detail::show))
        .route("/search", get(search::page))
        .route("/availability", get(self::availability))
        .route("/demand", get(demand::show))
        .route("/teams", get(teams::show))
        .route("/cost", get(cost::show))
        .route("/cost.csv", get(cost::download))
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
                .post(profiles::submit_draft)
                .layer(DefaultBodyLimit::max(profiles::MAX_DRAFT_FORM_BYTES))
                .layer(from_fn_with_state(long_forms, profiles::limit_long_forms)),
        )
        .route("/profiles/{name}", get(profiles::profile_without_namespace))
        .route("/profiles/{namespace}/{name}", get(profiles::profile))
        .route("/live", get(live::stream))
        .route("/assets/{file}", get(assets::file))
        .fallback(not_found)
        .layer(map_response(with_headers))
        .with_state(site)
}

async fn nodes(
    State(site): State<PageState>,
    visibility: Option<Extension<Visibility>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    // Without a guard in front of it, the page shows nothing.
    let visibility = visibility.map_or_else(Visibility::none, |Extension(visibility)| visibility);
    let page = list::page(&site.view, &visibility, &uri, &origin(&uri, &headers));
    html(status_of(page.wrong.as_ref()), &page)
}

/// Status of a page with a message about its address, if there is one.
fn status_of(wrong: Option<&String>) -> StatusCode {
    wrong.map_or(StatusCode::OK, |_| StatusCode::BAD_REQUEST)
}

/// Redirects to another path, with the parameters of `uri`.
fn redirect(uri: &Uri, path: &str) -> Response {
    let query = uri.query().map(|query| format!("?{query}"));
    Redirect::permanent(&format!("{path}{}", query.unwrap_or_default())).into_response()
}

async fn node(
    State(site): State<PageState>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let fleet = site.view.listed();
    let known = name.parse::<NodeName>().ok();
    let known = known.and_then(|name| fleet.nodes.get(&name));
    let Some(node) = known else {
        let page = NotFoundPage {
            frame: Frame::new(&site.view),
            title: "Node not found",
            text: "No agent has reported a node with this name. It may have been removed, or its agent has not \
                reconnected since the aggregator started.",
        };
        return html(StatusCode::NOT_FOUND, &page);
    };
    let reader = node::PageParameters {
        frame: Frame::new(&site.view),
        layouts: site.view.layouts(),
        history: site.view.history(),
        policy: NodePolicy::new(&site.view, &node.name),
        prometheus: site.view.prometheus().map(str::to_owned),
        layout: query_parameter(&uri, "layout"),
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &node::page(node, site.view.clock(), reader))
}

async fn availability(
    State(site): State<PageState>,
    visibility: Option<Extension<Visibility>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visibility = visibility.map_or_else(Visibility::none, |Extension(visibility)| visibility);
    match site.availability.latest().await {
        Some(counted) => {
            let origin = origin(&uri, &headers);
            let mut page = availability::page(&site.availability, &counted, &visibility, &origin);
            page.wrong = parameter_error(&uri, "");
            html(status_of(page.wrong.as_ref()), &page)
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Renders the page for a refused request.
pub fn refusal_page(refused: &AccessError) -> Response {
    let (status, title) = match refused.kind() {
        error::AccessErrorKind::Unauthenticated => {
            (StatusCode::UNAUTHORIZED, "Authentication required")
        }
        error::AccessErrorKind::UntrustedProxy => (StatusCode::BAD_REQUEST, "Untrusted proxy"),
        error::AccessErrorKind::Forbidden => (StatusCode::FORBIDDEN, "Access denied"),
        error::AccessErrorKind::CrossSite => (StatusCode::FORBIDDEN, "Cross-site request rejected"),
        error::AccessErrorKind::Host => (StatusCode::MISDIRECTED_REQUEST, "Unknown host name"),
        error::AccessErrorKind::NotFound => (StatusCode::NOT_FOUND, "Page not found"),
        error::AccessErrorKind::Method => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
        error::AccessErrorKind::ReviewUnavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "Authorization is unavailable")
        }
    };
    let hint = refused.is_about_all_usage().then_some(
        "With access to one namespace, add its name to the address: /teams?namespace=NAME, /cost?namespace=NAME, or /search?namespace=NAME.",
    );
    let page = RefusedPage { frame: Frame::without_cluster(), title, text: chain(refused), hint };
    let mut response = set_headers(html(status, &page));
    let mut set = |name, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value))
    };
    if status == StatusCode::UNAUTHORIZED {
        set(header::WWW_AUTHENTICATE, "Bearer");
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        set(header::RETRY_AFTER, "1");
    }
    if let Some(allowed) = refused.allowed_methods() {
        set(header::ALLOW, allowed);
    }
    // The same request may succeed a moment later with another token.
    set(header::CACHE_CONTROL, "no-store");
    response
}

async fn not_found(State(site): State<PageState>, uri: Uri) -> Response {
    // Only addresses that exist, so that no path leads to another site.
    let shorter = uri.path().strip_suffix('/').filter(|path| !path.ends_with('/'));
    if let Some(path) = shorter.filter(|path| RouteRule::allowed_methods(path).is_some()) {
        return redirect(&uri, path);
    }
    let page = NotFoundPage {
        frame: Frame::new(&site.view),
        title: "Page not found",
        text: "The address may be mistyped, or it may belong to another version of Octavo.",
    };
    html(StatusCode::NOT_FOUND, &page)
}

/// Page for a refused request.
#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage {
    frame: Frame,
    title: &'static str,
    text: String,
    /// Another address that may be permitted.
    hint: Option<&'static str>,
}

/// Page for an unknown address.
#[derive(Template)]
#[template(path = "missing.html")]
struct NotFoundPage {
    frame: Frame,
    title: &'static str,
    text: &'static str,
}

/// Base URL by which the reader reached this server, for the commands on a page. The script corrects the scheme if a
/// proxy does not report that it terminated TLS.
fn origin(uri: &Uri, headers: &HeaderMap) -> String {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let secure = word("x-forwarded-proto").or_else(|| uri.scheme_str()) == Some("https");
    let named = requested_host(uri, headers).filter(|name| !name.is_empty());
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

async fn with_headers(response: Response) -> Response {
    set_headers(response)
}

/// Sets the headers of every response.
fn set_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CSP),
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
