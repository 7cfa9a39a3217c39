//! Authorization table: the required permission for every path and method.

use super::{Question, Resource, Verb};

/// Class of HTTP methods for authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET and HEAD.
    Read,
    /// POST.
    Post,
}

/// Required permission for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// None: the path exposes nothing of the fleet.
    Nothing,
    /// Read access to this non-resource path, as scrapers have it.
    Path(&'static str),
    /// A verb on all objects of a resource.
    All(Verb, Resource),
    /// Read access to the node in the path.
    Node,
    /// Access to all types, or to at least one; then only those are shown.
    Types,
    /// This verb on all hardware profiles; otherwise, only profiles whose types are all visible are shown.
    Profiles(Verb),
    /// Like `Types`; nodes are shown to requesters who may list nodes.
    Overview,
    /// Like `Types`; nodes and hardware profiles are named to requesters who may list these.
    Match,
    /// Permission to list usage, in the namespace of the query or in all; nodes are named to requesters who may list
    /// nodes.
    Usage,
}

/// Row of the authorization table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Path pattern; a segment in braces matches any non-empty segment.
    pub path: &'static str,
    /// The method.
    pub method: Method,
    /// Required permission.
    pub need: Need,
}

/// All permitted paths and methods. A test compares the paths with those of the router.
pub const TABLE: &[Row] = &[
    read("/healthz", Need::Nothing),
    read("/readyz", Need::Nothing),
    read("/openapi.json", Need::Nothing),
    read("/assets/{file}", Need::Nothing),
    read("/metrics", Need::Path("/metrics")),
    read("/", Need::Overview),
    // The event stream only signals that something changed.
    read("/live", Need::Types),
    read("/nodes", Need::Overview),
    read("/nodes/", Need::Overview),
    read("/nodes/{name}", Need::Node),
    read("/availability", Need::Types),
    read(COMPARE, TYPES),
    read(OBJECTIVES, TYPES),
    post(OBJECTIVES, TYPES),
    read("/profiles", PROFILES),
    // A draft derives from nodes and names those that it excludes.
    read(DRAFT, NODES),
    // Permission to create the real hardware profile is checked separately.
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
    // This POST changes nothing: a URL has no room for the names of many nodes.
    post("/api/v1/profile-draft", NODES),
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
/// Paths that also name hardware profiles.
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
    /// Class of the HTTP method `name`.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "GET" | "HEAD" => Some(Self::Read),
            "POST" => Some(Self::Post),
            _ => None,
        }
    }
}

impl Row {
    /// Row for a path; `None` if the table has none.
    pub fn of(method: Method, path: &str) -> Option<&'static Self> {
        let mut rows = TABLE.iter();
        rows.find(|row| row.method == method && row.names(path).is_some())
    }

    /// Methods of a path in the format of the `Allow` header; `None` if the table does not have the path.
    pub fn methods(path: &str) -> Option<&'static str> {
        match (Self::of(Method::Read, path), Self::of(Method::Post, path)) {
            (None, None) => None,
            (Some(_), None) => Some("GET, HEAD"),
            (None, Some(_)) => Some("POST"),
            (Some(_), Some(_)) => Some("GET, HEAD, POST"),
        }
    }

    /// Value of the segment in braces, empty if the pattern has none; `None` if the path does not match.
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

    /// Access review that decides about `path`, unless the path is open. `namespace` comes from the query.
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

    /// Returns `true` if the response contains data that only requesters who may list nodes see: node names, or
    /// internal error messages.
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

    /// Returns `true` if permission to list nodes is sufficient, because the nodes shown reveal all types.
    pub fn is_of_nodes(&self) -> bool {
        self.need == Need::Overview
    }

    /// Returns `true` if permission for individual types is sufficient.
    pub fn asks_by_type(&self) -> bool {
        match self.need {
            Need::Types | Need::Overview | Need::Match | Need::Profiles(_) => true,
            Need::Nothing | Need::Path(_) | Need::All(..) | Need::Node | Need::Usage => false,
        }
    }

    /// Returns `true` if the response also contains hardware profiles, for requesters who may list these.
    pub fn asks_for_profiles(&self) -> bool {
        // A draft contains the differences from the profile of the same name; estimates and objectives are compared
        // by profile.
        self.need == Need::Match || BESIDE.contains(&self.path)
    }
}
