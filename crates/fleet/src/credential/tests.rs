//! Tests of tokens and token reviews.

use super::*;

const OURS: &str = "system:serviceaccount:octavo-system:octavo-agent";

fn rule() -> AcceptanceRule {
    AcceptanceRule {
        account: "octavo-system/octavo-agent".parse().unwrap(),
        audience: "octavo".parse().unwrap(),
    }
}

/// Review of a valid token of an agent on `node-a`.
fn good() -> TokenReview {
    TokenReview {
        authenticated: true,
        error: String::new(),
        audiences: vec!["octavo".to_owned()],
        caller: Caller {
            user: OURS.to_owned(),
            extra: [(NODE_CLAIM.to_owned(), vec!["node-a".to_owned()])].into(),
            ..Caller::default()
        },
    }
}

fn nodes(review: &mut TokenReview) -> &mut Vec<String> {
    review.caller.extra.get_mut(NODE_CLAIM).unwrap()
}

#[test]
fn agent_token_authenticates_the_node_of_its_pod() {
    assert_eq!(rule().authenticate(&good()).unwrap().as_str(), "node-a");
    let several =
        TokenReview { audiences: vec!["other".to_owned(), "octavo".to_owned()], ..good() };
    assert_eq!(rule().authenticate(&several).unwrap().as_str(), "node-a");
}

#[test]
fn incomplete_review_is_rejected_with_reason() {
    type Corruption = fn(&mut TokenReview);
    let table: [(Corruption, &str); 12] = [
        (|it| it.authenticated = false, "no reason given"),
        (
            |it| (it.authenticated, it.error) = (false, "token\nhas expired".into()),
            "rejected the token: token has expired",
        ),
        (|it| it.audiences.clear(), "not for the audience octavo"),
        (|it| it.audiences = vec!["octavo2".into()], "audience octavo"),
        (|it| it.caller.user = "admin".into(), "to \"admin\", not to octavo-system/octavo-agent"),
        (|it| it.caller.user.push('2'), "not to octavo-system/octavo-agent"),
        (|it| it.caller.user = OURS.replace("-agent", ""), "not to octavo-system"),
        (|it| it.caller.user = OURS.replace("-system:", ":"), "not to octavo-system"),
        (|it| it.caller.extra.clear(), "contains no node"),
        (|it| nodes(it).push("node-b".into()), "contains no node"),
        (|it| *nodes(it) = vec![String::new()], "contains no node"),
        (|it| *nodes(it) = vec!["Node A".into()], "contains no node"),
    ];
    for (spoil, expected) in table {
        let mut review = good();
        spoil(&mut review);
        let denial = rule().authenticate(&review).unwrap_err().to_string();
        assert!(denial.contains(expected), "{review:?}: {denial}");
    }
}

#[test]
fn api_server_reason_is_truncated() {
    let long = TokenReview { error: "x".repeat(100_000), ..TokenReview::default() };
    let denial = rule().authenticate(&long).unwrap_err().to_string();
    assert!(denial.len() < 300, "{}", denial.len());
}

#[test]
fn only_three_part_tokens_are_accepted() {
    let long = format!("a.b.{}", "c".repeat(MAX_TOKEN_BYTES));
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
    let longest = &long[..MAX_TOKEN_BYTES];
    assert_eq!(longest.parse::<Token>().unwrap().expose(), longest);
}

#[test]
fn token_is_not_printed() {
    let token: Token = "eyJh.Ey_x.s-G".parse().unwrap();
    assert_eq!(format!("{token:?}"), "Token(..)");
    assert_eq!(format!("{:#?}", Some(&token)).matches("eyJh").count(), 0);
}

#[test]
fn accounts_and_audiences_follow_kubernetes_naming_rules() {
    let account: ServiceAccount = "octavo-system/octavo-agent".parse().unwrap();
    assert_eq!(account.username(), OURS);
    for text in ["", "/", "a", "a/", "/b", "a/b/c", "a.b/c", "a:b/c", "A/b", "a/b c"] {
        let error = text.parse::<ServiceAccount>().unwrap_err().to_string();
        assert!(error.contains("octavo-system/octavo-agent"), "{error}");
    }
    assert_eq!("https://octavo".parse::<Audience>().unwrap().as_str(), "https://octavo");
    for text in ["", "a b", "a\n", "ü"] {
        assert!(text.parse::<Audience>().is_err(), "{text:?}");
    }
}

#[test]
fn opaque_tokens_are_accepted_without_spaces() {
    for text in ["eyJh.Ey_x.s-G", "sha256~Abc-_x", "abc/+d==", "x"] {
        assert_eq!(Token::parse_opaque(text).unwrap().expose(), text);
    }
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    for (text, error) in [
        ("", TokenError::Empty),
        (long.as_str(), TokenError::TooLong),
        ("a b", TokenError::InvalidCharacters),
        ("a\n", TokenError::InvalidCharacters),
        ("==", TokenError::InvalidCharacters),
        ("a=b", TokenError::InvalidCharacters),
        ("ä", TokenError::InvalidCharacters),
    ] {
        assert_eq!(Token::parse_opaque(text), Err(error), "{text:?}");
    }
}
