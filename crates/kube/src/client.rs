//! API server connections: address, credentials and timeouts.
//!
//! Tokens and certificates are reloaded when they are replaced, so rotation needs no restart. Nothing is retried here:
//! the caller decides whether and when to retry, so that requests can be limited.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
pub use kube::Client;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::runtime::watcher;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tokio::time::timeout;
use tower::limit::RateLimitLayer;

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
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: Box<KubeconfigError>,
    },
    /// This is not a pod with a service account.
    #[error("no service account found; set --kubeconfig outside a pod")]
    InCluster(#[source] Box<dyn StdError + Send + Sync>),
    /// The credentials cannot be used.
    #[error("cannot use the credentials for the API server")]
    Client(#[source] Box<kube::Error>),
}

/// Rate limit of an agent: number of requests per interval.
const AGENT_RATE_LIMIT: (u64, Duration) = (20, Duration::from_secs(4));
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
    let (count, time) = AGENT_RATE_LIMIT;
    let limit = RateLimitLayer::new(count, time);
    let config = config(kubeconfig, Program::Agent).await?;
    let builder = ClientBuilder::try_from(config).map_err(unusable)?;
    Ok(builder.with_layer(&limit).build())
}

fn unusable(error: kube::Error) -> ConnectError {
    ConnectError::Client(Box::new(error))
}

async fn config(kubeconfig: Option<&Path>, program: Program) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => config_from_file(path).await?,
        None => Config::incluster_env().map_err(|error| ConnectError::InCluster(error.into()))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, program.user_agent()));
    Ok(config)
}

async fn config_from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable =
        |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
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
