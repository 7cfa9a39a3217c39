//! Tests of the authorization table and of authentication.

use super::*;
use crate::access::authentication::{AUTHENTICATED_GROUP, ForwardedError};
use crate::credential::{Audience, Denial, TokenReview};

fn review_of(path: &str, namespace: Option<&str>) -> String {
    let row = RouteRule::find(Method::Read, path).unwrap();
    let question = row.review(path, namespace);
    question.map_or_else(|| "nothing".to_owned(), |question| question.to_string())
}

#[test]
fn each_path_has_its_access_review() {
    for (path, question) in [
        ("/healthz", "nothing"),
        ("/readyz", "nothing"),
        ("/openapi.json", "nothing"),
        ("/assets/octavo.css", "nothing"),
        ("/metrics", "get /metrics"),
        ("/", "list acceleratortypes.octavo.dev"),
        ("/live", "list acceleratortypes.octavo.dev"),
        ("/nodes", "list acceleratortypes.octavo.dev"),
        ("/nodes/", "list acceleratortypes.octavo.dev"),
        ("/nodes/gpu-07", "get nodes.octavo.dev gpu-07"),
        ("/teams", "list usage.octavo.dev"),
        ("/cost", "list usage.octavo.dev"),
        ("/cost.csv", "list usage.octavo.dev"),
        ("/api/v1/types", "list acceleratortypes.octavo.dev"),
        ("/api/v1/nodes", "list nodes.octavo.dev"),
        ("/api/v1/nodes/gpu-07", "get nodes.octavo.dev gpu-07"),
        ("/api/v1/nodes/gpu-07/plan", "get nodes.octavo.dev gpu-07"),
        ("/api/v1/nodes/gpu-07/layouts", "get nodes.octavo.dev gpu-07"),
        ("/api/v1/layouts/all-balanced/plan", "get nodes.octavo.dev"),
        ("/layouts/dry-run", "get nodes.octavo.dev"),
        ("/api/v1/events", "watch nodes.octavo.dev"),
        ("/api/v1/usage", "list usage.octavo.dev"),
        ("/api/v1/audit", "list auditentries.octavo.dev"),
    ] {
        assert_eq!(review_of(path, None), question, "{path}");
    }
    // The audit trail is of all namespaces.
    assert_eq!(review_of("/api/v1/audit", Some("team-a")), "list auditentries.octavo.dev");
    for path in ["/api/v1/usage", "/teams", "/cost", "/cost.csv"] {
        let team = review_of(path, Some("team-a"));
        assert_eq!(team, "list usage.octavo.dev in namespace team-a");
        for none in ["", "A", "a.b", "*", "a/b"] {
            let all = review_of(path, Some(none));
            assert_eq!(all, "list usage.octavo.dev", "{none:?}");
        }
    }
}

#[test]
fn path_without_rule_is_denied() {
    for path in [
        "",
        "/nodes/a/b",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v1/types/",
        "//api/v1/types",
        "/api/v1/nodes/",
        "/api/v1/nodes//plan",
        "/API/v1/types",
        "/assets/",
        "/healthz/../api/v1/nodes",
        "/api/v1/secrets",
    ] {
        assert_eq!(RouteRule::find(Method::Read, path), None, "{path:?}");
        assert_eq!(RouteRule::allowed_methods(path), None, "{path:?}");
    }
    assert_eq!(RouteRule::find(Method::Post, "/api/v1/nodes"), None);
    assert_eq!(RouteRule::allowed_methods("/api/v1/nodes"), Some("GET, HEAD"));
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "get", ""] {
        assert_eq!(Method::from_name(method), None, "{method}");
    }
    assert_eq!(Method::from_name("HEAD"), Some(Method::Read));
}

/// Permissions of the documentation: each heading with the paths of its section.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let page = include_str!("../../../../docs/operations/aggregator.md");
    let (_, section) = page.split_once("\n### Permissions\n").unwrap();
    let section = section.split("\n### ").next().unwrap();
    let permissions = section.split("\n#### ").skip(1).map(|text| {
        let (heading, text) = text.split_once('\n').unwrap();
        let words = text.split('`').skip(1).step_by(2);
        let paths = words.filter(|word| word.starts_with('/'));
        (heading.to_owned(), paths.map(ToOwned::to_owned).collect())
    });
    permissions.collect()
}

/// A path as the documentation writes it: `/nodes/NAME`.
fn written(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.strip_prefix('{') {
        Some(name) => name.trim_end_matches('}').to_uppercase(),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Permissions under which the documentation lists a row of the table.
fn permissions(row: &RouteRule) -> Vec<String> {
    let first = match row.review(row.path, None) {
        None => "No permission".to_owned(),
        // Reviewed in addition to the table.
        Some(AccessReview::Path(path)) => format!("`get {path}`"),
        Some(AccessReview::Resource { resource: Resource::ProfileObjects, .. }) => {
            panic!("{row:?}")
        }
        Some(AccessReview::Resource { verb, resource, .. }) => {
            format!("`{verb} {}`", resource.api().2)
        }
    };
    let by_type = "`get acceleratortypes` for single types".to_owned();
    let by_type = row.allows_by_type().then_some(by_type);
    [first].into_iter().chain(by_type).collect()
}

#[test]
fn access_document_lists_each_path_under_its_permission() {
    let documented = documented();
    let mut expected: Vec<(String, BTreeSet<String>)> = Vec::new();
    for row in ROUTE_RULES {
        for permission in permissions(row) {
            let path = written(row.path);
            match expected.iter_mut().find(|(known, _)| *known == permission) {
                Some((_, paths)) => drop(paths.insert(path)),
                None => expected.push((permission, BTreeSet::from([path]))),
            }
        }
    }
    for (permission, paths) in &expected {
        let found = documented.iter().find(|(known, _)| known == permission);
        let (_, listed) = found.unwrap_or_else(|| panic!("{permission} is in no heading"));
        let missing: Vec<_> = paths.difference(listed).collect();
        assert!(missing.is_empty(), "{permission}: {missing:?}");
        let beside = |path: &&String| {
            // Data that requesters who may list nodes, or profiles, see in addition.
            let mut rows = ROUTE_RULES.iter().filter(|row| written(row.path) == **path);
            match permission.as_str() {
                "`list nodes`" => rows.any(RouteRule::shows_nodes),
                "`list usage`" => rows.any(RouteRule::shows_pods),
                "`list hardwareprofiles`" => rows.any(RouteRule::shows_profiles),
                _ => false,
            }
        };
        let more = listed.difference(paths).filter(|path| !beside(path));
        assert_eq!(more.collect::<Vec<_>>(), Vec::<&String>::new(), "{permission}");
    }
    assert_eq!(documented.len(), expected.len());
}

#[test]
fn each_path_is_in_the_table_once() {
    for (at, row) in ROUTE_RULES.iter().enumerate() {
        let first =
            ROUTE_RULES.iter().position(|one| (one.path, one.method) == (row.path, row.method));
        assert_eq!(first, Some(at), "{row:?}");
    }
}

#[test]
fn slash_at_the_end_requires_the_permission_of_the_path_without_it() {
    assert_eq!(review_of("/nodes/gpu-07/", None), "get nodes.octavo.dev gpu-07");
    assert_eq!(review_of("/layouts/", None), "list nodes.octavo.dev");
    for path in ["/nodes//", "/nodes//gpu-07", "//nodes/"] {
        assert_eq!(RouteRule::find(Method::Read, path), None, "{path}");
    }
}

#[test]
fn invalid_name_in_path_requires_access_to_all() {
    // Decoded, it would be another node.
    assert_eq!(review_of("/nodes/gpu%2d07", None), "get nodes.octavo.dev");
    assert_eq!(review_of("/nodes/GPU-07", None), "get nodes.octavo.dev");
}

#[test]
fn review_formats_as_kubectl_command() {
    let h200 = "nvidia-h200-141gb".parse().unwrap();
    for (question, command) in [
        (
            AccessReview::all(Verb::List, Resource::Nodes),
            "kubectl auth can-i list nodes.octavo.dev",
        ),
        (
            AccessReview::accelerator_type(&h200),
            "kubectl auth can-i get acceleratortypes.octavo.dev/nvidia-h200-141gb",
        ),
        (AccessReview::usage(Some("team-a")), "kubectl auth can-i list usage.octavo.dev -n team-a"),
        (AccessReview::Path("/metrics"), "kubectl auth can-i get /metrics"),
    ] {
        assert_eq!(question.command(), command);
    }
}

#[test]
fn restricted_types_hide_unidentified_devices() {
    let (h200, v100): (TypeName, TypeName) =
        ("nvidia-h200-141gb".parse().unwrap(), "nvidia-v100-16gb".parse().unwrap());
    let some = VisibleTypes::Only(BTreeSet::from([h200.clone()]));
    assert!(some.contains(Some(&h200)));
    assert!(!some.contains(Some(&v100)) && !some.contains(None));
    assert!(VisibleTypes::All.contains(None) && VisibleTypes::All.contains(Some(&v100)));
    assert_eq!(Visibility::none().types, VisibleTypes::Only(BTreeSet::new()));
    assert!(!Visibility::none().nodes);
}

#[test]
fn forwarded_user_and_groups_are_bounded() {
    let caller = Caller::from_forwarded(" ada ", &["team-a, team-b,,", "team-a"]).unwrap();
    assert_eq!(caller.user, "ada");
    assert_eq!(caller.groups, [AUTHENTICATED_GROUP, "team-a", "team-b"]);
    let long = "x".repeat(2000);
    let many = "g,h".repeat(4000);
    for (user, groups, error) in [
        ("", "", ForwardedError::NoUser),
        ("  ", "", ForwardedError::NoUser),
        (long.as_str(), "", ForwardedError::UserTooLong),
        ("ada", many.as_str(), ForwardedError::TooManyGroups),
    ] {
        assert_eq!(Caller::from_forwarded(user, &[groups]), Err(error));
    }
    let odd = Caller { user: "a\nb".to_owned(), ..Caller::default() };
    assert_eq!(odd.shown(), "a b");
}

#[test]
fn token_must_have_user_and_audience() {
    let audience: Audience = "octavo".parse().unwrap();
    let good = TokenReview {
        authenticated: true,
        audiences: vec!["octavo".to_owned()],
        caller: Caller::from_forwarded("ada", &[]).unwrap(),
        ..TokenReview::default()
    };
    assert_eq!(good.clone().authenticate(Some(&audience)).unwrap().user, "ada");
    let for_others = TokenReview {
        audiences: vec!["https://kubernetes.default.svc".to_owned()],
        ..good.clone()
    };
    assert_eq!(for_others.clone().authenticate(None).unwrap().user, "ada");
    let denied = for_others.authenticate(Some(&audience));
    assert_eq!(denied, Err(Denial::Audience(audience)));
    let anonymous = TokenReview { caller: Caller::default(), ..good.clone() };
    assert!(matches!(anonymous.authenticate(None), Err(Denial::NotAuthenticated(_))));
    let bad = TokenReview { authenticated: false, error: "expired\x1b[2J".to_owned(), ..good };
    let denial = bad.authenticate(None).unwrap_err().to_string();
    assert!(denial.contains("expired [2J"), "{denial}");
}

#[test]
fn match_results_show_nodes_and_profiles_only_with_permission() {
    let row = RouteRule::find(Method::Post, "/api/v1/match").unwrap();
    assert!(row.allows_by_type() && row.shows_nodes() && row.shows_profiles());
    let question = row.review("/api/v1/match", None).map(|one| one.to_string());
    assert_eq!(question.as_deref(), Some("list acceleratortypes.octavo.dev"));
    let beside = ["/profiles/new", "/api/v1/slo", "/compare", "/objectives", "/search"];
    for path in beside {
        let all = ROUTE_RULES.iter().filter(|row| row.path == path);
        assert!(all.clone().count() > 0 && all.clone().all(RouteRule::shows_profiles));
    }
    let others =
        ROUTE_RULES.iter().filter(|other| other.path != row.path && !beside.contains(&other.path));
    assert!(others.clone().count() > 20 && others.clone().all(|other| !other.shows_profiles()));
    assert!(Visibility::everything().profiles && !Visibility::none().profiles);
}

#[test]
fn profile_creation_is_reviewed_for_the_requester() {
    let new = AccessReview::create_profile("opendatahub");
    let other = AccessReview::change_profile(&ProfileKey {
        namespace: "opendatahub".to_owned(),
        name: "premium".to_owned(),
    });
    assert_eq!(
        new.to_string(),
        "create hardwareprofiles.infrastructure.opendatahub.io in namespace opendatahub"
    );
    assert_eq!(
        new.command(),
        "kubectl auth can-i create hardwareprofiles.infrastructure.opendatahub.io -n opendatahub"
    );
    assert_eq!(
        other.command(),
        "kubectl auth can-i patch hardwareprofiles.infrastructure.opendatahub.io/premium -n opendatahub"
    );
    for path in ["/api/v1/profiles", "/profiles/new"] {
        let row = RouteRule::find(Method::Post, path).unwrap();
        let question = row.review(path, None).unwrap();
        assert_eq!(question.to_string(), "list nodes.octavo.dev", "{path}");
    }
}
