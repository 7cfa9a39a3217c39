//! Identities forwarded by proxies.

use octavo_access::trusted_proxies::Network;

use super::*;

fn proxies(networks: &[&str], groups: bool) -> TrustedIdentitySources {
    let networks = networks.iter().map(|network| network.parse().unwrap());
    let networks: Vec<Network> = networks.collect();
    TrustedIdentitySources {
        proxies: Some(TrustedProxies { networks, groups }),
        ..TrustedIdentitySources::default()
    }
}

#[tokio::test]
async fn forwarded_identity_requires_a_trusted_proxy() {
    let ada = ("x-forwarded-user", "ada");
    let team = ("x-forwarded-groups", "team-a,team-b");
    let token = ("authorization", "Bearer token-ada");
    let asks = async |believed: TrustedIdentitySources, headers: &[(&str, &str)]| {
        let site = site(believed);
        site.server.gives("ada: list nodes.octavo.dev");
        site.server.gives("team-b: list nodes.octavo.dev");
        let answer = site.answers("GET", "/api/v1/nodes", headers).await;
        answer.status().as_u16()
    };
    let trusted = || proxies(&["192.0.2.0/24"], false);
    let with_groups = || proxies(&["192.0.2.7"], true);
    let elsewhere = || proxies(&["192.0.2.8", "10.0.0.0/8"], true);
    assert_eq!(asks(trusted(), &[ada]).await, 200);
    assert_eq!(asks(trusted(), &[ada, ada]).await, 400);
    assert_eq!(asks(trusted(), &[("x-forwarded-user", "bob")]).await, 403);
    assert_eq!(asks(trusted(), &[("x-forwarded-user", "")]).await, 401);
    assert_eq!(asks(trusted(), &[ada, team]).await, 400);
    assert_eq!(asks(trusted(), &[]).await, 401);
    assert_eq!(asks(trusted(), &[token]).await, 200);
    let bob = ("x-forwarded-user", "bob");
    assert_eq!(asks(with_groups(), &[bob, team]).await, 200);
    assert_eq!(asks(with_groups(), &[team]).await, 401);
    // A token does not make up for an untrusted forwarded identity.
    for headers in [&[ada][..], &[team], &[ada, token]] {
        assert_eq!(asks(elsewhere(), headers).await, 400);
    }
    assert_eq!(asks(elsewhere(), &[token]).await, 200);
    // Without trusted proxies, forwarded names are ignored and only the token counts.
    assert_eq!(asks(TrustedIdentitySources::default(), &[ada]).await, 401);
    assert_eq!(asks(TrustedIdentitySources::default(), &[bob, token]).await, 200);
}
