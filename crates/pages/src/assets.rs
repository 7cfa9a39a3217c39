//! Static files of the pages, embedded in the binary. Addresses carry a hash of the content, so browsers can cache
//! files forever and a new version has a new address.

use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets"]
struct Files;

/// Addresses of the files.
#[derive(Debug)]
pub(super) struct Assets {
    pub(super) style: String,
    pub(super) theme: String,
    pub(super) htmx: String,
    pub(super) script: String,
    pub(super) icon: String,
}

impl Assets {
    pub(super) fn links() -> Self {
        Self {
            style: link("octavo.css"),
            theme: link("theme.js"),
            htmx: link("htmx.min.js"),
            script: link("octavo.js"),
            icon: link("icon.svg"),
        }
    }
}

fn link(name: &str) -> String {
    let tag = Files::get(name).map(|file| tag(&file.metadata.sha256_hash()));
    format!("/assets/{name}?v={}", tag.unwrap_or_default())
}

/// First eight bytes of a hash, in hexadecimal.
fn tag(hash: &[u8; 32]) -> String {
    let beginning = hash.first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(beginning))
}

/// Serves a file.
pub(super) async fn file(
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Some(file) = Files::get(&name) else {
        return (StatusCode::NOT_FOUND, "File not found.\n").into_response();
    };
    let tag = tag(&file.metadata.sha256_hash());
    let current = query.is_some_and(|query| query == format!("v={tag}"));
    let etag = format!("\"{tag}\"");
    let cache = if current { "public, max-age=31536000, immutable" } else { "no-cache" };
    let about = [
        (header::CONTENT_TYPE, kind(&name).to_owned()),
        (header::CACHE_CONTROL, cache.to_owned()),
        (header::ETAG, etag.clone()),
    ];
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, file.data).into_response()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
