//! Errors of requests to an aggregator, with advice.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use hyper_util::client::legacy;
use octavo_fleet::problem::Problem;
use octavo_kube::aggregator_access::AccessError;
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

use octavo_model::text::printable;

/// Failure of the client. The message names the action and its object; the cause follows in the chain.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The CA certificates cannot be read.
    #[error("cannot read CA certificates from {place}")]
    Certificates {
        /// The file, or this system.
        place: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The aggregator of the kubeconfig's cluster cannot be found.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A document to post cannot be serialized.
    #[error("cannot write the request")]
    Serialize(#[source] serde_json::Error),
    /// A request to an aggregator failed.
    #[error("cannot get {url}")]
    Request {
        /// The URL.
        url: String,
        /// The cause.
        source: Box<RequestError>,
    },
}

/// Reason why a request failed.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The configured address and the requested path do not form a valid URL.
    #[error("invalid URL")]
    Address,
    /// The token in the file cannot be used.
    #[error("cannot use the token in {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The token would be sent unencrypted.
    #[error(
        "the URL begins with http://, and tokens are never sent unencrypted to another machine"
    )]
    TokenInClear,
    /// The connection through the API server, or a token for the aggregator, failed.
    #[error("{message}")]
    Access {
        /// Failed operation and its cause.
        message: String,
        /// Recommended action.
        advice: &'static str,
        /// True if a later attempt may succeed.
        is_transient: bool,
    },
    /// The connection was refused.
    #[error("connection refused")]
    ConnectionRefused,
    /// The connection failed.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The aggregator's certificate cannot be trusted.
    #[error("the server certificate cannot be verified: {}", certificate_message(.0))]
    Certificate(CertificateError),
    /// TLS failed otherwise.
    #[error("TLS handshake failed")]
    Tls(#[source] rustls::Error),
    /// The response is not HTTP.
    #[error("the server does not respond with HTTP")]
    NotHttp(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke.
    #[error("the connection was lost before the response was complete")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// The timeout has passed.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    /// The server redirects the request.
    #[error("the server redirects to {}, and redirects are not followed", printable(.to))]
    Redirected {
        /// The target.
        to: String,
    },
    /// The server returned a problem document.
    #[error("{}", problem_text(.0))]
    Problem(Box<Problem>),
    /// The server returned an error without a readable explanation.
    #[error("the server returned {0} without an explanation")]
    Status(StatusCode),
    /// Another program responded.
    #[error("the response is {}, so the server is probably not an aggregator", media_type(.kind))]
    UnexpectedMediaType {
        /// Its media type.
        kind: String,
    },
    /// The answer exceeds the size limit.
    #[error("the response is larger than {} MiB", .0 >> 20)]
    TooLong(usize),
    /// The answer is not what this version expects.
    #[error("cannot parse the response")]
    Unreadable(#[source] serde_json::Error),
    /// The stream ended.
    #[error("the aggregator ended the stream")]
    StreamEnded,
    /// The stream was silent for longer than its heartbeat interval.
    #[error("no data or keep-alive received for {0:?}")]
    StreamSilent(Duration),
}

/// Certificate errors that rustls reports only as text of its verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateFlaw {
    /// The server presents a CA's certificate.
    ServerIsCa,
    /// The issuer's certificate is not a CA's.
    IssuerIsNotCa,
    /// The certificate predates X.509 extensions.
    Version,
    /// The certificate is not for servers.
    Purpose,
}

impl CertificateFlaw {
    fn from_error(error: &CertificateError) -> Option<Self> {
        // The verifier is not a dependency of this crate, so its errors are recognized by name.
        let CertificateError::Other(other) = error else {
            return matches!(
                error,
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
            )
            .then_some(Self::Purpose);
        };
        let name = format!("{:?}", other.0);
        [
            ("CaUsedAsEndEntity", Self::ServerIsCa),
            ("EndEntityUsedAsCa", Self::IssuerIsNotCa),
            ("UnsupportedCertVersion", Self::Version),
        ]
        .into_iter()
        .find_map(|(word, flaw)| name.contains(word).then_some(flaw))
    }

    fn words(self) -> &'static str {
        match self {
            Self::ServerIsCa => {
                "it is a CA certificate (CA:TRUE), which cannot be used as a server certificate"
            }
            Self::IssuerIsNotCa => "it is signed by a certificate that is not a CA (CA:FALSE)",
            Self::Version => {
                "it is an X.509 version 1 certificate, which cannot contain server \
                              names"
            }
            Self::Purpose => {
                "it is not a server certificate: its extended key usage lacks \
                              serverAuth"
            }
        }
    }
}

/// Describes the error of a certificate.
fn certificate_message(error: &CertificateError) -> String {
    match (CertificateFlaw::from_error(error), error) {
        (Some(flaw), _) => flaw.words().to_owned(),
        (None, CertificateError::UnknownIssuer) => "it is signed by an unknown CA".to_owned(),
        (None, error) => error.to_string(),
    }
}

/// Returns advice about a certificate.
fn certificate_advice(error: &CertificateError) -> &'static str {
    if matches!(error, CertificateError::UnknownIssuer) {
        return "specify the CA certificate with --certificate-authority FILE or OCTAVO_CA";
    }
    if matches!(
        error,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    ) {
        return "use a name of the certificate in --server or --tls-server-name";
    }
    if matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        return "renew the aggregator's certificate, and check the clock of this machine";
    }
    if matches!(error, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. })
    {
        return "check the clock of this machine";
    }
    match CertificateFlaw::from_error(error) {
        Some(CertificateFlaw::ServerIsCa) => {
            "create a server certificate for the aggregator: with openssl req -x509, add -addext \
             basicConstraints=critical,CA:FALSE"
        }
        Some(CertificateFlaw::IssuerIsNotCa) => {
            "specify a CA certificate with --certificate-authority, or the server certificate \
             itself if it is self-signed"
        }
        Some(CertificateFlaw::Version) => {
            "create a version 3 certificate: with openssl x509 -req, add an -extfile with \
             subjectAltName"
        }
        Some(CertificateFlaw::Purpose) => {
            "create a server certificate: extendedKeyUsage must contain serverAuth or be absent"
        }
        None => "replace the certificate of the aggregator",
    }
}

impl ClientError {
    /// Returns whether a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.is_transient(),
            Self::Access(error) => error.is_transient(),
            Self::Certificates { .. } | Self::Serialize(_) => false,
        }
    }

    /// Returns whether the requester is not authorized.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_forbidden())
    }

    /// Returns advice about the error.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Certificates { .. } => {
                Some("specify a file with PEM certificates with --certificate-authority")
            }
            Self::Access(error) => Some(error.advice()),
            Self::Request { source, .. } => source.advice(),
            Self::Serialize(_) => None,
        }
    }
}

impl RequestError {
    /// Classifies the error of a failed request; the chain of its causes is searched, because each layer wraps the one
    /// below.
    pub(super) fn from_hyper(error: &legacy::Error) -> Self {
        if let Some(access) = find::<AccessError>(error) {
            return Self::from_access(access);
        }
        let tls: Option<&rustls::Error> = find(error);
        if let Some(error) = tls {
            return Self::from_tls(error.clone());
        }
        let io: Option<&io::Error> = find(error);
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return Self::ConnectionRefused;
        }
        let parse = find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse);
        if error.is_connect() {
            Self::Connect(cause(error))
        } else if parse {
            Self::NotHttp(cause(error))
        } else {
            Self::Broken(cause(error))
        }
    }

    /// Converts an error of the access through the API server.
    pub(super) fn from_access(error: &AccessError) -> Self {
        Self::Access {
            message: octavo_toolkit::error::chain(error),
            advice: error.advice(),
            is_transient: error.is_transient(),
        }
    }

    fn from_tls(error: rustls::Error) -> Self {
        if let rustls::Error::InvalidCertificate(error) = error {
            Self::Certificate(error)
        } else {
            Self::Tls(error)
        }
    }

    /// Returns whether a later attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Access { is_transient, .. } => *is_transient,
            Self::ConnectionRefused
            | Self::Connect(_)
            | Self::Broken(_)
            | Self::TimedOut(_)
            | Self::StreamEnded
            | Self::StreamSilent(_) => true,
            Self::Status(status) => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Problem(problem) => problem.status >= 500 || problem.status == 429,
            Self::Address
            | Self::Token { .. }
            | Self::TokenInClear
            | Self::Certificate(_)
            | Self::Tls(_)
            | Self::NotHttp(_)
            | Self::Redirected { .. }
            | Self::UnexpectedMediaType { .. }
            | Self::TooLong(_)
            | Self::Unreadable(_) => false,
        }
    }

    /// Returns whether the requester is not authorized.
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.kind == "/problems/forbidden")
    }

    /// Returns whether the requester is not authenticated.
    pub(super) fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.kind == "/problems/unauthenticated")
    }

    /// Returns whether no server was reached at the address.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::ConnectionRefused | Self::Address | Self::Connect(_))
    }

    /// Returns advice about the error.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Access { advice, .. } => Some(advice),
            Self::ConnectionRefused => Some(
                "check --server or OCTAVO_SERVER, and that the aggregator is running; start one \
                 with `octavo-aggregator`, or a simulated fleet with `octavo demo`",
            ),
            Self::Address | Self::Connect(_) => Some("check the URL in --server or OCTAVO_SERVER"),
            Self::Token { .. } => {
                Some("specify the token file with --token-file or OCTAVO_TOKEN_FILE")
            }
            Self::TokenInClear => Some("use an https:// URL, or omit --token-file"),
            Self::Certificate(error) => Some(certificate_advice(error)),
            Self::Tls(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                Some("use the aggregator's HTTP address, not its gRPC address for agents")
            }
            Self::Tls(_) => Some("if the aggregator serves plain HTTP, use an http:// URL"),
            Self::NotHttp(_) => Some("if the aggregator serves TLS, use an https:// URL"),
            Self::Broken(_) | Self::StreamEnded | Self::StreamSilent(_) => {
                Some("try again, and check the aggregator's log")
            }
            Self::TimedOut(_) => Some("try again, or increase --timeout"),
            Self::Redirected { .. } => Some("if that is the aggregator, use this URL in --server"),
            Self::Problem(problem) => match problem.kind.as_str() {
                "/problems/unknown-node" => Some("list the known nodes with `octavo nodes`"),
                "/problems/ambiguous-profile" => Some("specify --namespace, or use NAMESPACE/NAME"),
                "/problems/unauthenticated" => Some(
                    "authenticate with --token-file FILE or OCTAVO_TOKEN_FILE; create a token \
                     with `kubectl create token ACCOUNT`",
                ),
                "/problems/forbidden" => Some(
                    "ask the cluster administrator for a role; docs/operations/aggregator.md \
                     lists the roles",
                ),
                "/problems/untrusted-proxy" => Some(
                    "connect to the aggregator directly with --token-file, or correct its \
                     --trusted-proxy",
                ),
                _ => None,
            },
            Self::Status(_) | Self::UnexpectedMediaType { .. } => {
                Some("check --server, and proxies between this machine and the aggregator")
            }
            Self::TooLong(_) => Some("reduce the result with filters or --limit"),
            Self::Unreadable(_) => {
                Some("use `octavo` in the version of the aggregator (`octavo --version`)")
            }
        }
    }
}

/// Returns a problem document's text, without control characters, which could steer the terminal.
fn problem_text(problem: &Problem) -> String {
    let text = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    printable(text)
}

fn media_type(kind: &str) -> String {
    if kind.is_empty() { "without a content type".to_owned() } else { printable(kind) }
}

/// Returns the cause below hyper-util's error, which is only a generic client error.
fn cause(error: &legacy::Error) -> Box<dyn Error + Send + Sync> {
    let text = error.source().map(octavo_toolkit::error::chain);
    text.unwrap_or_else(|| error.to_string()).into()
}

/// Returns the first cause of type `T`. The error inside an `io::Error` is not its source, so it is inspected
/// separately.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    carried.and_then(|inner| find::<T>(inner)).or_else(|| error.source().and_then(find))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::UnixTime;

    use super::*;

    /// Returns the message and the advice for a self-signed certificate that is trusted as a CA.
    fn message_and_advice(
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, Option<&'static str>) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let name = "localhost".try_into().unwrap();
        let outcome = verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now());
        let error = RequestError::from_tls(outcome.unwrap_err());
        (error.to_string(), error.advice())
    }

    #[test]
    fn untrusted_certificates_are_explained_with_a_remedy() {
        let (text, advice) =
            message_and_advice(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        assert!(text.contains("a CA certificate (CA:TRUE)"), "{text}");
        assert!(advice.unwrap().contains("CA:FALSE"), "{advice:?}");
        let (text, advice) = message_and_advice(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(text.contains("it is not a server certificate"), "{text}");
        assert!(advice.unwrap().contains("serverAuth"), "{advice:?}");
    }
}
