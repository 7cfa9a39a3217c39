//! Asks an engine of somebody else's for estimates.
//!
//! It is on the other side of a network and belongs to others, so all of it is bounded: the time from the first byte to the last, the
//! length of the answer, the questions at once, and how often one that fails is asked ([`Breaker`]). What it says is held against
//! what can be before anybody sees it.

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

/// The longest answer that is read: a page of figures is a hundredth of it.
const LONGEST_ANSWER: usize = 256 << 10;
/// Questions at once; more are answered without times.
const AT_ONCE: usize = 16;
/// How long a good answer is given again: a page that somebody looks at asks the same with every change of the fleet.
const KEPT_FOR: Duration = Duration::from_mins(1);
/// Most answers that are kept.
const MOST_KEPT: usize = 64;

/// A way to an engine.
#[derive(Debug)]
pub struct Engine {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    patience: Duration,
    breaker: Mutex<Breaker>,
    places: Semaphore,
    kept: Mutex<Kept>,
}

/// Good answers by their question, and when they came.
type Kept = BTreeMap<Bytes, (Duration, Said)>;

/// Why an engine said nothing that can be used.
#[derive(Debug, Error)]
pub enum EngineError {
    /// It failed too often, and is left alone for some seconds.
    #[error("the estimate engine failed several times in a row and is left alone for some seconds")]
    LeftAlone,
    /// Too many ask.
    #[error("too many questions to the estimate engine are open")]
    Busy,
    /// It took too long.
    #[error("the estimate engine did not answer within {0:?}")]
    TooSlow(Duration),
    /// It cannot be reached, or broke off.
    #[error("the estimate engine cannot be asked")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answers with a failure.
    #[error("the estimate engine answers {0}")]
    Refused(StatusCode),
    /// It says more than any honest one would.
    #[error("the estimate engine answers more than {} KiB", .0 >> 10)]
    TooLong(usize),
    /// It says what cannot be.
    #[error("the estimate engine is not believed")]
    Lies(#[source] Lie),
}

/// Why no engine can be asked at all.
#[derive(Debug, Error)]
#[error("cannot prepare TLS for the estimate engine")]
pub struct EngineSetupError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl EngineError {
    /// Whether the engine is well, and only this question was none that it answers.
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
    /// Asks nothing yet.
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

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it says of `workload` on `devices`, within its time, or said less than a minute ago.
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

    /// Answers that are not too old.
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
        // A redirect is a refusal too: nobody said that questions may go elsewhere.
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

/// The system's authorities vouch for the engine; where no TLS is spoken they are not looked for.
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
