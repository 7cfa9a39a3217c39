//! Errors of requests to an aggregator, with advice.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use hyper_util::client::legacy;
use octavo_documents::api::Problem;
use octavo_documents::inventory::FieldError;
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

use crate::text::printable;

/// Failure of the client. The message names the action and its object; the cause follows in the chain.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The CA certificates cannot be read.
    #[error("cannot read certificates of authorities from {place}")]
    Certificates {
        /// The file, or this system.
        place: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A document to post cannot be serialized.
    #[error("cannot write the result in this form")]
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
    #[error("this is no address that can be asked")]
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
        "the address begins with http://, and a token is not sent unencrypted to another machine"
    )]
    TokenInClear,
    /// The connection was refused.
    #[error("nobody listens there: the connection was refused")]
    ConnectionRefused,
    /// The connection failed.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The aggregator's certificate cannot be trusted.
    #[error("its certificate cannot be trusted: {}", certificate_message(.0))]
    Certificate(CertificateError),
    /// TLS failed otherwise.
    #[error("cannot speak TLS with it")]
    Tls(#[source] rustls::Error),
    /// The response is not HTTP.
    #[error("what answers does not speak HTTP")]
    NotHttp(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke.
    #[error("the connection broke before the answer was whole")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// The timeout has passed.
    #[error("there was no answer within {0:?}")]
    TimedOut(Duration),
    /// The server redirects the request.
    #[error("it sends us to {}, and redirects are not followed", printable(.to))]
    Redirected {
        /// The target.
        to: String,
    },
    /// The server returned a problem document.
    #[error("{}", problem_text(.0))]
    Problem(Box<Problem>),
    /// The server returned an error without a readable explanation.
    #[error("it answers {0} without an explanation")]
    Status(StatusCode),
    /// Another program responded.
    #[error("the answer is {}, not what an aggregator gives", media_type(.kind))]
    UnexpectedMediaType {
        /// Its media type.
        kind: String,
    },
    /// The answer exceeds the size limit.
    #[error("the answer is longer than {} MiB", .0 >> 20)]
    TooLong(usize),
    /// The answer is not what this version expects.
    #[error("cannot understand the answer")]
    Unreadable(#[source] serde_json::Error),
    /// The node's inventory contains an invalid value.
    #[error("cannot understand the inventory of the node")]
    Inventory(#[source] FieldError),
    /// The stream ended.
    #[error("the aggregator ended the stream")]
    StreamEnded,
    /// The stream was silent for longer than its heartbeat interval.
    #[error("nothing was heard for {0:?}, not even that it lives")]
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
                "it is the certificate of an authority (CA:TRUE), which cannot be a server's too"
            }
            Self::IssuerIsNotCa => {
                "the certificate that signed it is not one of an authority (CA:FALSE)"
            }
            Self::Version => "it is an X.509 certificate of version 1, which cannot name a server",
            Self::Purpose => "it is not for servers: its extended key usage lacks serverAuth",
        }
    }
}

/// Describes the error of a certificate.
fn certificate_message(error: &CertificateError) -> String {
    match (CertificateFlaw::from_error(error), error) {
        (Some(flaw), _) => flaw.words().to_owned(),
        (None, CertificateError::UnknownIssuer) => {
            "the authority that signed it is not known here".to_owned()
        }
        (None, error) => error.to_string(),
    }
}

/// Returns advice about a certificate.
fn certificate_advice(error: &CertificateError) -> &'static str {
    if matches!(error, CertificateError::UnknownIssuer) {
        return "give the certificate of the authority that signed it with --ca FILE or OCTAVO_CA";
    }
    if matches!(
        error,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    ) {
        return "ask by a name that the certificate has, with --server";
    }
    if matches!(
        error,
        CertificateError::Expired | CertificateError::ExpiredContext { .. }
    ) {
        return "renew the aggregator's certificate; is the clock of this machine right?";
    }
    if matches!(
        error,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
    ) {
        return "is the clock of this machine right?";
    }
    match CertificateFlaw::from_error(error) {
        Some(CertificateFlaw::ServerIsCa) => {
            "make a server certificate for the aggregator: with openssl req -x509, add -addext basicConstraints=critical,CA:FALSE"
        }
        Some(CertificateFlaw::IssuerIsNotCa) => {
            "give the certificate of an authority with --ca, or the server's own where it signs itself"
        }
        Some(CertificateFlaw::Version) => {
            "make one of version 3: with openssl x509 -req, add an -extfile that has subjectAltName"
        }
        Some(CertificateFlaw::Purpose) => {
            "make one for servers: its extendedKeyUsage must have serverAuth, or be absent"
        }
        None => "replace the certificate the aggregator was started with",
    }
}

impl ClientError {
    /// Returns whether a later attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_transient())
    }

    /// Returns whether the requester is not authorized.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_forbidden())
    }

    /// Returns advice about the error.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Certificates { .. } => Some("give a file of certificates in PEM form with --ca"),
            Self::Request { source, .. } => source.advice(),
            Self::Serialize(_) => None,
        }
    }
}

impl RequestError {
    /// Classifies the error of a failed request; the chain of its causes is searched, because each layer wraps the one
    /// below.
    pub(super) fn from_hyper(error: &legacy::Error) -> Self {
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
            | Self::Unreadable(_)
            | Self::Inventory(_) => false,
        }
    }

    /// Returns whether the requester is not authorized.
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.kind == "/problems/forbidden")
    }

    /// Returns whether no server was reached at the address.
    pub(crate) const fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::ConnectionRefused | Self::Address | Self::Connect(_)
        )
    }

    /// Returns advice about the error.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::ConnectionRefused => Some(
                "is an aggregator running there? start one with `octavo-aggregator`, or a whole fleet with `octavo demo`; \
                 --server or OCTAVO_SERVER says where it is",
            ),
            Self::Address | Self::Connect(_) => {
                Some("check the address in --server or OCTAVO_SERVER")
            }
            Self::Token { .. } => {
                Some("give the file that has it with --token-file or OCTAVO_TOKEN_FILE")
            }
            Self::TokenInClear => {
                Some("ask by an address that begins with https://, or without --token-file")
            }
            Self::Certificate(error) => Some(certificate_advice(error)),
            Self::Tls(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                Some("ask at the address for people and programs, not at that for agents")
            }
            Self::Tls(_) => Some("does it speak plain HTTP? then its address begins with http://"),
            Self::NotHttp(_) => Some("does it speak TLS? then its address begins with https://"),
            Self::Broken(_) | Self::StreamEnded | Self::StreamSilent(_) => {
                Some("try again; the aggregator's log may say why")
            }
            Self::TimedOut(_) => Some("try again, or give it more time with --timeout"),
            Self::Redirected { .. } => Some("if that is the aggregator, say so with --server"),
            Self::Problem(problem) => match problem.kind.as_str() {
                "/problems/unknown-node" => {
                    Some("`octavo nodes` lists the nodes that an agent has spoken for")
                }
                "/problems/ambiguous-profile" => {
                    Some("give its namespace with --namespace, or name it as NAMESPACE/NAME")
                }
                "/problems/unauthenticated" => Some(
                    "show who you are with --token-file FILE or OCTAVO_TOKEN_FILE; `kubectl create token ACCOUNT` makes a token",
                ),
                "/problems/forbidden" => Some(
                    "ask who runs the cluster for a role; docs/aggregator.md, \"Who may see what\", has them",
                ),
                "/problems/untrusted-proxy" => Some(
                    "ask the aggregator itself, with --token-file, or have its --trusted-proxy set right",
                ),
                _ => None,
            },
            Self::Status(_) | Self::UnexpectedMediaType { .. } => Some(
                "is it an aggregator that answers there? check --server, and what stands between",
            ),
            Self::TooLong(_) => Some("ask for less, with filters or --limit"),
            Self::Unreadable(_) | Self::Inventory(_) => {
                Some("use the `octavo` of the aggregator's version (`octavo --version`)")
            }
        }
    }
}

/// Returns a problem document's text, without control characters, which could steer the terminal.
fn problem_text(problem: &Problem) -> String {
    let text = if problem.detail.is_empty() {
        &problem.title
    } else {
        &problem.detail
    };
    printable(text)
}

fn media_type(kind: &str) -> String {
    if kind.is_empty() {
        "of no stated kind".to_owned()
    } else {
        printable(kind)
    }
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
    let carried = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    carried
        .and_then(|inner| find::<T>(inner))
        .or_else(|| error.source().and_then(find))
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
    fn said(change: impl FnOnce(&mut CertificateParams)) -> (String, Option<&'static str>) {
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
    fn certificates_that_cannot_be_trusted_are_explained_with_what_to_do() {
        let (text, advice) =
            said(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        assert!(
            text.contains("the certificate of an authority (CA:TRUE)"),
            "{text}"
        );
        assert!(advice.unwrap().contains("CA:FALSE"), "{advice:?}");
        let (text, advice) = said(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(text.contains("it is not for servers"), "{text}");
        assert!(advice.unwrap().contains("serverAuth"), "{advice:?}");
    }
}
