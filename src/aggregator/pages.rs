//! The web pages: the Node View, a node, and what they are made of.
//!
//! Pages are rendered here and work without a script. With one they stay what the aggregator says now: the script waits at
//! `/live`, loads the page again and puts what differs in its place. Nothing is loaded from elsewhere, no script or style
//! stands in a page, and every text is escaped, because names and errors come from drivers and from peers.

mod address;
mod assets;
mod bar;
mod chips;
mod facts;
mod form;
mod layout;
mod list;
mod live;
mod node;
mod plan;
mod rows;
mod shares;
mod slices;
mod words;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use self::assets::Assets;
use super::view::View;
use crate::domain::id::NodeName;

/// What a page may do: nothing but load its own files and ask its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Pages that wait for changes at one time; further ones ask every few seconds instead.
const MOST_STREAMS: usize = 256;

/// What the pages are made from.
#[derive(Debug, Clone)]
struct Site {
    view: View,
    streams: Arc<Semaphore>,
}

/// The pages of `view`, and a page for every address that is none.
pub fn router(view: View) -> Router {
    let site = Site {
        view,
        streams: Arc::new(Semaphore::new(MOST_STREAMS)),
    };
    Router::new()
        .route("/", get(nodes))
        .route("/nodes/{name}", get(one_node))
        .route("/nodes", get(to_the_list))
        .route("/nodes/", get(to_the_list))
        .route("/live", get(live::stream))
        .route("/assets/{file}", get(assets::file))
        .fallback(no_such_page)
        .layer(map_response(guarded))
        .with_state(site)
}

async fn nodes(State(site): State<Site>, uri: Uri, headers: HeaderMap) -> Response {
    let page = list::page(&site.view, &uri, &origin(&uri, &headers));
    let status = if page.is_wrong() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    html(status, &page)
}

/// What somebody types who thinks of the API's path.
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
    let fleet = site.view.fleet();
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
        layout: layout(&uri),
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &node::page(node, site.view.clock(), reader))
}

/// The layout whose plan is asked for.
fn layout(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let found = pairs.into_iter().find(|(name, _)| name == "layout");
    found
        .map(|(_, layout)| layout)
        .filter(|layout| !layout.is_empty())
}

async fn no_such_page() -> Response {
    let page = Missing {
        assets: Assets::links(),
        title: "There is no such page",
        text: "The address may be mistyped, or the page was one of another version.",
    };
    html(StatusCode::NOT_FOUND, &page)
}

/// A page that is not there.
#[derive(Template)]
#[template(path = "missing.html")]
struct Missing {
    assets: Assets,
    title: &'static str,
    text: &'static str,
}

/// How the reader reached this server, for the commands that a page shows. The script corrects it where a proxy does not
/// say that it was over TLS.
fn origin(uri: &Uri, headers: &HeaderMap) -> String {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let secure = word("x-forwarded-proto").or_else(|| uri.scheme_str()) == Some("https");
    let host = uri.authority().map(Authority::as_str);
    let host = host.or_else(|| word("host")).unwrap_or("localhost");
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

/// What every answer carries.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let cache = headers.entry(header::CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests;
