//! Errors of the access to the aggregator, with advice.

use octavo_model::text::first_names;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tower::BoxError;

use crate::client::{ConnectError, RequestError};

/// Maximum number of objects in a message.
const SHOWN: usize = 5;

/// Reason why the aggregator cannot be reached with a kubeconfig.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The kubeconfig or its credentials cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The API server refused a request or is unreachable.
    #[error("cannot {action}")]
    Api {
        /// Requested object.
        action: String,
        /// Purpose of the request.
        step: Step,
        /// The cause.
        source: RequestError,
    },
    /// There is no aggregator.
    #[error("no Service of an aggregator in {scope}")]
    NotFound {
        /// Scope of the search.
        scope: String,
    },
    /// There are several aggregators.
    #[error("several aggregators in {scope}: {}", first_names(.found, SHOWN))]
    Several {
        /// Scope of the search.
        scope: String,
        /// Their Services.
        found: Vec<String>,
    },
    /// The Service does not lead to the API.
    #[error("the Service {service} has no selector or no port named https")]
    NoPort {
        /// Its namespace and name.
        service: String,
    },
    /// No pod of the Service is ready.
    #[error("the Service {service} has no ready pod{}", found_pods(.found))]
    NoReadyPod {
        /// Its namespace and name.
        service: String,
        /// The pods with their states.
        found: Vec<String>,
    },
    /// The CA certificate is not published, or only where the user cannot read it.
    #[error(
        "no CA certificate of the aggregator: ca.crt is neither in the ConfigMap \
         {namespace}/{config_map} nor readable in the Secret {namespace}/{secret}"
    )]
    NoCa {
        /// The namespace of both.
        namespace: String,
        /// The name of the `ConfigMap`.
        config_map: String,
        /// The name of the Secret.
        secret: String,
    },
    /// The connection to the pod cannot be used.
    #[error("cannot connect to port {port} of the pod {pod}: {reason}")]
    Refused {
        /// The pod.
        pod: String,
        /// Its port.
        port: u16,
        /// The reason, as the kubelet reports it.
        reason: String,
    },
    /// The kubeconfig's token cannot be read.
    #[error("cannot use the token of the kubeconfig")]
    Token(#[source] BoxError),
    /// The aggregator requires a token, and was found by its labels only.
    #[error(
        "the aggregator requires a token, and the token of your kubeconfig is not sent to the \
         namespace {namespace} unless you name it"
    )]
    TokenWithheld {
        /// The namespace.
        namespace: String,
    },
    /// There is no account to request a token of.
    #[error(
        "the aggregator requires a token, your kubeconfig has none, and the namespace {namespace} \
         has no service account for readers"
    )]
    NoReader {
        /// The namespace.
        namespace: String,
    },
}

/// Purpose of a request to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Find the Service.
    Discover,
    /// Connect to its pod.
    Connect,
    /// Get a token.
    Token,
    /// Read the state of a Node, of pods, or logs.
    Diagnose,
    /// Read the configuration of the GPU Operator.
    Migrate,
}

impl AccessError {
    /// Converts the error of a request.
    pub(crate) fn api(
        step: Step,
        action: impl FnOnce() -> String,
    ) -> impl FnOnce(RequestError) -> Self {
        move |source| Self::Api { action: action(), step, source }
    }

    /// Returns the error on one line, without the parts that repeat the API server's message.
    pub fn brief(&self) -> String {
        match self {
            Self::Api { source, .. } => format!("{self}: {source}"),
            Self::Connect(_)
            | Self::NotFound { .. }
            | Self::Several { .. }
            | Self::NoPort { .. }
            | Self::NoReadyPod { .. }
            | Self::Refused { .. }
            | Self::NoCa { .. }
            | Self::Token(_)
            | Self::TokenWithheld { .. }
            | Self::NoReader { .. } => chain(self),
        }
    }

    /// Returns whether a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => source.code().is_none_or(|code| code == 404 || code >= 429),
            Self::NoReadyPod { .. } | Self::Refused { .. } => true,
            Self::Connect(_)
            | Self::NotFound { .. }
            | Self::Several { .. }
            | Self::NoPort { .. }
            | Self::NoCa { .. }
            | Self::Token(_)
            | Self::TokenWithheld { .. }
            | Self::NoReader { .. } => false,
        }
    }

    /// Returns advice about the error.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Connect(error) => error.advice(),
            Self::Api { step, source, .. } => api_advice(*step, source.code()),
            Self::NotFound { .. } => {
                "install Octavo in this cluster, choose another one with --context, or specify \
                 the aggregator with --server"
            }
            Self::Several { .. } => "choose one with --octavo-namespace NAMESPACE",
            Self::NoPort { .. } => "specify the aggregator with --server",
            Self::NoReadyPod { .. } | Self::Refused { .. } => {
                "check the aggregator with `kubectl describe pods -A -l \
                 app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=aggregator`"
            }
            Self::NoCa { .. } => {
                "specify the CA certificate with --certificate-authority; with cert-manager, run \
                 `helm upgrade` once more to publish it in the ConfigMap"
            }
            Self::Token(_) => "check the credentials with `kubectl auth whoami`",
            Self::TokenWithheld { .. } => {
                "if this is your aggregator, name its namespace with --octavo-namespace or \
                 OCTAVO_NAMESPACE"
            }
            Self::NoReader { .. } => {
                "specify a token with --token-file; create one with `kubectl create token ACCOUNT`"
            }
        }
    }
}

fn api_advice(step: Step, code: Option<u16>) -> &'static str {
    match (code, step) {
        (Some(401), _) => "check the credentials with `kubectl auth whoami`",
        (Some(403), Step::Discover) => {
            "name the namespace of the aggregator with --octavo-namespace, and ask the cluster \
             administrator for its Role octavo-cli"
        }
        (Some(403), Step::Connect) => {
            "ask the cluster administrator for the Role octavo-cli in this namespace"
        }
        (Some(403), Step::Diagnose) => {
            "ask the cluster administrator for permission to get Nodes, and to list pods and get \
             their logs in the namespace of Octavo"
        }
        (Some(403), Step::Migrate) => {
            "ask the cluster administrator for permission to list Nodes, ClusterPolicies and the \
             ConfigMaps of the operator's namespace, or pass saved objects with -f"
        }
        (Some(403), Step::Token) => {
            "specify a token with --token-file, or ask the cluster administrator for the Role \
             octavo-cli-reader in this namespace"
        }
        (_, _) => "check that the cluster responds with `kubectl version`",
    }
}

fn found_pods(found: &[String]) -> String {
    if found.is_empty() {
        return "; it has no pods at all".to_owned();
    }
    format!(": {}", first_names(found, SHOWN))
}
