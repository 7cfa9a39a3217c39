//! Client of the aggregator's API: one request at a time over HTTP/1.1, with TLS unless the address is plain HTTP.
//!
//! ```text
//! settings.rs    address, cluster, certificates and token
//! connector.rs   connections: to an address, or through the API server to the aggregator's pod
//! url.rs         paths and parameters, percent-encoded
//! error.rs       errors, and advice about each
//! download.rs    files, part by part
//! events.rs      the stream of changes
//! event_feed.rs  the same, reconnected after failures
//! nodes.rs       lists of nodes, from all pages
//! token.rs       the bearer token
//! endpoint.rs    the gRPC service
//! ```
//!
//! An answer is limited in time and in size. A redirect is reported instead of followed: the user should know that the
//! address has moved, and following it would send the token to an unverified place.

mod connector;
mod download;
pub mod endpoint;
mod error;
mod event_feed;
mod events;
mod nodes;
mod settings;
mod token;
mod url;

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use octavo_fleet::problem::Problem;
use octavo_kube::aggregator_access::AggregatorAccess;
use octavo_toolkit::files;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use self::connector::Connector;
pub use self::download::Download;
pub use self::error::{ClientError, RequestError};
pub use self::event_feed::{EventFeed, FeedItem};
pub use self::events::{EventStream, Events};
pub use self::settings::ServerSettings;
use self::token::Credentials;
pub use self::url::{RequestPath, segment};

/// Maximum size of an answer. A page of a thousand nodes is half a megabyte; a node of sixteen GPUs with every profile
/// a quarter.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Maximum size of a problem document.
const MAX_PROBLEM_BYTES: usize = 64 << 10;

/// Maximum size of the CA certificates. A system's store is a quarter of a megabyte.
const MAX_CA_BYTES: u64 = 4 << 20;

const JSON: &str = "application/json";

/// Client of one aggregator. Connections are reused.
#[derive(Debug, Clone)]
pub struct Client {
    http: legacy::Client<HttpsConnector<Connector>, Full<Bytes>>,
    server: String,
    credentials: Credentials,
    timeout: Duration,
}

/// CAs that are trusted.
#[derive(Debug)]
enum TrustAnchors {
    Pem(Vec<u8>),
    System,
    /// For plain HTTP.
    None,
}

impl Client {
    /// Reads the certificates. Without the URL of a server, finds the aggregator of the kubeconfig's cluster;
    /// otherwise, sends no request yet.
    pub async fn connect(settings: &ServerSettings) -> Result<Self, ClientError> {
        let given = settings.certificate_authority.as_deref();
        let unreadable = |source| ClientError::Certificates {
            place: match given {
                Some(path) => path.display().to_string(),
                None if settings.server.is_some() => "this system".to_owned(),
                None => "the cluster".to_owned(),
            },
            source,
        };
        let anchors = given.map(read_pem).transpose().map_err(unreadable)?.map(TrustAnchors::Pem);
        let token = settings.token_file.clone().map(Credentials::File);
        let (server, connector, anchors, credentials) = if let Some(server) = &settings.server {
            let default =
                if server.is_secure() { TrustAnchors::System } else { TrustAnchors::None };
            let anchors = anchors.unwrap_or(default);
            (server.to_string(), connector::direct(), anchors, Credentials::None)
        } else {
            let namespace = settings.octavo_namespace.as_deref();
            let access = AggregatorAccess::discover(&settings.cluster(), namespace).await?;
            let anchors = match anchors {
                Some(anchors) => anchors,
                None => TrustAnchors::Pem(access.ca().await?),
            };
            let server = format!("https://{}", access.authority());
            let access = Arc::new(access);
            let connector = connector::forwarded(Arc::clone(&access));
            (server, connector, anchors, Credentials::from_cluster(access))
        };
        let tls = tls(anchors).map_err(unreadable)?;
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let builder = match &settings.tls_server_name {
            Some(name) => {
                let name = name.clone();
                builder.with_server_name_resolver(move |_: &_| ServerName::try_from(name.clone()))
            }
            None => builder,
        };
        let connector = builder.enable_http1().wrap_connector(connector);
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            server,
            credentials: token.unwrap_or(credentials),
            timeout: settings.timeout,
        })
    }

    /// Requests a document.
    pub async fn get<T: DeserializeOwned>(&self, target: &RequestPath) -> Result<T, ClientError> {
        self.document(target, None).await
    }

    /// Posts a document and returns the answer.
    pub async fn post<T: DeserializeOwned>(
        &self,
        target: &RequestPath,
        question: &impl Serialize,
    ) -> Result<T, ClientError> {
        let question = serde_json::to_vec(question);
        let question = question.map_err(ClientError::Serialize)?;
        self.document(target, Some(question.into())).await
    }

    async fn document<T: DeserializeOwned>(
        &self,
        target: &RequestPath,
        question: Option<Bytes>,
    ) -> Result<T, ClientError> {
        let exchange = async {
            let response = self.ask(target, JSON, question).await?;
            let body = read(response.into_body(), MAX_ANSWER_BYTES).await?;
            serde_json::from_slice(&body).map_err(RequestError::Unreadable)
        };
        let answer = timeout(self.timeout, exchange).await;
        let answer = answer.unwrap_or(Err(RequestError::TimedOut(self.timeout)));
        answer.map_err(|source| self.failed(target, source))
    }

    /// Subscribes to changes; the current state comes first.
    pub async fn events<E: EventStream>(
        &self,
        target: &RequestPath,
    ) -> Result<Events<E>, ClientError> {
        let result = timeout(self.timeout, self.ask(target, "text/event-stream", None)).await;
        let result = result.unwrap_or(Err(RequestError::TimedOut(self.timeout)));
        let response = result.map_err(|source| self.failed(target, source))?;
        Ok(Events::new(response.into_body()))
    }

    /// Requests a file of this media type, whose size is not limited.
    pub async fn download(
        &self,
        target: &RequestPath,
        media_type: &'static str,
    ) -> Result<Download<'_>, ClientError> {
        let result = timeout(self.timeout, self.ask(target, media_type, None)).await;
        let result = result.unwrap_or(Err(RequestError::TimedOut(self.timeout)));
        let response = result.map_err(|source| self.failed(target, source))?;
        Ok(Download { client: self, target: target.clone(), body: response.into_body() })
    }

    /// Adds the requested URL to an error.
    pub fn failed(&self, target: &RequestPath, source: RequestError) -> ClientError {
        ClientError::Request { url: target.url(&self.server), source: Box::new(source) }
    }

    /// Sends a request and returns the answer's head. A token of the kubeconfig is sent only if the aggregator
    /// requires one.
    async fn ask(
        &self,
        target: &RequestPath,
        accept: &'static str,
        question: Option<Bytes>,
    ) -> Result<Response<Incoming>, RequestError> {
        let uri: Uri = target.url(&self.server).parse().map_err(|_| RequestError::Address)?;
        let token = self.credentials.current(&uri).await?;
        let result = self.send(&uri, accept, question.clone(), token).await;
        if result.as_ref().is_err_and(RequestError::is_unauthenticated)
            && let Some(token) = self.credentials.renew().await?
        {
            return self.send(&uri, accept, question, Some(token)).await;
        }
        result
    }

    /// Sends a request and returns the answer's head; a problem document becomes an error.
    async fn send(
        &self,
        uri: &Uri,
        accept: &'static str,
        question: Option<Bytes>,
        token: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, RequestError> {
        let request = match question {
            Some(_) => Request::post(uri.clone()).header(CONTENT_TYPE, JSON),
            None => Request::get(uri.clone()),
        };
        let mut request = request
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("octavo/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(question.unwrap_or_default()))
            .map_err(|_| RequestError::Address)?;
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let response =
            self.http.request(request).await.map_err(|error| RequestError::from_hyper(&error))?;
        let status = response.status();
        let header = |name| {
            let value = response.headers().get(name);
            value.and_then(|value| value.to_str().ok().map(str::to_owned))
        };
        let kind = header(CONTENT_TYPE).unwrap_or_default();
        if status.is_redirection() {
            return Err(RequestError::Redirected {
                to: header(LOCATION).unwrap_or_else(|| "nowhere".to_owned()),
            });
        }
        if !status.is_success() {
            let body = read(response.into_body(), MAX_PROBLEM_BYTES).await;
            let problem: Option<Problem> =
                body.ok().and_then(|body| serde_json::from_slice(&body).ok());
            return Err(problem.map_or(RequestError::Status(status), |problem| {
                RequestError::Problem(Box::new(problem))
            }));
        }
        if kind.starts_with(accept) {
            Ok(response)
        } else {
            Err(RequestError::UnexpectedMediaType { kind })
        }
    }
}

async fn read(body: Incoming, longest: usize) -> Result<Bytes, RequestError> {
    let whole = Limited::new(body, longest).collect().await;
    whole.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            RequestError::TooLong(longest)
        } else {
            RequestError::Broken(error)
        }
    })
}

fn read_pem(path: &Path) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    Ok(files::read_bounded(File::open(path)?, MAX_CA_BYTES)?)
}

fn tls(anchors: TrustAnchors) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match anchors {
        TrustAnchors::Pem(pem) => builder.with_root_certificates(roots(&pem)?),
        TrustAnchors::System => builder.with_native_roots()?,
        TrustAnchors::None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Box<dyn Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("the file contains no certificate in PEM format".into());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
