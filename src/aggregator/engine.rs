//! Client of an external estimate engine.
//!
//! The engine is a remote third-party service, so every resource is bounded: the duration of a request, the length of
//! the answer, the number of concurrent requests, and the request rate after failures ([`Breaker`]). Answers are
//! validated before they are used.

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
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

use super::clock::Clock;
use crate::config::aggregator::EngineSettings;
use crate::domain::error::chain;
use crate::domain::estimate::breaker::{Breaker, Decision, Event};
use crate::domain::estimate::{Devices, Workload};
use crate::wire::estimates::{EngineQuestion, Lie, Said, WorkloadJson, believed};

/// Maximum length of an answer in bytes. A page of figures needs a hundredth of it.
const LONGEST_ANSWER: usize = 256 << 10;
/// Maximum number of concurrent requests; further estimates are returned without times.
const AT_ONCE: usize = 16;
/// Time to live of a cached answer. An open page repeats the same request on every change of the fleet.
const KEPT_FOR: Duration = Duration::from_mins(1);
/// Capacity of the cache.
const MOST_KEPT: usize = 64;

/// Client of an estimate engine.
#[derive(Debug)]
pub struct Engine {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    patience: Duration,
    breaker: Mutex<Breaker>,
    places: Semaphore,
    kept: Mutex<Kept>,
}

/// Valid answers by request, with their arrival time.
type Kept = BTreeMap<Bytes, (Duration, Said)>;

/// Reason for an unusable answer.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Too many recent failures; requests are suspended for some seconds.
    #[error("the estimate engine failed several times in a row and is left alone for some seconds")]
    LeftAlone,
    /// Too many concurrent requests.
    #[error("too many questions to the estimate engine are open")]
    Busy,
    /// Timeout.
    #[error("the estimate engine did not answer within {0:?}")]
    TooSlow(Duration),
    /// Connection failure.
    #[error("the estimate engine cannot be asked")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Status other than 200.
    #[error("the estimate engine answers {0}")]
    Refused(StatusCode),
    /// Answer longer than the limit.
    #[error("the estimate engine answers more than {} KiB", .0 >> 10)]
    TooLong(usize),
    /// Invalid answer.
    #[error("the estimate engine is not believed")]
    Lies(#[source] Lie),
}

/// Failure to set up TLS.
#[derive(Debug, Error)]
#[error("cannot prepare TLS for the estimate engine")]
pub struct EngineSetupError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl EngineError {
    /// Returns whether the engine is healthy and rejected only this request.
    fn is_about_the_question(&self) -> bool {
        let Self::Refused(status) = self else {
            return false;
        };
        let is_about_time =
            *status == StatusCode::REQUEST_TIMEOUT || *status == StatusCode::TOO_MANY_REQUESTS;
        status.is_client_error() && !is_about_time
    }
}

impl Engine {
    /// Creates a client without connecting.
    pub fn new(settings: &EngineSettings) -> Result<Self, EngineSetupError> {
        let tls = tls(settings).map_err(EngineSetupError)?;
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
            url: settings.url.to_string(),
            patience: settings.timeout,
            breaker: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            kept: Mutex::default(),
        })
    }

    /// URL of the engine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the engine's estimates of `workload` on `devices`, from the cache if possible.
    pub async fn ask(
        &self,
        (workload, told): (&Workload, WorkloadJson),
        devices: &[Devices],
        clock: &Clock,
    ) -> Result<Said, EngineError> {
        let question = serde_json::to_vec(&EngineQuestion::new(told, devices));
        let question = question.map_err(|error| EngineError::Away(error.into()))?;
        let question = Bytes::from(question);
        if let Some(said) = self.kept(clock).get(&question) {
            return Ok(said.1.clone());
        }
        let _place = self.places.try_acquire().map_err(|_| EngineError::Busy)?;
        if self.note(Event::Wanted, clock) == Decision::Leave {
            return Err(EngineError::LeftAlone);
        }
        let body = timeout(self.patience, self.exchange(question.clone())).await;
        let body = body.unwrap_or(Err(EngineError::TooSlow(self.patience)));
        let said =
            body.and_then(|body| believed(&body, workload, devices).map_err(EngineError::Lies));
        match &said {
            Ok(said) => {
                let mut kept = self.kept(clock);
                if kept.len() < MOST_KEPT {
                    kept.insert(question, (now(clock), said.clone()));
                }
                drop(kept);
                self.note(Event::Answered, clock)
            }
            Err(error) => {
                warn!("no estimates from {}: {}", self.url, chain(error));
                let event = if error.is_about_the_question() {
                    Event::Declined
                } else {
                    Event::Failed
                };
                self.note(event, clock)
            }
        };
        said
    }

    /// Locks the cache and removes expired answers.
    fn kept(&self, clock: &Clock) -> MutexGuard<'_, Kept> {
        let now = now(clock);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (came, _)| now.saturating_sub(*came) < KEPT_FOR);
        kept
    }

    fn note(&self, event: Event, clock: &Clock) -> Decision {
        let now = now(clock);
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, decision) = breaker.step(event, now);
        if let (Breaker::Closed { .. }, Breaker::Open { .. }) = (*breaker, next) {
            warn!(
                "the estimate engine at {} is left alone for some seconds",
                self.url
            );
        }
        if let (Breaker::Probing { .. }, Breaker::Closed { .. }) = (*breaker, next) {
            info!("the estimate engine at {} answers again", self.url);
        }
        *breaker = next;
        decision
    }

    async fn exchange(&self, question: Bytes) -> Result<Bytes, EngineError> {
        let away = |error: Box<dyn std::error::Error + Send + Sync>| EngineError::Away(error);
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
            return Err(EngineError::Refused(response.status()));
        }
        let whole = Limited::new(response.into_body(), LONGEST_ANSWER)
            .collect()
            .await;
        whole
            .map(http_body_util::Collected::to_bytes)
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    EngineError::TooLong(LONGEST_ANSWER)
                } else {
                    EngineError::Away(error)
                }
            })
    }
}

fn now(clock: &Clock) -> Duration {
    Duration::from_millis(clock.now().as_millis())
}

/// TLS configuration with the system's root certificates, which are loaded for `https` URLs only.
fn tls(
    settings: &EngineSettings,
) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = if settings.url.is_secure() {
        builder.with_native_roots()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}
