//! API server connections: address, credentials and timeouts.
//!
//! Tokens and certificates are reloaded when they are replaced, so rotation needs no restart. Nothing is retried here:
//! the caller decides whether and when to retry, so that requests can be limited.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
pub use kube::Client;
use kube::Config;
use kube::client::middleware::AuthLayer;
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::runtime::watcher;
use octavo_model::text::first_names;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tokio::time::timeout;
use tower::limit::RateLimitLayer;
use tower::{BoxError, Layer, service_fn};

/// Connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one request including its response; does not apply to watches.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The program that sends requests, which is the `User-Agent` in the API server's audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The agent.
    Agent,
    /// The aggregator.
    Aggregator,
    /// The command line.
    Octavo,
}

impl Program {
    fn user_agent(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Agent => concat!("octavo-agent/", env!("CARGO_PKG_VERSION")),
            Self::Aggregator => concat!("octavo-aggregator/", env!("CARGO_PKG_VERSION")),
            Self::Octavo => concat!("octavo/", env!("CARGO_PKG_VERSION")),
        })
    }
}

/// Error that prevents creation of a client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {place}")]
    Kubeconfig {
        /// Its path, or where it was searched.
        place: String,
        /// The cause.
        source: Box<KubeconfigError>,
    },
    /// There is no kubeconfig, and this is not a pod.
    #[error("no kubeconfig found")]
    NoKubeconfig(#[source] Box<KubeconfigError>),
    /// The kubeconfig does not have the context.
    #[error("the kubeconfig has no context {name}; {}", known_contexts(.known))]
    UnknownContext {
        /// The requested name.
        name: String,
        /// The existing contexts.
        known: Vec<String>,
    },
    /// The kubeconfig does not select a context.
    #[error("the kubeconfig has no current context; {}", known_contexts(.known))]
    NoContext {
        /// The existing contexts.
        known: Vec<String>,
    },
    /// This is not a pod with a service account.
    #[error("no service account found; set --kubeconfig outside a pod")]
    InCluster(#[source] Box<dyn StdError + Send + Sync>),
    /// The credentials cannot be used.
    #[error("cannot use the credentials for the API server")]
    Client(#[source] Box<kube::Error>),
}

impl ConnectError {
    /// Returns advice about the error.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Kubeconfig { .. } => {
                "correct the kubeconfig, or name another one with --kubeconfig"
            }
            Self::NoKubeconfig(_) | Self::InCluster(_) => {
                "name a kubeconfig with --kubeconfig or KUBECONFIG"
            }
            Self::UnknownContext { .. } | Self::NoContext { .. } => {
                "name one of these contexts with --context"
            }
            Self::Client(_) => "check the credentials with `kubectl auth whoami`",
        }
    }
}

fn known_contexts(known: &[String]) -> String {
    const SHOWN: usize = 12;
    match known {
        [] => "it has no contexts".to_owned(),
        known => format!("contexts: {}", first_names(known, SHOWN)),
    }
}

/// The cluster and the user that kubectl would select with the same flags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSelection {
    /// Kubeconfig, instead of the ones in `KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context, instead of the current one.
    pub context: Option<String>,
}

/// Client of a user, and the layer that adds the user's token to requests, if there is one.
pub(crate) struct UserClient {
    pub(crate) client: Client,
    pub(crate) token: Option<AuthLayer>,
}

/// Creates a client of a user, as kubectl does. Sends no request yet.
pub async fn connect_user(selection: &ClusterSelection) -> Result<Client, ConnectError> {
    user_client(selection).await.map(|user| user.client)
}

/// Creates a client of a user. A credential plugin is started once.
pub(crate) async fn user_client(selection: &ClusterSelection) -> Result<UserClient, ConnectError> {
    let config = user_config(selection).await?;
    let mut config = with_limits(config, Program::Octavo);
    let token = config.auth_layer().map_err(unusable)?;
    let client = match &token {
        None => ClientBuilder::try_from(config).map_err(unusable)?.build(),
        Some(layer) => {
            // The client would start the credential plugin again.
            config.auth_info = AuthInfo {
                token: None,
                token_file: None,
                exec: None,
                auth_provider: None,
                username: None,
                ..config.auth_info
            };
            let namespace = config.default_namespace.clone();
            let client = ClientBuilder::try_from(config).map_err(unusable)?.build();
            let send = service_fn(move |request| {
                let client = client.clone();
                async move { client.send(request).await.map_err(BoxError::from) }
            });
            Client::new(layer.layer(send), namespace)
        }
    };
    Ok(UserClient { client, token })
}

async fn user_config(selection: &ClusterSelection) -> Result<Config, ConnectError> {
    let place = || match &selection.kubeconfig {
        Some(path) => path.display().to_string(),
        None => "of KUBECONFIG or ~/.kube/config".to_owned(),
    };
    let unusable = |source| ConnectError::Kubeconfig { place: place(), source: Box::new(source) };
    let read = match &selection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = match read {
        Ok(file) => file,
        Err(error) if selection.kubeconfig.is_none() && is_missing(&error) => {
            if selection.context.is_some() {
                return Err(ConnectError::NoKubeconfig(Box::new(error)));
            }
            // A pod has a service account instead.
            let config = Config::incluster_env();
            return config.map_err(|_outside| ConnectError::NoKubeconfig(Box::new(error)));
        }
        Err(error) => return Err(unusable(error)),
    };
    check_context(&file, selection.context.as_deref())?;
    let options =
        KubeConfigOptions { context: selection.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)
}

fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::FindPath)
        || matches!(error, KubeconfigError::ReadConfig(source, _)
            if source.kind() == io::ErrorKind::NotFound)
}

fn check_context(file: &Kubeconfig, wanted: Option<&str>) -> Result<(), ConnectError> {
    let known = || file.contexts.iter().map(|one| one.name.clone()).collect();
    let current = file.current_context.as_deref().filter(|name| !name.is_empty());
    match wanted.or(current) {
        None => Err(ConnectError::NoContext { known: known() }),
        Some(name) if !file.contexts.iter().any(|one| one.name == name) => {
            Err(ConnectError::UnknownContext { name: name.to_owned(), known: known() })
        }
        Some(_) => Ok(()),
    }
}

/// Rate limit of an agent: number of requests per interval.
const AGENT_RATE_LIMIT: (u64, Duration) = (20, Duration::from_secs(4));
/// Rate limit of the controller of policies: a change of a node needs two requests.
const POLICY_RATE_LIMIT: (u64, Duration) = (50, Duration::from_secs(1));
/// Read timeout. A watch is silent until an event occurs, and the server ends it before this time.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

/// Creates a client for the cluster of `kubeconfig`, or for the one of the current pod. Sends no request yet, so the
/// API server may be unavailable.
pub async fn connect(kubeconfig: Option<&Path>, program: Program) -> Result<Client, ConnectError> {
    let config = config(kubeconfig, program).await?;
    let builder = ClientBuilder::try_from(config).map_err(unusable)?;
    Ok(builder.build())
}

/// Creates a client with an agent's rate limit, which also bounds the requests to a server that ends every response
/// immediately.
pub async fn connect_agent(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_limited(kubeconfig, Program::Agent, AGENT_RATE_LIMIT).await
}

/// Creates a client with the rate limit of the controller of policies.
pub async fn connect_policies(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_limited(kubeconfig, Program::Aggregator, POLICY_RATE_LIMIT).await
}

async fn connect_limited(
    kubeconfig: Option<&Path>,
    program: Program,
    (count, time): (u64, Duration),
) -> Result<Client, ConnectError> {
    let limit = RateLimitLayer::new(count, time);
    let config = config(kubeconfig, program).await?;
    let builder = ClientBuilder::try_from(config).map_err(unusable)?;
    Ok(builder.with_layer(&limit).build())
}

fn unusable(error: kube::Error) -> ConnectError {
    ConnectError::Client(Box::new(error))
}

async fn config(kubeconfig: Option<&Path>, program: Program) -> Result<Config, ConnectError> {
    let config = match kubeconfig {
        Some(path) => config_from_file(path).await?,
        None => Config::incluster_env().map_err(|error| ConnectError::InCluster(error.into()))?,
    };
    Ok(with_limits(config, program))
}

fn with_limits(mut config: Config, program: Program) -> Config {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, program.user_agent()));
    config
}

async fn config_from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::Kubeconfig {
        place: path.display().to_string(),
        source: Box::new(source),
    };
    let options = KubeConfigOptions::default();
    let file = Kubeconfig::read_from(path).map_err(unusable)?;
    let authority = ca_file(&file);
    let mut config = Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?;
    // Reloaded when it is replaced, as in a pod.
    config.root_cert_file = authority;
    Ok(config)
}

/// Returns the certificate authority file of the current context, if it has one.
fn ca_file(file: &Kubeconfig) -> Option<PathBuf> {
    let context = file.current_context.as_ref()?;
    let context = file.contexts.iter().find(|one| one.name == *context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = file.clusters.iter().find(|one| one.name == *cluster)?;
    let path = cluster.cluster.as_ref()?.certificate_authority.as_ref()?;
    Some(PathBuf::from(path))
}

/// Formats an API error for users: the client's own format prints the whole response.
pub fn describe_error(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return chain(error);
    };
    let (code, message) = (status.code, status.message.trim());
    match status.reason.as_str() {
        "" => format!("the API server returned {code}: {message}"),
        reason => format!("the API server returned {code} {reason}: {message}"),
    }
}

/// Formats the error of a watch for users.
pub(crate) fn describe_watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe_error(error),
        watcher::Error::WatchError(status) => describe_error(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Error of one request.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The API server refused the request or is unreachable.
    #[error("{}", describe_error(.0))]
    Refused(#[source] Box<kube::Error>),
    /// No response within this time.
    #[error("no response from the API server within {0:?}")]
    TimedOut(Duration),
}

impl RequestError {
    /// Returns the HTTP status of the response, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(error) => response_code(error),
            Self::TimedOut(_) => None,
        }
    }

    /// Formats the error without the time limit.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Refused(error) => describe_error(error),
            Self::TimedOut(_) => "no response from the API server".to_owned(),
        }
    }

    /// Returns the delay that the server requests.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(error) => requested_delay(error),
            Self::TimedOut(_) => None,
        }
    }
}

/// Awaits the response of one request, for at most [`REQUEST_TIMEOUT`].
pub(crate) async fn request<T>(
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    request_within(REQUEST_TIMEOUT, response).await
}

/// Awaits the response of one request.
pub(crate) async fn request_within<T>(
    limit: Duration,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    match timeout(limit, response).await {
        Ok(response) => response.map_err(|error| RequestError::Refused(Box::new(error))),
        Err(_elapsed) => Err(RequestError::TimedOut(limit)),
    }
}

/// Returns the HTTP status of the API server's response, if there was one.
pub(crate) fn response_code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}

/// Returns the delay that the server requests. Source: Kubernetes, `Status.details.retryAfterSeconds`.
pub(crate) fn requested_delay(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the `User-Agent` of a request that `client` sends to `server`.
    async fn user_agent(server: &TcpListener, client: Client) -> Option<String> {
        let request = async move { client.apiserver_version().await };
        let answer = async {
            let (stream, _) = server.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut found = None;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                match line.trim_end().split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("user-agent") => {
                        found = Some(value.to_owned());
                    }
                    None if line.trim_end().is_empty() => break,
                    Some(_) | None => {}
                }
            }
            let response =
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(response).await.unwrap();
            found
        };
        let (_refused, found) = tokio::join!(request, answer);
        found
    }

    fn kubeconfig(current: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: '{current}'\n\
             clusters: [{{name: c, cluster: {{server: 'https://192.0.2.1'}}}}]\n\
             contexts:\n- {{name: a, context: {{cluster: c, user: u}}}}\n\
             - {{name: b, context: {{cluster: c, user: u}}}}\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn requested_context_takes_precedence_and_unknown_ones_are_reported_with_the_known() {
        let checked = |current: &str, wanted: Option<&str>| {
            check_context(&kubeconfig(current), wanted).map_err(|error| error.to_string())
        };
        assert_eq!(checked("a", None), Ok(()));
        assert_eq!(checked("gone", Some("b")), Ok(()));
        for (current, wanted, message) in [
            ("", None, "the kubeconfig has no current context; contexts: a, b"),
            ("gone", None, "the kubeconfig has no context gone; contexts: a, b"),
            ("a", Some("x"), "the kubeconfig has no context x; contexts: a, b"),
        ] {
            assert_eq!(checked(current, wanted), Err(message.to_owned()));
        }
        let empty = check_context(&Kubeconfig::default(), None).unwrap_err().to_string();
        assert_eq!(empty, "the kubeconfig has no current context; it has no contexts");
    }

    #[tokio::test]
    async fn kubeconfig_given_by_name_is_not_replaced_by_the_account_of_a_pod() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        let selection = ClusterSelection { kubeconfig: Some(absent.clone()), context: None };
        let error = connect_user(&selection).await.err().unwrap();
        assert_eq!(error.to_string(), format!("cannot use the kubeconfig {}", absent.display()));
    }

    #[tokio::test]
    async fn every_request_names_its_program_and_version() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n",
            server.local_addr().unwrap()
        );
        std::fs::write(&file, text).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let agent = connect_agent(Some(&file)).await.unwrap();
        assert_eq!(user_agent(&server, agent).await, Some(format!("octavo-agent/{version}")));
        for (program, name) in
            [(Program::Aggregator, "octavo-aggregator"), (Program::Octavo, "octavo")]
        {
            let client = connect(Some(&file), program).await.unwrap();
            assert_eq!(user_agent(&server, client).await, Some(format!("{name}/{version}")));
        }
    }
}
