//! Tests of tokens and token reviews.

use super::*;

const OURS: &str = "system:serviceaccount:octavo-system:octavo-agent";

fn rule() -> Rule {
    Rule {
        account: "octavo-system/octavo-agent".parse().unwrap(),
        audience: "octavo".parse().unwrap(),
    }
}

/// Review of a valid token of an agent on `node-a`.
fn good() -> Review {
    Review {
        authenticated: true,
        error: String::new(),
        username: OURS.to_owned(),
        audiences: vec!["octavo".to_owned()],
        nodes: vec!["node-a".to_owned()],
    }
}

#[test]
fn an_agents_token_speaks_for_the_node_that_its_pod_is_on() {
    assert_eq!(rule().judge(&good()).unwrap().as_str(), "node-a");
    let several = Review {
        audiences: vec!["other".to_owned(), "octavo".to_owned()],
        ..good()
    };
    assert_eq!(rule().judge(&several).unwrap().as_str(), "node-a");
}

#[test]
fn whatever_is_missing_in_a_review_is_a_refusal_with_its_reason() {
    type Spoil = fn(&mut Review);
    let table: [(Spoil, &str); 12] = [
        (|it| it.authenticated = false, "it gives no reason"),
        (
            |it| (it.authenticated, it.error) = (false, "token\nhas expired".into()),
            "does not accept the token: token has expired",
        ),
        (|it| it.audiences.clear(), "not for the audience octavo"),
        (
            |it| it.audiences = vec!["octavo2".into()],
            "audience octavo",
        ),
        (
            |it| it.username = "admin".into(),
            "of \"admin\" and not of octavo-system/octavo-agent",
        ),
        (
            |it| it.username.push('2'),
            "not of octavo-system/octavo-agent",
        ),
        (
            |it| it.username = OURS.replace("-agent", ""),
            "not of octavo-system",
        ),
        (
            |it| it.username = OURS.replace("-system:", ":"),
            "not of octavo-system",
        ),
        (|it| it.nodes.clear(), "names no node"),
        (|it| it.nodes.push("node-b".into()), "names no node"),
        (|it| it.nodes = vec![String::new()], "names no node"),
        (|it| it.nodes = vec!["Node A".into()], "names no node"),
    ];
    for (spoil, said) in table {
        let mut review = good();
        spoil(&mut review);
        let denial = rule().judge(&review).unwrap_err().to_string();
        assert!(denial.contains(said), "{review:?}: {denial}");
    }
}

#[test]
fn a_reason_of_the_api_server_is_shortened() {
    let long = Review {
        error: "x".repeat(100_000),
        ..Review::default()
    };
    let denial = rule().judge(&long).unwrap_err().to_string();
    assert!(denial.len() < 300, "{}", denial.len());
}

#[test]
fn only_what_looks_like_a_signed_token_is_one() {
    let long = format!("a.b.{}", "c".repeat(LONGEST_TOKEN));
    for (text, error) in [
        ("", TokenError::Empty),
        (&long, TokenError::TooLong),
        ("secret", TokenError::Malformed),
        ("a.b", TokenError::Malformed),
        ("a.b.c.d", TokenError::Malformed),
        ("a..c", TokenError::Malformed),
        ("a.b.c d", TokenError::Malformed),
        ("a.b.c\n", TokenError::Malformed),
        ("a.b.ü", TokenError::Malformed),
    ] {
        let found = text.parse::<Token>().unwrap_err();
        assert_eq!(found, error, "{text:?}");
        assert!(text.is_empty() || !found.to_string().contains(text));
    }
    let longest = &long[..LONGEST_TOKEN];
    assert_eq!(longest.parse::<Token>().unwrap().expose(), longest);
}

#[test]
fn a_token_is_not_printed() {
    let token: Token = "eyJh.Ey_x.s-G".parse().unwrap();
    assert_eq!(format!("{token:?}"), "Token(..)");
    assert_eq!(format!("{:#?}", Some(&token)).matches("eyJh").count(), 0);
}

#[test]
fn accounts_and_audiences_are_named_as_the_cluster_names_them() {
    let account: ServiceAccount = "octavo-system/octavo-agent".parse().unwrap();
    assert_eq!(account.username(), OURS);
    for text in [
        "", "/", "a", "a/", "/b", "a/b/c", "a.b/c", "a:b/c", "A/b", "a/b c",
    ] {
        let error = text.parse::<ServiceAccount>().unwrap_err().to_string();
        assert!(error.contains("octavo-system/octavo-agent"), "{error}");
    }
    assert_eq!(
        "https://octavo".parse::<Audience>().unwrap().as_str(),
        "https://octavo"
    );
    for text in ["", "a b", "a\n", "ü"] {
        assert!(text.parse::<Audience>().is_err(), "{text:?}");
    }
}

#[test]
fn people_have_tokens_of_other_kinds_and_no_spaces_in_them() {
    for text in ["eyJh.Ey_x.s-G", "sha256~Abc-_x", "abc/+d==", "x"] {
        assert_eq!(Token::of_any_kind(text).unwrap().expose(), text);
    }
    let long = "x".repeat(LONGEST_TOKEN + 1);
    for (text, error) in [
        ("", TokenError::Empty),
        (long.as_str(), TokenError::TooLong),
        ("a b", TokenError::Odd),
        ("a\n", TokenError::Odd),
        ("==", TokenError::Odd),
        ("a=b", TokenError::Odd),
        ("ä", TokenError::Odd),
    ] {
        assert_eq!(Token::of_any_kind(text), Err(error), "{text:?}");
    }
}
