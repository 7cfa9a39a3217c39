//! Tests of the authorization table and of authentication.

use super::*;
use crate::domain::access::caller::{AUTHENTICATED, ForwardedError};
use crate::domain::credential::{Audience, Denial};

fn asked(path: &str, namespace: Option<&str>) -> String {
    let row = Row::of(Method::Read, path).unwrap();
    let question = row.question(path, namespace);
    question.map_or_else(|| "nothing".to_owned(), |question| question.to_string())
}

#[test]
fn what_is_asked_of_somebody_for_each_path() {
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
        ("/api/v1/types", "list acceleratortypes.octavo.dev"),
        ("/api/v1/nodes", "list nodes.octavo.dev"),
        ("/api/v1/nodes/gpu-07", "get nodes.octavo.dev gpu-07"),
        ("/api/v1/nodes/gpu-07/plan", "get nodes.octavo.dev gpu-07"),
        (
            "/api/v1/nodes/gpu-07/layouts",
            "get nodes.octavo.dev gpu-07",
        ),
        ("/api/v1/events", "watch nodes.octavo.dev"),
        ("/api/v1/usage", "list usage.octavo.dev"),
    ] {
        assert_eq!(asked(path, None), question, "{path}");
    }
    let team = asked("/api/v1/usage", Some("team-a"));
    assert_eq!(team, "list usage.octavo.dev in namespace team-a");
    for none in ["", "A", "a.b", "*", "a/b"] {
        let all = asked("/api/v1/usage", Some(none));
        assert_eq!(all, "list usage.octavo.dev", "{none:?}");
    }
}

#[test]
fn a_path_that_the_table_does_not_have_is_closed() {
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
        assert_eq!(Row::of(Method::Read, path), None, "{path:?}");
        assert_eq!(Row::methods(path), None, "{path:?}");
    }
    assert_eq!(Row::of(Method::Post, "/api/v1/nodes"), None);
    assert_eq!(Row::methods("/api/v1/nodes"), Some("GET, HEAD"));
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "get", ""] {
        assert_eq!(Method::of(method), None, "{method}");
    }
    assert_eq!(Method::of("HEAD"), Some(Method::Read));
}

/// Rows of the documentation's permission table: the text before the first comma of the first cell, and the paths of
/// the second.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let page = include_str!("../../../docs/aggregator.md");
    let table = page.split("| permission | what it shows |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let words = cells[2].split('`').skip(1).step_by(2);
        let paths = words.filter(|word| word.starts_with('/'));
        (cells[1].to_owned(), paths.map(ToOwned::to_owned).collect())
    });
    rows.collect()
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
fn permissions(row: &Row) -> Vec<String> {
    let first = match row.question(row.path, None) {
        None => "none".to_owned(),
        // Reviewed in addition to the table.
        Some(Question::Profile { .. }) => panic!("{row:?}"),
        Some(Question::Path(path)) => format!("get the path `{path}` (`nonResourceURLs`)"),
        Some(Question::Resource { verb, resource, .. }) => {
            format!("{} `{}`", verb.as_str(), resource.as_str())
        }
    };
    let by_type = "get `acceleratortypes`, with a type as `resourceNames`".to_owned();
    let by_type = row.asks_by_type().then_some(by_type);
    [first].into_iter().chain(by_type).collect()
}

#[test]
fn the_document_has_each_path_under_what_it_needs_and_no_other() {
    let documented = documented();
    let mut expected: Vec<(String, BTreeSet<String>)> = Vec::new();
    for row in TABLE {
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
        let (_, told) = found.unwrap_or_else(|| panic!("{permission} is in no row"));
        let missing: Vec<_> = paths.difference(told).collect();
        assert!(missing.is_empty(), "{permission}: {missing:?}");
        let beside = |path: &&String| {
            // Data that requesters who may list nodes, or profiles, see in addition.
            let mut rows = TABLE.iter().filter(|row| written(row.path) == **path);
            match permission.as_str() {
                "list `nodes`" => rows.any(Row::asks_for_nodes),
                "list `hardwareprofiles`" => rows.any(Row::asks_for_profiles),
                _ => false,
            }
        };
        let more = told.difference(paths).filter(|path| !beside(path));
        assert_eq!(
            more.collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{permission}"
        );
    }
    assert_eq!(documented.len(), expected.len());
}

#[test]
fn no_path_is_in_the_table_twice() {
    for (at, row) in TABLE.iter().enumerate() {
        let first = TABLE
            .iter()
            .position(|one| (one.path, one.method) == (row.path, row.method));
        assert_eq!(first, Some(at), "{row:?}");
    }
}

#[test]
fn a_name_in_a_path_that_is_none_needs_the_right_to_all() {
    // Decoded, it would be another node.
    assert_eq!(asked("/nodes/gpu%2d07", None), "get nodes.octavo.dev");
    assert_eq!(asked("/nodes/GPU-07", None), "get nodes.octavo.dev");
}

#[test]
fn a_question_is_said_as_the_command_that_asks_it() {
    let h200 = "nvidia-h200-141gb".parse().unwrap();
    for (question, command) in [
        (
            Question::all(Verb::List, Resource::Nodes),
            "kubectl auth can-i list nodes.octavo.dev",
        ),
        (
            Question::of_type(&h200),
            "kubectl auth can-i get acceleratortypes.octavo.dev/nvidia-h200-141gb",
        ),
        (
            Question::usage(Some("team-a")),
            "kubectl auth can-i list usage.octavo.dev -n team-a",
        ),
        (
            Question::Path("/metrics"),
            "kubectl auth can-i get /metrics",
        ),
    ] {
        assert_eq!(question.command(), command);
    }
}

#[test]
fn who_sees_some_types_sees_none_without_a_name() {
    let (h200, v100): (TypeName, TypeName) = (
        "nvidia-h200-141gb".parse().unwrap(),
        "nvidia-v100-16gb".parse().unwrap(),
    );
    let some = Types::Only(BTreeSet::from([h200.clone()]));
    assert!(some.has(Some(&h200)));
    assert!(!some.has(Some(&v100)) && !some.has(None) && !some.is_empty());
    assert!(Types::All.has(None) && Types::All.has(Some(&v100)));
    assert!(Sight::nothing().types.is_empty() && !Sight::nothing().nodes);
}

#[test]
fn a_proxy_names_a_user_and_groups_within_bounds() {
    let caller = Caller::forwarded(" ada ", &["team-a, team-b,,", "team-a"]).unwrap();
    assert_eq!(caller.user, "ada");
    assert_eq!(caller.groups, [AUTHENTICATED, "team-a", "team-b"]);
    let long = "x".repeat(2000);
    let many = "g,h".repeat(4000);
    for (user, groups, error) in [
        ("", "", ForwardedError::NoUser),
        ("  ", "", ForwardedError::NoUser),
        (long.as_str(), "", ForwardedError::User),
        ("ada", many.as_str(), ForwardedError::Groups),
    ] {
        assert_eq!(Caller::forwarded(user, &[groups]), Err(error));
    }
    let odd = Caller {
        user: "a\nb".to_owned(),
        ..Caller::default()
    };
    assert_eq!(odd.shown(), "a b");
}

#[test]
fn a_token_is_of_whom_the_api_server_says_and_for_whom_it_should_be() {
    let audience: Audience = "octavo".parse().unwrap();
    let good = Proof {
        authenticated: true,
        audiences: vec!["octavo".to_owned()],
        caller: Caller::forwarded("ada", &[]).unwrap(),
        ..Proof::default()
    };
    assert_eq!(good.clone().judge(Some(&audience)).unwrap().user, "ada");
    let for_others = Proof {
        audiences: vec!["https://kubernetes.default.svc".to_owned()],
        ..good.clone()
    };
    assert_eq!(for_others.clone().judge(None).unwrap().user, "ada");
    let denied = for_others.judge(Some(&audience));
    assert_eq!(denied, Err(Denial::Audience(audience)));
    let nobody = Proof {
        caller: Caller::default(),
        ..good.clone()
    };
    assert!(matches!(
        nobody.judge(None),
        Err(Denial::NotAuthenticated(_))
    ));
    let bad = Proof {
        authenticated: false,
        error: "expired\x1b[2J".to_owned(),
        ..good
    };
    let said = bad.judge(None).unwrap_err().to_string();
    assert!(said.contains("expired [2J"), "{said}");
}

#[test]
fn what_suits_is_told_by_type_and_nodes_and_profiles_beside_it_to_who_may_list_them() {
    let row = Row::of(Method::Post, "/api/v1/match").unwrap();
    assert!(row.asks_by_type() && row.asks_for_nodes() && row.asks_for_profiles());
    let question = row
        .question("/api/v1/match", None)
        .map(|one| one.to_string());
    assert_eq!(
        question.as_deref(),
        Some("list acceleratortypes.octavo.dev")
    );
    let beside = ["/profiles/new", "/api/v1/slo", "/compare", "/objectives"];
    for path in beside {
        let all = TABLE.iter().filter(|row| row.path == path);
        assert!(all.clone().count() > 0 && all.clone().all(Row::asks_for_profiles));
    }
    let others = TABLE
        .iter()
        .filter(|other| other.path != row.path && !beside.contains(&other.path));
    assert!(others.clone().count() > 20 && others.clone().all(|other| !other.asks_for_profiles()));
    assert!(Sight::everything().profiles && !Sight::nothing().profiles);
}

#[test]
fn who_makes_a_profile_is_asked_about_as_if_they_did_it_themselves() {
    let new = Question::new_profile("opendatahub");
    let other = Question::profile_changed(&ProfileKey {
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
        let row = Row::of(Method::Post, path).unwrap();
        let question = row.question(path, None).unwrap();
        assert_eq!(question.to_string(), "list nodes.octavo.dev", "{path}");
    }
}
