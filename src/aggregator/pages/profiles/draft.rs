//! A new hardware profile, made of the nodes that were selected in the list: a form that is filled in, what is to be known of it, the
//! object, and the commands that make it.
//!
//! All that was chosen stands in the address, so a page can be sent to somebody who may make profiles.

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::Query;
use axum::http::{StatusCode, Uri};

use super::{Assets, Count, Site};
use crate::aggregator::pages::address::{encoded, quoted};
use crate::aggregator::pages::plan::capital;
use crate::aggregator::pages::words::{counted, printable};
use crate::aggregator::profiles::NoDraft;
use crate::domain::hardware_profile::{Draft, ProfileKey, Refusal, Scheduling, Wish};
use crate::domain::id::NodeName;
use crate::wire::hardware_profiles::document::IdentifierJson;
use crate::wire::hardware_profiles::{object, yaml};

/// Nodes that a draft can be asked of, as in the API.
const MOST_NODES: usize = 5000;

/// Names of nodes that a sentence has.
const SHOWN: usize = 12;

/// The page.
#[derive(Template)]
#[template(path = "draft.html")]
pub(super) struct DraftPage {
    assets: Assets,
    asked: Asked,
    selected: String,
    /// Why there is none.
    refused: Option<Refused>,
    made: Option<Made>,
    origin: String,
}

/// What the address says.
#[derive(Debug, Default)]
struct Asked {
    nodes: BTreeSet<String>,
    name: String,
    display_name: String,
    namespace: String,
    type_name: String,
    resource: String,
}

/// Why there is no profile, and what would help.
#[derive(Debug)]
struct Refused {
    why: String,
    choices: Vec<Choice>,
}

/// The same with one thing chosen.
#[derive(Debug)]
struct Choice {
    href: String,
    word: String,
}

/// The profile that could be made.
#[derive(Debug)]
struct Made {
    summary: String,
    counts: Vec<Count>,
    selector: Vec<String>,
    tolerates: Vec<String>,
    notes: Vec<String>,
    yaml: String,
    create: String,
    apply: String,
}

/// What the address asks for, for a reader who reached this server at `origin`.
pub(super) async fn page(site: &Site, uri: &Uri, origin: String) -> (StatusCode, DraftPage) {
    let (mut asked, drafted) = match Asked::of(uri) {
        Ok(asked) => {
            let drafted = attempt(site, &asked).await;
            (asked, drafted)
        }
        Err(why) => (
            Asked::default(),
            Err((StatusCode::BAD_REQUEST, Refused::plain(&why))),
        ),
    };
    let (status, refused, made) = match drafted {
        Ok(draft) => {
            asked.fill(&draft);
            (
                StatusCode::OK,
                None,
                Some(Made::of(&draft, &asked, &origin)),
            )
        }
        Err((status, refused)) => (status, Some(refused), None),
    };
    let page = DraftPage {
        assets: Assets::links(),
        selected: selected(&asked.nodes),
        asked,
        refused,
        made,
        origin,
    };
    (status, page)
}

async fn attempt(site: &Site, asked: &Asked) -> Result<Draft, (StatusCode, Refused)> {
    let wish = asked
        .wish()
        .map_err(|why| (StatusCode::BAD_REQUEST, Refused::plain(&why)))?;
    let drafted = site.view.profiles().draft(site.view.fleet(), wish).await;
    drafted.map_err(|why| match why {
        NoDraft::NoCluster(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Refused::plain(&format!("What the nodes can give is not known: {why}.")),
        ),
        NoDraft::Refused(why) => (StatusCode::UNPROCESSABLE_ENTITY, Refused::of(&why, asked)),
    })
}

impl Asked {
    fn of(uri: &Uri) -> Result<Self, String> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| "The address is not encoded as addresses are.".to_owned())?;
        let mut asked = Self::default();
        for (name, value) in pairs.0 {
            let value = value.trim().to_owned();
            match name.as_str() {
                _ if value.is_empty() => {}
                // As boxes send it, and as the API takes it.
                "node" | "nodes" => asked.nodes.extend(value.split(',').map(str::to_owned)),
                "name" => asked.name = value,
                "displayName" => asked.display_name = value,
                "namespace" => asked.namespace = value,
                "type" => asked.type_name = value,
                "resource" => asked.resource = value,
                _ => return Err(format!("Nothing here is called {:?}.", printable(&name))),
            }
        }
        if asked.nodes.len() > MOST_NODES {
            return Err(format!("These are more than {MOST_NODES} nodes."));
        }
        Ok(asked)
    }

    fn wish(&self) -> Result<Wish, String> {
        if self.nodes.is_empty() && self.type_name.is_empty() {
            return Err(
                "No node was selected: tick the boxes of some nodes in the list.".to_owned(),
            );
        }
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Wish {
            nodes: self.nodes.clone(),
            type_name: match self.type_name.as_str() {
                "" => None,
                text => Some(
                    text.parse()
                        .map_err(|_| format!("{text:?} is no type such as nvidia-h200-141gb."))?,
                ),
            },
            resource: given(&self.resource),
            key: ProfileKey {
                namespace: object_name("namespace", &self.namespace)?,
                name: object_name("name", &self.name)?,
            },
            display_name: given(&self.display_name),
        })
    }

    /// The form is filled in with what was drafted where nothing was said.
    fn fill(&mut self, draft: &Draft) {
        let profile = &draft.profile;
        self.name.clone_from(&profile.key.name);
        self.namespace.clone_from(&profile.key.namespace);
        profile.shown().clone_into(&mut self.display_name);
    }

    /// All that was chosen, by the names that the API has for it.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let all = [
            ("nodes", nodes.join(",")),
            ("type", self.type_name.clone()),
            ("resource", self.resource.clone()),
            ("name", self.name.clone()),
            ("namespace", self.namespace.clone()),
            ("displayName", self.display_name.clone()),
        ];
        let given = all.into_iter();
        given.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The same as a query, with another value of one of them.
    fn query(&self, name: &str, value: &str) -> String {
        let pairs = self.pairs().into_iter().filter(|(known, _)| *known != name);
        let mut all: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={}", encoded(&value)))
            .collect();
        if !value.is_empty() {
            all.push(format!("{name}={}", encoded(value)));
        }
        all.join("&")
    }
}

/// A name that Kubernetes lets objects have, which is the same as for nodes.
fn object_name(what: &str, text: &str) -> Result<String, String> {
    if text.is_empty() || text.parse::<NodeName>().is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} cannot be a {what}: lower-case letters, digits, '-' and '.', at most 253 of them."
    ))
}

impl Refused {
    fn plain(why: &str) -> Self {
        Self {
            why: printable(why),
            choices: Vec::new(),
        }
    }

    fn of(why: &Refusal, asked: &Asked) -> Self {
        let (name, values): (_, Vec<String>) = match why {
            Refusal::SeveralTypes(types) => {
                ("type", types.iter().map(ToString::to_string).collect())
            }
            Refusal::Resource(all) => ("resource", all.clone()),
            Refusal::NoNode(_) | Refusal::NoSuchResource(_) => ("", Vec::new()),
        };
        let choice = |value: String| Choice {
            href: format!("/profiles/new?{}", asked.query(name, &value)),
            word: printable(&value),
        };
        Self {
            choices: values.into_iter().map(choice).collect(),
            ..Self::plain(&format!("{}.", capital(&why.to_string())))
        }
    }
}

impl Made {
    fn of(draft: &Draft, asked: &Asked, origin: &str) -> Self {
        let profile = &draft.profile;
        let (selector, tolerates) = match &profile.scheduling {
            Scheduling::Node {
                selector,
                tolerations,
            } => (
                selector
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect(),
                tolerations.iter().map(|one| printable(&one.key)).collect(),
            ),
            Scheduling::Anywhere | Scheduling::Queue { .. } => (Vec::new(), Vec::new()),
        };
        let counts = profile.identifiers.iter().map(IdentifierJson::from);
        Self {
            summary: format!(
                "Made of {}: {}.",
                counted(draft.nodes.len(), "node", "nodes"),
                few(&draft.nodes)
            ),
            counts: counts.map(|one| Count::of(&one)).collect(),
            selector,
            tolerates,
            notes: { draft.notes.iter() }
                .map(|note| printable(&note.to_string()))
                .collect(),
            yaml: yaml(&object(profile)),
            create: create(asked, origin),
            apply: format!(
                "curl -sf '{origin}/api/v1/profile-draft?{}' | jq .profile | kubectl create -f -",
                asked.query("", "")
            ),
        }
    }
}

/// The command that makes it with the reader's own kubeconfig.
fn create(asked: &Asked, origin: &str) -> String {
    let flags = asked.pairs().into_iter().map(|(name, value)| {
        let flag = match name {
            "nodes" => "from-nodes",
            "displayName" => "display-name",
            other => other,
        };
        format!(" --{flag} {}", quoted(&value))
    });
    let flags: String = flags.collect();
    format!("octavo profiles create --server {origin}{flags}")
}

fn selected(nodes: &BTreeSet<String>) -> String {
    let all: Vec<String> = nodes.iter().cloned().collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!(
            "{} selected: {}",
            counted(all.len(), "node", "nodes"),
            few(all)
        ),
    }
}

/// The first names, and how many more there are.
fn few(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| printable(name))
        .collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> Result<Asked, String> {
        Asked::of(&uri.parse().unwrap())
    }

    #[test]
    fn boxes_and_the_api_name_nodes_in_their_own_way_and_both_are_understood() {
        let boxes = asked("/profiles/new?node=b&node=a&name=&displayName=Big%20one").unwrap();
        let list = asked("/profiles/new?nodes=a,b&displayName=Big%20one").unwrap();
        assert_eq!(boxes.pairs(), list.pairs());
        assert_eq!(
            boxes.query("type", "nvidia-t4-16gb"),
            "nodes=a%2Cb&displayName=Big%20one&type=nvidia-t4-16gb"
        );
        // What is chosen again is there once.
        let again = asked("/profiles/new?node=a&type=nvidia-t4-16gb").unwrap();
        assert_eq!(again.query("type", "x"), "nodes=a&type=x");
    }

    #[test]
    fn what_is_shown_can_be_pasted_into_a_shell_whatever_was_typed() {
        let asked = asked("/profiles/new?node=a&displayName=it%27s%20%24(rm)").unwrap();
        assert_eq!(
            create(&asked, "https://octavo.example"),
            r"octavo profiles create --server https://octavo.example --from-nodes a --display-name 'it'\''s $(rm)'"
        );
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_with_what_is_wrong() {
        let why = |uri: &str| {
            asked(uri)
                .and_then(|asked| asked.wish().map(|_| ()))
                .unwrap_err()
        };
        assert_eq!(
            why("/profiles/new?colour=red"),
            "Nothing here is called \"colour\"."
        );
        assert!(why("/profiles/new").starts_with("No node was selected"));
        assert!(why("/profiles/new?node=a&name=A%20b").starts_with("\"A b\" cannot be a name"));
        assert!(why("/profiles/new?node=a&type=%3Cb%3E").starts_with("\"<b>\" is no type"));
        let nodes: Vec<String> = (0..=MOST_NODES).map(|at| format!("n{at}")).collect();
        let many = format!("/profiles/new?nodes={}", nodes.join(","));
        assert_eq!(why(&many), "These are more than 5000 nodes.");
    }

    #[test]
    fn a_long_selection_is_not_a_long_sentence() {
        let nodes: BTreeSet<String> = (10..40).map(|at| format!("node-{at}")).collect();
        let text = selected(&nodes);
        assert!(
            text.starts_with("30 nodes selected: node-10, node-11, "),
            "{text}"
        );
        assert!(text.ends_with("node-21 and 18 more"), "{text}");
    }
}
