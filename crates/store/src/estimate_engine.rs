//! Client of an external estimate engine.
//!
//! The engine is a remote third-party service, so every resource is bounded: the duration of a request, the length of
//! the answer, the number of concurrent requests, and the request rate after failures ([`CircuitBreaker`]). Answers are
//! validated before they are used.

mod messages;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use octavo_fleet::estimate::circuit_breaker::{CircuitBreaker, Decision, Event};
use octavo_fleet::estimate::{DeviceGroup, Workload};
use octavo_toolkit::error::chain;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

pub use self::messages::{EngineEstimates, InvalidResponse};
use self::messages::{EngineRequest, validate};
use super::clock::Clock;

/// Maximum length of an answer in bytes. A page of figures needs a hundredth of it.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Maximum number of concurrent requests; further estimates are returned without times.
const MAX_CONCURRENT: usize = 16;
/// Time to live of a cached answer. An open page repeats the same request on every change of the fleet.
const CACHE_TTL: Duration = Duration::from_mins(1);
/// Capacity of the cache.
const CACHE_CAPACITY: usize = 64;

/// Client of an estimate engine.
#[derive(Debug)]
pub struct EstimateEngine {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    timeout: Duration,
    breaker: Mutex<CircuitBreaker>,
    slots: Semaphore,
    cache: Mutex<AnswerCache>,
}

/// Valid answers by request, with their arrival time.
type AnswerCache = BTreeMap<Bytes, (Duration, EngineEstimates)>;

/// Reason for an unusable answer.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Too many recent failures; requests are suspended for some seconds.
    #[error(
        "the estimate engine failed several times in a row; requests to it are suspended for a few seconds"
    )]
    Suspended,
    /// Too many concurrent requests.
    #[error("too many open requests to the estimate engine")]
    Busy,
    /// Timeout.
    #[error("the estimate engine did not respond within {0:?}")]
    Timeout(Duration),
    /// Connection failure.
    #[error("cannot reach the estimate engine")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Status other than 200.
    #[error("the estimate engine returned status {0}")]
    Status(StatusCode),
    /// Answer longer than the limit.
    #[error("the estimate engine returned more than {} KiB", .0 >> 10)]
    AnswerTooLong(usize),
    /// Invalid answer.
    #[error("the estimate engine returned an invalid response")]
    InvalidResponse(#[source] InvalidResponse),
}

/// Failure to set up TLS.
#[derive(Debug, Error)]
#[error("cannot initialize TLS for the estimate engine")]
pub struct EngineSetupError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl EngineError {
    /// Returns whether the engine is healthy and rejected only this request.
    fn is_request_specific(&self) -> bool {
        let Self::Status(status) = self else {
            return false;
        };
        let is_about_time =
            *status == StatusCode::REQUEST_TIMEOUT || *status == StatusCode::TOO_MANY_REQUESTS;
        status.is_client_error() && !is_about_time
    }
}

impl EstimateEngine {
    /// Creates a client of the engine at `url` without connecting; `timeout` is the time limit of an answer.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, EngineSetupError> {
        let tls = tls(url).map_err(EngineSetupError)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            url: url.to_owned(),
            timeout,
            breaker: Mutex::default(),
            slots: Semaphore::new(MAX_CONCURRENT),
            cache: Mutex::default(),
        })
    }

    /// URL of the engine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the engine's estimates of `workload` on `devices`, from the cache if possible.
    pub async fn ask(
        &self,
        workload: &Workload,
        devices: &[DeviceGroup],
        clock: &Clock,
    ) -> Result<EngineEstimates, EngineError> {
        let question = serde_json::to_vec(&EngineRequest::new(workload, devices));
        let question = question.map_err(|error| EngineError::Unreachable(error.into()))?;
        let question = Bytes::from(question);
        if let Some(estimates) = self.lock_cache(clock).get(&question) {
            return Ok(estimates.1.clone());
        }
        let _place = self.slots.try_acquire().map_err(|_| EngineError::Busy)?;
        if self.record(Event::Requested, clock) == Decision::Skip {
            return Err(EngineError::Suspended);
        }
        let body = timeout(self.timeout, self.exchange(question.clone())).await;
        let body = body.unwrap_or(Err(EngineError::Timeout(self.timeout)));
        let estimates = body.and_then(|body| {
            validate(&body, workload, devices).map_err(EngineError::InvalidResponse)
        });
        match &estimates {
            Ok(estimates) => {
                let mut cache = self.lock_cache(clock);
                if cache.len() < CACHE_CAPACITY {
                    cache.insert(question, (now(clock), estimates.clone()));
                }
                drop(cache);
                self.record(Event::Succeeded, clock)
            }
            Err(error) => {
                warn!(url = %self.url, error = chain(error), "request to the estimate engine failed");
                let event =
                    if error.is_request_specific() { Event::Declined } else { Event::Failed };
                self.record(event, clock)
            }
        };
        estimates
    }

    /// Locks the cache and removes expired answers.
    fn lock_cache(&self, clock: &Clock) -> MutexGuard<'_, AnswerCache> {
        let now = now(clock);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, (came, _)| now.saturating_sub(*came) < CACHE_TTL);
        cache
    }

    fn record(&self, event: Event, clock: &Clock) -> Decision {
        let now = now(clock);
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, decision) = breaker.step(event, now);
        if let (CircuitBreaker::Closed { .. }, CircuitBreaker::Open { .. }) = (*breaker, next) {
            warn!(url = %self.url, "requests to the estimate engine are suspended for a few seconds");
        }
        if let (CircuitBreaker::Probing { .. }, CircuitBreaker::Closed { .. }) = (*breaker, next) {
            info!(url = %self.url, "the estimate engine responds again");
        }
        *breaker = next;
        decision
    }

    async fn exchange(&self, question: Bytes) -> Result<Bytes, EngineError> {
        let away =
            |error: Box<dyn std::error::Error + Send + Sync>| EngineError::Unreachable(error);
        let request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("octavo/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(question))
            .map_err(|error| away(error.into()))?;
        let response = self.http.request(request).await;
        let response = response.map_err(|error| away(error.into()))?;
        // A redirect counts as a refusal: requests must not be sent to any other address than the configured one.
        if response.status() != StatusCode::OK {
            return Err(EngineError::Status(response.status()));
        }
        let whole = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        whole.map(http_body_util::Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                EngineError::AnswerTooLong(MAX_ANSWER_BYTES)
            } else {
                EngineError::Unreachable(error)
            }
        })
    }
}

fn now(clock: &Clock) -> Duration {
    Duration::from_millis(clock.now().as_millis())
}

/// TLS configuration with the system's root certificates, which are loaded for `https` URLs only.
fn tls(url: &str) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = if url.starts_with("https://") {
        builder.with_native_roots()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}
