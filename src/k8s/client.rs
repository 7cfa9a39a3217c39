//! The connection to the API server: where it is, who we are to it, and how patient we are.
//!
//! Token and certificates are read again when they were replaced, so a rotated one needs no restart. Nothing is retried in here:
//! who asks decides whether and when to ask again, so that requests can be counted.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
pub use kube::Client;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;
use tower::limit::RateLimitLayer;

use crate::domain::error::chain;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one request may take, its answer included; watches apart.
pub const REQUEST: Duration = Duration::from_secs(10);

/// Which program sends the requests; the `User-Agent` in the audit log of the API server.
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

/// Why there is no way to reach an API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The file cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<KubeconfigError>,
    },
    /// This is no pod with a service account.
    #[error("there is no service account of a pod here; outside of a pod give a --kubeconfig")]
    InCluster(#[source] Box<dyn StdError + Send + Sync>),
    /// The credentials cannot be used.
    #[error("cannot use the credentials for the API server")]
    Client(#[source] Box<kube::Error>),
}

/// What an agent may ask at most, whatever goes wrong: so many requests in such a time.
const MOST: (u64, Duration) = (20, Duration::from_secs(4));
/// A watch is silent until something happens, and ended by the server before this.
const SILENCE: Duration = Duration::from_mins(5);

/// A client for the cluster of `kubeconfig`, or for the one whose pod this is. Nothing is asked yet, so the API server may be away.
pub async fn connect(kubeconfig: Option<&Path>, program: Program) -> Result<Client, ConnectError> {
    let config = config(kubeconfig, program).await?;
    let builder = ClientBuilder::try_from(config).map_err(unusable)?;
    Ok(builder.build())
}

/// A client that asks no more than one agent has reason to, also of a server that ends every answer as soon as it has begun it.
pub async fn connect_agent(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let (count, time) = MOST;
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
        Some(path) => of_file(path).await?,
        None => Config::incluster_env().map_err(|error| ConnectError::InCluster(error.into()))?,
    };
    config.connect_timeout = Some(CONNECT);
    config.default_retry = false;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, program.user_agent()));
    Ok(config)
}

async fn of_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let options = KubeConfigOptions::default();
    let file = Kubeconfig::read_from(path).map_err(unusable)?;
    let authority = authority(&file);
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(unusable)?;
    // Read again when it was replaced, as in a pod.
    config.root_cert_file = authority;
    Ok(config)
}

/// The file of authorities of the context that counts, where it is one.
fn authority(file: &Kubeconfig) -> Option<PathBuf> {
    let context = file.current_context.as_ref()?;
    let context = file.contexts.iter().find(|one| one.name == *context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = file.clusters.iter().find(|one| one.name == *cluster)?;
    let path = cluster.cluster.as_ref()?.certificate_authority.as_ref()?;
    Some(PathBuf::from(path))
}

/// What went wrong, in words for a person: the client's own print the whole answer.
pub fn told(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return chain(error);
    };
    let (code, message) = (status.code, status.message.trim());
    match status.reason.as_str() {
        "" => format!("the API server says {code}: {message}"),
        reason => format!("the API server says {code} {reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// The `User-Agent` of one request that `client` sends to `server`.
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
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
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
        assert_eq!(
            user_agent(&server, agent).await,
            Some(format!("octavo-agent/{version}"))
        );
        for (program, name) in [
            (Program::Aggregator, "octavo-aggregator"),
            (Program::Octavo, "octavo"),
        ] {
            let client = connect(Some(&file), program).await.unwrap();
            assert_eq!(
                user_agent(&server, client).await,
                Some(format!("{name}/{version}"))
            );
        }
    }
}
