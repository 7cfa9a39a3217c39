//! Something between an agent and its API server that answers in its place now and then, as an API server in trouble does.

use std::path::{Path, PathBuf};
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

/// Which requests something is answered to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Patches,
    Watches,
    Events,
    All,
}

/// What is answered, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) to: To,
    pub(crate) code: u16,
    /// Seconds, where the server asks for patience.
    pub(crate) retry_after: Option<u32>,
    pub(crate) times: u32,
}

/// The proxy; it ends when dropped.
pub(crate) struct Proxy {
    directory: TempDir,
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

struct Shared {
    fault: Mutex<Option<Fault>>,
    requests: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct Behind {
    client: kube::Client,
    shared: Arc<Shared>,
}

impl Proxy {
    /// In front of `api`, as an administrator of it.
    pub(crate) fn start(api: &Api) -> Self {
        let shared = Arc::new(Shared { fault: Mutex::default(), requests: Mutex::default() });
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, port) = std::sync::mpsc::channel();
        let kubeconfig = api.kubeconfig().to_owned();
        let known = Arc::clone(&shared);
        thread::spawn(move || serve(&kubeconfig, known, &tell, stopped));
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

    /// Answers so from now on; `None` ends it.
    pub(crate) fn fault(&self, fault: impl Into<Option<Fault>>) {
        *self.shared.fault.lock().unwrap() = fault.into();
    }

    /// Requests so far that begin so, such as `PATCH`.
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
    shared: Arc<Shared>,
    tell: &std::sync::mpsc::Sender<u16>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let client =
            octavo_kube::client::connect(Some(kubeconfig), octavo_kube::client::Program::Agent)
                .await
                .unwrap();
        let router = Router::new().fallback(pass).with_state(Behind { client, shared });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        tell.send(listener.local_addr().unwrap().port()).unwrap();
        tokio::select! {
            served = axum::serve(listener, router) => served.unwrap(),
            _gone = stopped => {}
        }
    });
}

async fn pass(State(behind): State<Behind>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    behind.shared.requests.lock().unwrap().push(line.clone());
    if let Some(fault) = take(&behind.shared, &line) {
        return answer(fault);
    }
    let body = to_bytes(body, 1 << 20).await.unwrap().to_vec();
    let mut request = axum::http::Request::from_parts(head, kube::client::Body::from(body));
    // Requests are anonymous; the client behind adds its identity and the address.
    request.headers_mut().remove("host");
    match behind.client.send(request).await {
        Ok(response) => response.map(Body::new),
        Err(_away) => answer(Fault { to: To::All, code: 502, retry_after: None, times: 0 }),
    }
}

/// The fault that this request meets, counted down.
fn take(shared: &Shared, line: &str) -> Option<Fault> {
    let mut held = shared.fault.lock().unwrap();
    let fault = held.as_mut()?;
    let met = match fault.to {
        To::Patches => line.starts_with("PATCH"),
        To::Watches => line.contains("watch=true"),
        To::Events => line.starts_with("POST") && line.contains("/events"),
        To::All => true,
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
    // A watch that expires says so within a good answer. Source: Kubernetes, "Efficient detection of changes".
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
