//! Access to the aggregator with a kubeconfig: its Service, its CA, connections to its pod, and tokens for it.
//!
//! ```text
//! discovery.rs  which Service and which pod: decisions without requests
//! pod_stream.rs connection to a port of a pod, forwarded by the API server
//! error.rs      errors, and advice about each
//! ```
//!
//! The API server forwards the encrypted connection unchanged, so TLS and the bearer token are end to end. The API
//! server's service proxy would remove the token and would not verify the certificate.
//!
//! Anyone who can create Services can label one as the aggregator. Therefore the user's token is sent only to an
//! aggregator that requires one, in the default namespace or in a namespace that the user names.

mod discovery;
mod error;
mod pod_stream;

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, Response};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::client::middleware::AuthLayer;
use kube::{Api, Client};
use tower::{BoxError, Layer, ServiceExt, service_fn};

pub use self::discovery::DEFAULT_NAMESPACE;
use self::discovery::{AggregatorService, SERVICE_LABELS, SearchScope};
pub use self::error::AccessError;
pub(crate) use self::error::Step;
pub use self::pod_stream::PodStream;
use crate::client::{ClusterSelection, request, user_client};

/// Lifetime of requested tokens in seconds, the shortest that the API server grants.
const TOKEN_SECONDS: i64 = 600;

/// Key of the CA certificate in the `ConfigMap` and in the Secret.
const CA_KEY: &str = "ca.crt";

/// The aggregator of a cluster, and how to reach it.
pub struct AggregatorAccess {
    client: Client,
    token: Option<AuthLayer>,
    service: AggregatorService,
    is_trusted: bool,
}

impl AggregatorAccess {
    /// Finds the aggregator of a cluster, in this namespace or in any.
    pub async fn discover(
        cluster: &ClusterSelection,
        namespace: Option<&str>,
    ) -> Result<Self, AccessError> {
        let user = user_client(cluster).await?;
        let service = find_service(&user.client, namespace).await?;
        let is_trusted = namespace.is_some() || service.namespace == DEFAULT_NAMESPACE;
        Ok(Self { client: user.client, token: user.token, service, is_trusted })
    }

    /// Returns the name in the certificate and the port of the Service.
    pub fn authority(&self) -> String {
        let AggregatorService { name, namespace, port, .. } = &self.service;
        format!("{name}.{namespace}.svc:{port}")
    }

    /// Returns the CA certificates to verify the aggregator with, in PEM.
    pub async fn ca(&self) -> Result<Vec<u8>, AccessError> {
        let AggregatorService { name, namespace, .. } = &self.service;
        let (config_map, secret) = (format!("{name}-ca"), format!("{name}-tls"));
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = request(maps.get_opt(&config_map)).await;
        let found = found.map_err(AccessError::api(Step::Connect, || {
            format!("read the ConfigMap {namespace}/{config_map}")
        }))?;
        if let Some(pem) = found.and_then(|found| found.data?.remove(CA_KEY)) {
            return Ok(pem.into_bytes());
        }
        // cert-manager publishes its CA only here. The Secret also has the key, so most users cannot read it.
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = request(secrets.get_opt(&secret)).await.ok().flatten();
        let pem = found.and_then(|found| found.data?.remove(CA_KEY)).map(|bytes| bytes.0);
        pem.ok_or_else(|| AccessError::NoCa { namespace: namespace.clone(), config_map, secret })
    }

    /// Connects to the aggregator's ready pod.
    pub async fn dial(&self) -> Result<PodStream, AccessError> {
        let AggregatorService { name, namespace, .. } = &self.service;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let wanted = ListParams::default().labels(&self.service.pod_labels());
        let found = request(pods.list(&wanted)).await;
        let found = found.map_err(AccessError::api(Step::Connect, || {
            format!("list pods in the namespace {namespace}")
        }))?;
        let (pod, port) = self.service.ready_pod(&found.items).ok_or_else(|| {
            let found = found.items.iter().map(discovery::describe_pod);
            let service = format!("{namespace}/{name}");
            AccessError::NoReadyPod { service, found: found.collect() }
        })?;
        let forwarded = request(pods.portforward(&pod, &[port])).await;
        let mut forwarded = forwarded.map_err(AccessError::api(Step::Connect, || {
            format!("forward a connection to the pod {namespace}/{pod}")
        }))?;
        PodStream::new(&mut forwarded, &pod, port)
    }

    /// Returns a bearer token for the aggregator as a header: the user's own, or one of the reader's account.
    pub async fn authorization(&self) -> Result<HeaderValue, AccessError> {
        let Some(layer) = &self.token else {
            return self.reader_token().await;
        };
        if !self.is_trusted {
            return Err(AccessError::TokenWithheld { namespace: self.service.namespace.clone() });
        }
        // The layer adds the token to requests; this service returns it instead of sending them.
        let echo = layer.layer(service_fn(async |request: Request<Body>| {
            let token = request.headers().get(AUTHORIZATION).cloned();
            Ok::<_, BoxError>(Response::new(token))
        }));
        let token = echo.oneshot(Request::new(Body::empty())).await;
        let token = token.map_err(AccessError::Token)?.into_body();
        match token.filter(|value| value.as_bytes().starts_with(b"Bearer ")) {
            Some(token) => Ok(token),
            None => self.reader_token().await,
        }
    }

    /// Requests a token of the account that the chart creates for readers with a client certificate.
    async fn reader_token(&self) -> Result<HeaderValue, AccessError> {
        let namespace = &self.service.namespace;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let wanted = ListParams::default().labels(&self.service.reader_labels());
        let found = request(accounts.list(&wanted)).await;
        let found = found.map_err(AccessError::api(Step::Token, || {
            format!("list service accounts in the namespace {namespace}")
        }))?;
        let account = found.items.into_iter().find_map(|account| account.metadata.name);
        let account =
            account.ok_or_else(|| AccessError::NoReader { namespace: namespace.clone() })?;
        let wanted = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let options = PostParams::default();
        let granted = request(accounts.create_token_request(&account, &options, &wanted)).await;
        let granted = granted.map_err(AccessError::api(Step::Token, || {
            format!("create a token of the service account {namespace}/{account}")
        }))?;
        let token = granted.status.map(|status| status.token).unwrap_or_default();
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|error| AccessError::Token(error.into()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl std::fmt::Debug for AggregatorAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregatorAccess").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Lists Services in the namespace, or in all namespaces, or, if that is forbidden, in the default namespace.
pub(crate) async fn find_service(
    client: &Client,
    namespace: Option<&str>,
) -> Result<AggregatorService, AccessError> {
    let wanted = ListParams::default().labels(SERVICE_LABELS);
    let (services, scope): (Api<Service>, _) = match namespace {
        Some(name) => {
            (Api::namespaced(client.clone(), name), SearchScope::Namespace(name.to_owned()))
        }
        None => (Api::all(client.clone()), SearchScope::Cluster),
    };
    let (found, scope) = match request(services.list(&wanted)).await {
        Err(error) if error.code() == Some(403) && scope == SearchScope::Cluster => {
            let services: Api<Service> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
            let scope = SearchScope::Namespace(DEFAULT_NAMESPACE.to_owned());
            (request(services.list(&wanted)).await, scope)
        }
        found => (found, scope),
    };
    let found = found.map_err(AccessError::api(Step::Discover, || {
        format!("search for the aggregator: list services in {scope}")
    }))?;
    discovery::choose_service(found.items, &scope)
}
