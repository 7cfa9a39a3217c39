//! Protection against cross-site request forgery and DNS rebinding.
//!
//! A browser reports the origin of a request, and no page can forge these headers. Other programs omit them, and have
//! no ambient browser credentials that another site could misuse. Sources: Fetch Metadata Request Headers (W3C), RFC
//! 6454.

use core::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// Origin headers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestOrigin<'a> {
    /// `Sec-Fetch-Site`.
    pub site: Option<&'a str>,
    /// `Origin`.
    pub origin: Option<&'a str>,
    /// `Host`: the server as the browser addressed it.
    pub host: Option<&'a str>,
}

/// Cross-site request that must not change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the request came from a page of another site; only pages of this server can send it")]
pub struct CrossSiteRequest;

/// Allows or rejects a request whose method is not GET, HEAD or OPTIONS.
pub fn check_same_site(from: RequestOrigin<'_>) -> Result<(), CrossSiteRequest> {
    // Checks both headers where both are present: not every browser sends each.
    let by_site = from.site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    let by_origin = from.origin.is_none_or(|origin| {
        let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        authority.is_some_and(|authority| {
            from.host.is_some_and(|host| authority.eq_ignore_ascii_case(host))
        })
    });
    if by_site && by_origin { Ok(()) } else { Err(CrossSiteRequest) }
}

/// Request for a host name that is not this server's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "this server does not accept the host name {host:?}: use localhost or an IP address, or start the aggregator \
     with --http-host {host}"
)]
pub struct UnknownHost {
    /// Host name of the request.
    pub host: String,
}

/// Checks the `Host` of a request where the server answers any client that can reach the port, but only this machine
/// can reach it. Through DNS rebinding a page of another site can reach the port too; its requests carry that site's
/// host name. A request without a host does not come from a browser.
pub fn check_host(host: Option<&str>, names: &[String]) -> Result<(), UnknownHost> {
    const MAX_HOST_CHARS: usize = 100;
    let Some(host) = host else { return Ok(()) };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_known = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(&name));
    if is_known {
        return Ok(());
    }
    let host = name.chars().take(MAX_HOST_CHARS).collect();
    Err(UnknownHost { host })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_host_names_are_rejected() {
        let names = ["octavo.example".to_owned()];
        let known = |host| check_host(host, &names).is_ok();
        for host in [
            "localhost",
            "localhost:8443",
            "LOCALHOST.:8443",
            "octavo.localhost",
            "127.0.0.1",
            "127.0.0.1:8443",
            "192.0.2.7:1",
            "[::1]:8443",
            "[2001:db8::1]",
            "octavo.example:8443",
            "Octavo.Example",
        ] {
            assert!(known(Some(host)), "{host}");
        }
        assert!(known(None));
        for host in [
            "",
            ":8443",
            "evil.example",
            "evil.example:8443",
            "localhost.evil.example",
            "evil-localhost",
            "127.0.0.1.evil.example",
            "octavo.example.evil.example",
            "[evil]",
            "::1",
        ] {
            assert!(!known(Some(host)), "{host}");
        }
    }

    #[test]
    fn cross_site_requests_are_rejected() {
        let host = Some("octavo.example:8443");
        let ours = Some("https://octavo.example:8443");
        let rows = [
            (None, None, true),
            (Some("same-origin"), ours, true),
            (Some("same-origin"), None, true),
            (Some("none"), None, true),
            (None, ours, true),
            (None, Some("https://OCTAVO.example:8443"), true),
            (Some("cross-site"), None, false),
            (Some("cross-site"), ours, false),
            (Some("same-site"), None, false),
            (Some("unheard-of"), None, false),
            (Some("same-origin"), Some("https://evil.example"), false),
            (None, Some("https://evil.example"), false),
            (None, Some("https://octavo.example"), false),
            (None, Some("https://octavo.example:8443.evil.example"), false),
            (None, Some("null"), false),
            (None, Some(""), false),
        ];
        for (site, origin, fine) in rows {
            let from = RequestOrigin { site, origin, host };
            assert_eq!(check_same_site(from).is_ok(), fine, "{from:?}");
        }
        let nowhere = RequestOrigin { origin: ours, ..RequestOrigin::default() };
        assert_eq!(check_same_site(nowhere), Err(CrossSiteRequest));
    }
}
