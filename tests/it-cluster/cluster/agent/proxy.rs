//! A proxy between an agent and its API server that injects failures.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::cluster::Api;
use crate::time_limits::TIME_LIMIT;

/// The requests that a fault applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestFilter {
    Patches,
    Watches,
    Events,
    All,
}

/// A failure response, and the number of requests that get it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) to: RequestFilter,
    pub(crate) code: u16,
    /// Seconds of the `Retry-After` header, if any.
    pub(crate) retry_after: Option<u32>,
    pub(crate) times: u32,
}

/// The proxy; stopped when dropped.
pub(crate) struct Proxy {
    directory: TempDir,
    shared: Arc<ProxyState>,
    _stop: oneshot::Sender<()>,
}

#[derive(Default)]
struct ProxyState {
    fault: Mutex<Option<Fault>>,
    /// Number of writes that are still forwarded; `None` for any number. Leases do not count.
    writes: Mutex<Option<u32>>,
    /// Set when a write was not forwarded.
    is_out_of_writes: AtomicBool,
    requests: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct ProxyContext {
    client: kube::Client,
    shared: Arc<ProxyState>,
}

impl Proxy {
    /// Starts a proxy for `api` with administrator credentials.
    pub(crate) fn start(api: &Api) -> Self {
        let shared = Arc::new(ProxyState::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let (port_sender, port) = std::sync::mpsc::channel();
        let kubeconfig = api.kubeconfig().to_owned();
        let known = Arc::clone(&shared);
        thread::spawn(move || serve(&kubeconfig, known, &port_sender, stopped));
        let proxy = Self { directory: tempfile::tempdir().unwrap(), shared, _stop: stop };
        let port: u16 = port.recv_timeout(TIME_LIMIT).unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "nobody"}}],
        });
        std::fs::write(proxy.kubeconfig(), config.to_string()).unwrap();
        proxy
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Activates a fault; `None` clears it.
    pub(crate) fn fault(&self, fault: impl Into<Option<Fault>>) {
        *self.shared.fault.lock().unwrap() = fault.into();
    }

    /// Forwards this many writes. Later ones get no response, so the program can be killed exactly there.
    pub(crate) fn allow_writes(&self, count: u32) {
        *self.shared.writes.lock().unwrap() = Some(count);
        self.shared.is_out_of_writes.store(false, Ordering::Relaxed);
    }

    /// Returns whether a write was not forwarded.
    pub(crate) fn is_out_of_writes(&self) -> bool {
        self.shared.is_out_of_writes.load(Ordering::Relaxed)
    }

    /// Number of requests so far with this prefix, such as `PATCH`.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|request| request.starts_with(beginning)).count()
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

fn serve(
    kubeconfig: &Path,
    shared: Arc<ProxyState>,
    port_sender: &std::sync::mpsc::Sender<u16>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let client =
            octavo_kube::client::connect(Some(kubeconfig), octavo_kube::client::Program::Agent)
                .await
                .unwrap();
        let router = Router::new().fallback(forward).with_state(ProxyContext { client, shared });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        port_sender.send(listener.local_addr().unwrap().port()).unwrap();
        tokio::select! {
            served = axum::serve(listener, router) => served.unwrap(),
            _gone = stopped => {}
        }
    });
}

async fn forward(State(context): State<ProxyContext>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    context.shared.requests.lock().unwrap().push(line.clone());
    if let Some(fault) = take_fault(&context.shared, &line) {
        return answer(fault);
    }
    if !take_write(&context.shared, &line) {
        context.shared.is_out_of_writes.store(true, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }
    let body = to_bytes(body, 1 << 20).await.unwrap().to_vec();
    let mut request = axum::http::Request::from_parts(head, kube::client::Body::from(body));
    // Requests are anonymous; the proxy's client adds its identity and the address.
    request.headers_mut().remove("host");
    match context.client.send(request).await {
        Ok(response) => response.map(Body::new),
        Err(_away) => {
            answer(Fault { to: RequestFilter::All, code: 502, retry_after: None, times: 0 })
        }
    }
}

/// True if the request is forwarded: it is not a write, or one of those that are allowed.
fn take_write(shared: &ProxyState, line: &str) -> bool {
    let is_write = ["PATCH", "POST", "PUT"].iter().any(|method| line.starts_with(method));
    if !is_write || line.contains("/leases") {
        return true;
    }
    let mut allowed = shared.writes.lock().unwrap();
    let Some(left) = allowed.as_mut() else { return true };
    let is_allowed = *left > 0;
    *left = left.saturating_sub(1);
    is_allowed
}

/// The fault for this request, counted down.
fn take_fault(shared: &ProxyState, line: &str) -> Option<Fault> {
    let mut held = shared.fault.lock().unwrap();
    let fault = held.as_mut()?;
    let met = match fault.to {
        RequestFilter::Patches => line.starts_with("PATCH"),
        RequestFilter::Watches => line.contains("watch=true"),
        RequestFilter::Events => line.starts_with("POST") && line.contains("/events"),
        RequestFilter::All => true,
    };
    if !met || fault.times == 0 {
        return None;
    }
    fault.times -= 1;
    Some(*fault)
}

fn answer(fault: Fault) -> Response {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "in trouble", "reason": "Trouble", "code": fault.code,
    });
    if let Some(seconds) = fault.retry_after {
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    // An expired watch is reported in a successful response. Source: Kubernetes, "Efficient detection of changes".
    let (code, body): (u16, Value) = if fault.code == 410 {
        (200, json!({"type": "ERROR", "object": status}))
    } else {
        (fault.code, status)
    };
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Body::from(format!("{body}\n")))
        .unwrap()
}
