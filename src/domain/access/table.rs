//! The table: what is asked about whom for every path there is.

use super::{Question, Resource, Verb};

/// A method, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET, and HEAD, which tells less.
    Read,
    /// POST.
    Post,
}

/// What somebody needs for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it tells nothing of the fleet.
    Nothing,
    /// To read this path as such, as scrapers may.
    Path(&'static str),
    /// To do this with all of these.
    All(Verb, Resource),
    /// To see the node that the path names.
    Node,
    /// To see types: all of them, or else at least one, and then only those are told of.
    Types,
    /// To see or follow hardware profiles: all of them, or else those that are for types that may be seen one by one and for no others.
    Profiles(Verb),
    /// To see types, as before; nodes are told of beside them to who may list those.
    Overview,
    /// To see types, as before; nodes and hardware profiles are named to who may list those.
    Match,
    /// To see who uses what, in the namespace that the query names or in all; nodes are named to who may list those.
    Usage,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The path; a part in braces is any one that is not empty.
    pub path: &'static str,
    /// The method.
    pub method: Method,
    /// What is needed for it.
    pub need: Need,
}

/// Every path and method that may be asked for. Paths are as the router has them, where a test looks for any that is not here.
pub const TABLE: &[Row] = &[
    read("/healthz", Need::Nothing),
    read("/readyz", Need::Nothing),
    read("/openapi.json", Need::Nothing),
    read("/assets/{file}", Need::Nothing),
    read("/metrics", Need::Path("/metrics")),
    read("/", Need::Overview),
    // It only says that something changed.
    read("/live", Need::Types),
    read("/nodes", Need::Overview),
    read("/nodes/", Need::Overview),
    read("/nodes/{name}", Need::Node),
    read("/availability", Need::Types),
    read(COMPARE, TYPES),
    read(OBJECTIVES, TYPES),
    post(OBJECTIVES, TYPES),
    read("/profiles", PROFILES),
    // A draft is made of nodes, and names those that it leaves out.
    read(DRAFT, NODES),
    // Whether somebody may make one is asked beside it, of the real kind.
    post(DRAFT, NODES),
    read("/profiles/{name}", PROFILES),
    read("/profiles/{namespace}/{name}", PROFILES),
    read("/api/v1/types", Need::Types),
    read("/api/v1/availability", Need::Types),
    post("/api/v1/match", Need::Match),
    post("/api/v1/estimates", TYPES),
    post(SLO, TYPES),
    read("/api/hardware-profiles", PROFILES),
    read("/api/v1/profiles", PROFILES),
    post("/api/v1/profiles", NODES),
    read("/api/v1/profiles/{name}", PROFILES),
    read("/api/v1/profiles/{namespace}/{name}", PROFILES),
    read("/api/v1/profile-draft", NODES),
    read("/api/v1/profile-events", Need::Profiles(Verb::Watch)),
    read("/api/v1/nodes", NODES),
    read("/api/v1/nodes/{name}", Need::Node),
    read("/api/v1/nodes/{name}/layouts", Need::Node),
    read("/api/v1/nodes/{name}/plan", Need::Node),
    read("/api/v1/events", Need::All(Verb::Watch, Resource::Nodes)),
    read("/api/v1/usage", Need::Usage),
    read(
        "/api/v1/usage/summary",
        Need::All(Verb::List, Resource::Usage),
    ),
];

const DRAFT: &str = "/profiles/new";
const SLO: &str = "/api/v1/slo";
const COMPARE: &str = "/compare";
const OBJECTIVES: &str = "/objectives";
/// Paths that name hardware profiles beside what they are asked for.
const BESIDE: [&str; 4] = [DRAFT, SLO, COMPARE, OBJECTIVES];
const NODES: Need = Need::All(Verb::List, Resource::Nodes);
const PROFILES: Need = Need::Profiles(Verb::List);
const TYPES: Need = Need::All(Verb::List, Resource::AcceleratorTypes);

const fn read(path: &'static str, need: Need) -> Row {
    Row {
        path,
        method: Method::Read,
        need,
    }
}

const fn post(path: &'static str, need: Need) -> Row {
    Row {
        path,
        method: Method::Post,
        need,
    }
}

impl Method {
    /// The method of this name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "GET" | "HEAD" => Some(Self::Read),
            "POST" => Some(Self::Post),
            _ => None,
        }
    }
}

impl Row {
    /// What is needed for a path; `None` where the table has nothing of it.
    pub fn of(method: Method, path: &str) -> Option<&'static Self> {
        let mut rows = TABLE.iter();
        rows.find(|row| row.method == method && row.names(path).is_some())
    }

    /// The methods that the table has for a path, as `Allow` names them; `None` where it has nothing of it.
    pub fn methods(path: &str) -> Option<&'static str> {
        match (Self::of(Method::Read, path), Self::of(Method::Post, path)) {
            (None, None) => None,
            (Some(_), None) => Some("GET, HEAD"),
            (None, Some(_)) => Some("POST"),
            (Some(_), Some(_)) => Some("GET, HEAD, POST"),
        }
    }

    /// The part in braces, as the path has it; empty where there is none.
    fn names<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (mut ours, mut theirs) = (self.path.split('/'), path.split('/'));
        let mut named = "";
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some(named),
                (Some(any), Some(part)) if any.starts_with('{') && !part.is_empty() => named = part,
                (Some(one), Some(part)) if one == part => {}
                (None | Some(_), None | Some(_)) => return None,
            }
        }
    }

    /// The one question that decides about `path`, where one does. `namespace` is what the query names.
    pub fn question(&self, path: &str, namespace: Option<&str>) -> Option<Question> {
        match self.need {
            Need::Nothing => None,
            Need::Path(path) => Some(Question::Path(path)),
            Need::All(verb, resource) => Some(Question::all(verb, resource)),
            Need::Node => Some(Question::node(self.names(path).unwrap_or_default())),
            Need::Types | Need::Overview | Need::Match => {
                Some(Question::all(Verb::List, Resource::AcceleratorTypes))
            }
            Need::Profiles(verb) => Some(Question::all(verb, Resource::HardwareProfiles)),
            Need::Usage => Some(Question::usage(namespace)),
        }
    }

    /// Whether there is something beside it for who may list nodes alone: which nodes they are, or in whose words something failed.
    pub fn asks_for_nodes(&self) -> bool {
        match self.need {
            Need::Overview
            | Need::Types
            | Need::Match
            | Need::Usage
            | Need::Profiles(_)
            | Need::All(_, Resource::AcceleratorTypes) => true,
            Need::Nothing | Need::Path(_) | Need::All(..) | Need::Node => false,
        }
    }

    /// Whether the right to list nodes is enough: what it shows of them has all types in it.
    pub fn is_of_nodes(&self) -> bool {
        self.need == Need::Overview
    }

    /// Whether types that may be seen one by one are enough.
    pub fn asks_by_type(&self) -> bool {
        match self.need {
            Need::Types | Need::Overview | Need::Match | Need::Profiles(_) => true,
            Need::Nothing | Need::Path(_) | Need::All(..) | Need::Node | Need::Usage => false,
        }
    }

    /// Whether hardware profiles are told of beside it, to who may list those.
    pub fn asks_for_profiles(&self) -> bool {
        // A draft has what differs from the one of its name; estimates and objectives are compared by profile.
        self.need == Need::Match || BESIDE.contains(&self.path)
    }
}
