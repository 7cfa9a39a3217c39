//! Authorization table: the required permission for every path and method.

use super::{AccessReview, Resource, Verb};

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
pub enum RoutePermission {
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
    /// Like `Overview`, or permission to list usage in the namespace of the query or in all; pods are shown to requesters
    /// who have it.
    Search,
    /// Like `Types`; nodes and hardware profiles are named to requesters who may list these.
    Match,
    /// Permission to list usage, in the namespace of the query or in all; nodes are named to requesters who may list
    /// nodes.
    Usage,
}

/// Row of the authorization table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRule {
    /// Path pattern; a segment in braces matches any non-empty segment.
    pub path: &'static str,
    /// The method.
    pub method: Method,
    /// Required permission.
    pub permission: RoutePermission,
}

/// All permitted paths and methods. A test compares the paths with those of the router.
pub const ROUTE_RULES: &[RouteRule] = &[
    read("/healthz", RoutePermission::Nothing),
    read("/readyz", RoutePermission::Nothing),
    read("/openapi.json", RoutePermission::Nothing),
    read("/assets/{file}", RoutePermission::Nothing),
    read("/metrics", RoutePermission::Path("/metrics")),
    read("/", RoutePermission::Overview),
    // The event stream only signals that something changed.
    read("/live", RoutePermission::Types),
    read("/nodes", RoutePermission::Overview),
    read("/nodes/{name}", RoutePermission::Node),
    read("/teams", RoutePermission::Usage),
    read("/cost", RoutePermission::Usage),
    read("/cost.csv", RoutePermission::Usage),
    read("/availability", RoutePermission::Types),
    read("/map", NODES),
    read("/layouts", NODES),
    read("/layouts/dry-run", PLANS),
    read("/demand", PLANS),
    read("/policies", PLANS),
    read("/policies/{name}", PLANS),
    read("/nodes.csv", NODES),
    read("/search", RoutePermission::Search),
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
    read("/api/v1/types", RoutePermission::Types),
    read("/api/v1/availability", RoutePermission::Types),
    post("/api/v1/match", RoutePermission::Match),
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
    read("/api/v1/profile-events", RoutePermission::Profiles(Verb::Watch)),
    read("/api/v1/nodes", NODES),
    read("/api/v1/nodes/{name}", RoutePermission::Node),
    read("/api/v1/nodes/{name}/changes", RoutePermission::Node),
    read("/api/v1/nodes/{name}/layouts", RoutePermission::Node),
    read("/api/v1/nodes/{name}/plan", RoutePermission::Node),
    read("/api/v1/layouts/{name}/plan", PLANS),
    read("/api/v1/demand", PLANS),
    read("/api/v1/policies", PLANS),
    read("/api/v1/policies/{name}", PLANS),
    read("/api/v1/policies/{name}/plan", PLANS),
    // This POST changes nothing: it plans a policy that the cluster does not have.
    post("/api/v1/policies/plan", PLANS),
    read("/api/v1/events", RoutePermission::All(Verb::Watch, Resource::Nodes)),
    read("/api/v1/series", NODES),
    read("/api/v1/cluster-nodes", NODES),
    read("/api/v1/usage", RoutePermission::Usage),
    read("/api/v1/cost", RoutePermission::Usage),
    read("/api/v1/cost/focus", RoutePermission::Usage),
    read("/api/v1/audit", RoutePermission::All(Verb::List, Resource::AuditEntries)),
    read("/api/v1/cost/budgets", RoutePermission::Usage),
    read("/api/v1/usage/summary", RoutePermission::All(Verb::List, Resource::Usage)),
];

const DRAFT: &str = "/profiles/new";
const SLO: &str = "/api/v1/slo";
const COMPARE: &str = "/compare";
const OBJECTIVES: &str = "/objectives";
/// Paths that also name hardware profiles.
const ROUTES_WITH_PROFILES: [&str; 4] = [DRAFT, SLO, COMPARE, OBJECTIVES];
const NODES: RoutePermission = RoutePermission::All(Verb::List, Resource::Nodes);
/// Plans of any node, which name the pods that hold its devices.
const PLANS: RoutePermission = RoutePermission::All(Verb::Get, Resource::Nodes);
const PROFILES: RoutePermission = RoutePermission::Profiles(Verb::List);
const TYPES: RoutePermission = RoutePermission::All(Verb::List, Resource::AcceleratorTypes);

const fn read(path: &'static str, need: RoutePermission) -> RouteRule {
    RouteRule { path, method: Method::Read, permission: need }
}

const fn post(path: &'static str, need: RoutePermission) -> RouteRule {
    RouteRule { path, method: Method::Post, permission: need }
}

impl Method {
    /// Class of the HTTP method `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "GET" | "HEAD" => Some(Self::Read),
            "POST" => Some(Self::Post),
            _ => None,
        }
    }
}

impl RouteRule {
    /// Row for a path; `None` if the table has none.
    pub fn find(method: Method, path: &str) -> Option<&'static Self> {
        let mut rows = ROUTE_RULES.iter();
        rows.find(|row| row.method == method && row.path_parameter(path).is_some())
    }

    /// Methods of a path in the format of the `Allow` header; `None` if the table does not have the path.
    pub fn allowed_methods(path: &str) -> Option<&'static str> {
        match (Self::find(Method::Read, path), Self::find(Method::Post, path)) {
            (None, None) => None,
            (Some(_), None) => Some("GET, HEAD"),
            (None, Some(_)) => Some("POST"),
            (Some(_), Some(_)) => Some("GET, HEAD, POST"),
        }
    }

    /// Value of the segment in braces, empty if the pattern has none; `None` if the path does not match. A slash at the
    /// end of a page's path is ignored: the page redirects to the address without it.
    fn path_parameter<'a>(&self, path: &'a str) -> Option<&'a str> {
        let is_page = |rest: &&str| !rest.is_empty() && !rest.starts_with("/api/");
        let path = path.strip_suffix('/').filter(is_page).unwrap_or(path);
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
    pub fn review(&self, path: &str, namespace: Option<&str>) -> Option<AccessReview> {
        match self.permission {
            RoutePermission::Nothing => None,
            RoutePermission::Path(path) => Some(AccessReview::Path(path)),
            RoutePermission::All(verb, resource) => Some(AccessReview::all(verb, resource)),
            RoutePermission::Node => {
                Some(AccessReview::node(self.path_parameter(path).unwrap_or_default()))
            }
            RoutePermission::Types
            | RoutePermission::Overview
            | RoutePermission::Search
            | RoutePermission::Match => {
                Some(AccessReview::all(Verb::List, Resource::AcceleratorTypes))
            }
            RoutePermission::Profiles(verb) => {
                Some(AccessReview::all(verb, Resource::HardwareProfiles))
            }
            RoutePermission::Usage => Some(AccessReview::usage(namespace)),
        }
    }

    /// Returns `true` if the response contains data that only requesters who may list nodes see: node names, or
    /// internal error messages.
    pub fn shows_nodes(&self) -> bool {
        match self.permission {
            RoutePermission::Overview
            | RoutePermission::Search
            | RoutePermission::Types
            | RoutePermission::Match
            | RoutePermission::Usage
            | RoutePermission::Profiles(_)
            | RoutePermission::All(_, Resource::AcceleratorTypes) => true,
            RoutePermission::Nothing
            | RoutePermission::Path(_)
            | RoutePermission::All(..)
            | RoutePermission::Node => false,
        }
    }

    /// Returns `true` if permission to list nodes is sufficient, because the nodes shown reveal all types.
    pub fn allows_by_nodes(&self) -> bool {
        matches!(self.permission, RoutePermission::Overview | RoutePermission::Search)
    }

    /// Returns `true` if the response also contains pods, for requesters who may list usage.
    pub fn shows_pods(&self) -> bool {
        self.permission == RoutePermission::Search
    }

    /// Returns `true` if permission for individual types is sufficient.
    pub fn allows_by_type(&self) -> bool {
        match self.permission {
            RoutePermission::Types
            | RoutePermission::Overview
            | RoutePermission::Search
            | RoutePermission::Match
            | RoutePermission::Profiles(_) => true,
            RoutePermission::Nothing
            | RoutePermission::Path(_)
            | RoutePermission::All(..)
            | RoutePermission::Node
            | RoutePermission::Usage => false,
        }
    }

    /// Returns `true` if the response also contains hardware profiles, for requesters who may list these.
    pub fn shows_profiles(&self) -> bool {
        // A draft contains the differences from the profile of the same name; estimates and objectives are compared
        // by profile; a search finds them.
        matches!(self.permission, RoutePermission::Match | RoutePermission::Search)
            || ROUTES_WITH_PROFILES.contains(&self.path)
    }
}
