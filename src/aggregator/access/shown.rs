//! Credentials of a request: a bearer token or an identity forwarded by a proxy.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, header};

use super::Refused;
use crate::config::aggregator::Proxies;
use crate::domain::access::Caller;
use crate::domain::credential::Token;

/// Headers in which an authenticating proxy forwards the user and their groups.
const USER: HeaderName = HeaderName::from_static("x-forwarded-user");
const GROUPS: HeaderName = HeaderName::from_static("x-forwarded-groups");

/// Credentials of a request.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// Bearer token, whose owner is not known yet.
    Token(Token),
    /// Caller named by a trusted proxy.
    Caller(Arc<Caller>),
}

/// Reads the credentials from the headers of a request sent by `peer`.
pub(super) fn read(
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    proxies: Option<&Proxies>,
) -> Result<Shown, Refused> {
    let forwarded = headers.contains_key(USER) || headers.contains_key(GROUPS);
    match proxies.filter(|_| forwarded) {
        None => bearer(headers).map(Shown::Token),
        Some(proxies) if peer.is_some_and(|peer| proxies.has(peer)) => {
            caller(headers, proxies.groups()).map(|caller| Shown::Caller(Arc::new(caller)))
        }
        Some(_) => Err(Refused::Untrusted),
    }
}

fn caller(headers: &HeaderMap, groups: bool) -> Result<Caller, Refused> {
    let lines = |name: HeaderName| -> Result<Vec<&str>, Refused> {
        let all = headers.get_all(name).iter();
        let all = all.map(|value| value.to_str().map_err(|_odd| Refused::Unreadable));
        all.collect()
    };
    let user = match lines(USER)?.as_slice() {
        [] => "",
        [user] => user,
        [_, _, ..] => return Err(Refused::Unreadable),
    };
    let said = lines(GROUPS)?;
    if !groups && !said.is_empty() {
        return Err(Refused::Groups);
    }
    Ok(Caller::forwarded(user, &said)?)
}

/// Returns the single bearer token.
fn bearer(headers: &HeaderMap) -> Result<Token, Refused> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let value = all.next().ok_or(Refused::NoToken)?;
    if all.next().is_some() {
        return Err(Refused::NotBearer);
    }
    let text = value.to_str().map_err(|_odd| Refused::NotBearer)?;
    let (scheme, token) = text.split_once(' ').ok_or(Refused::NotBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refused::NotBearer);
    }
    Ok(Token::of_any_kind(token.trim())?)
}
