//! One browser per test.
//!
//! chromedriver chooses its port and prints it; its session is closed and the process stopped even if an assertion
//! fails. The browser can only reach the loopback address, so a page with an external file would fail.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::time_limits::{Lines, TIME_LIMIT, within};

/// Longer than any test of a page takes on a loaded machine.
const MAX_TEST_TIME: Duration = Duration::from_mins(10);

const MISSING: &str = "the browser tests need Chromium and its driver: \
    apt-get install --no-install-recommends chromium chromium-driver fonts-dejavu-core (hack/setup.sh does it)";

/// Options of a browser.
#[derive(Default)]
pub(super) struct Start {
    pub(super) without_scripts: bool,
    pub(super) narrow: bool,
    /// Width of a narrow window in pixels; 380 by default.
    pub(super) width: Option<u32>,
}

/// The browser, for one site.
#[derive(Clone)]
pub(super) struct Page {
    client: Client,
    driver: String,
    site: String,
}

/// chromedriver; stopped with the test.
struct Driver {
    child: Child,
    url: String,
    /// Temporary files of both.
    _scratch: tempfile::TempDir,
}

/// Opens a browser at `site`, runs `test`, and always closes the browser.
pub(super) async fn browse(site: &str, start: Start, test: impl AsyncFnOnce(Page)) {
    let driver = Driver::start();
    let mut builder = ClientBuilder::new(HttpConnector::new());
    builder.capabilities(capabilities(&start));
    let connect = async || within("a browser", builder.connect(&driver.url)).await;
    let mut client = connect().await;
    if client.is_err() {
        // chromedriver allows Chromium one minute; the first start on a new machine may take longer.
        client = connect().await;
    }
    let client =
        client.unwrap_or_else(|error| panic!("chromedriver opens no browser: {error}\n{MISSING}"));
    let page = Page { client: client.clone(), driver: driver.url.clone(), site: site.to_owned() };
    // Requests to chromedriver have no timeout.
    let mut doing = Box::pin(async {
        let done = timeout(MAX_TEST_TIME, test(page)).await;
        done.unwrap_or_else(|_late| panic!("the test took longer than {MAX_TEST_TIME:?}"));
    });
    let outcome = poll_fn(|context| {
        let poll = AssertUnwindSafe(|| doing.as_mut().poll(context));
        match catch_unwind(poll) {
            Ok(poll) => poll.map(Ok),
            Err(failed) => Poll::Ready(Err(failed)),
        }
    });
    let outcome = outcome.await;
    let closed = timeout(TIME_LIMIT, client.close()).await;
    drop(driver);
    if let Err(failed) = outcome {
        resume_unwind(failed);
    }
    closed.unwrap().unwrap();
}

fn capabilities(start: &Start) -> serde_json::Map<String, Value> {
    let size = if start.narrow { "--window-size=500,900" } else { "--window-size=1280,900" };
    let mut options = json!({"args": [
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", size,
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*"
    ]});
    if start.without_scripts {
        options["prefs"] = json!({"profile.managed_default_content_settings.javascript": 2});
    }
    if start.narrow {
        // A window is at least 500 pixels wide; a phone is narrower.
        options["mobileEmulation"] = json!({"deviceMetrics": {"width": start.width.unwrap_or(380), "height": 900, "pixelRatio": 1.0, "touch": false}});
    }
    let limit = TIME_LIMIT.as_secs() * 1000;
    let all = json!({
        "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        // On a busy machine axe takes longer than the default script timeout.
        "timeouts": {"script": limit, "pageLoad": limit},
    });
    all.as_object().unwrap().clone()
}

impl Driver {
    fn start() -> Self {
        loop {
            if let Some(driver) = Self::try_start() {
                return driver;
            }
        }
    }

    /// `None` if the chosen port is in use: chromedriver chooses one that is free for IPv6, and ends if it is not free for IPv4.
    fn try_start() -> Option<Self> {
        let scratch = tempfile::tempdir().unwrap();
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver does not start: {error}\n{MISSING}"));
        let listens = "successfully on port ";
        let is_decided = |line: &str| line.contains(listens) || line.contains("port not available");
        let line = Lines::of(child.stdout.take().unwrap()).find("its port", is_decided);
        let Some((_, port)) = line.split_once(listens) else {
            child.wait().unwrap();
            return None;
        };
        let port = port.trim_end_matches('.');
        Some(Self { child, url: format!("http://127.0.0.1:{port}"), _scratch: scratch })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Page {
    /// Opens `path` of the site.
    pub(super) async fn open(&self, path: &str) {
        let url = format!("{}{path}", self.site);
        self.client.goto(&url).await.unwrap();
    }

    /// Waits for the first element that `css` selects.
    pub(super) async fn find(&self, css: &str) -> Element {
        let wait = self.client.wait().at_most(TIME_LIMIT);
        let found = wait.for_element(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("no {css}: {error}"))
    }

    /// Clicks it.
    pub(super) async fn click(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    /// Texts of all elements that `css` selects.
    pub(super) async fn texts(&self, css: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map(e => (e.innerText ?? e.textContent).trim().replace(/\\s+/g, ' '))";
        serde_json::from_value(self.ask(script, json!([css])).await).unwrap()
    }

    /// Text of the first element.
    pub(super) async fn text(&self, css: &str) -> String {
        self.texts(css).await.into_iter().next().unwrap_or_default()
    }

    /// Number of elements that `css` selects.
    pub(super) async fn count(&self, css: &str) -> usize {
        self.texts(css).await.len()
    }

    /// Waits until the selected elements have these texts.
    pub(super) async fn until(&self, css: &str, wanted: &[&str]) {
        let mut last = Vec::new();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < TIME_LIMIT {
            last = self.texts(css).await;
            if last == wanted {
                return;
            }
        }
        panic!("{css} is {last:?}, expected {wanted:?}");
    }

    /// Waits until `script` returns true.
    pub(super) async fn until_true(&self, script: &str) {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < TIME_LIMIT {
            if self.ask(script, json!([])).await == json!(true) {
                return;
            }
        }
        panic!("never true: {script}");
    }

    /// Waits until the text of the first selected element satisfies `wanted`.
    pub(super) async fn until_text(&self, css: &str, wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < TIME_LIMIT {
            last = self.text(css).await;
            if wanted(&last) {
                return;
            }
        }
        panic!("{css} is {last:?}");
    }

    /// Waits until path and query satisfy `wanted`: scripts change them after the page.
    pub(super) async fn until_address(&self, wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < TIME_LIMIT {
            last = self.address().await;
            if wanted(&last) {
                return;
            }
        }
        panic!("the address is {last}");
    }

    /// Runs `script` and returns its result.
    pub(super) async fn ask(&self, script: &str, arguments: Value) -> Value {
        let arguments = arguments.as_array().unwrap().clone();
        self.client.execute(script, arguments).await.unwrap()
    }

    /// Presses keys at the current focus.
    pub(super) async fn press(&self, keys: &str) {
        let active = self.client.active_element().await.unwrap();
        active.send_keys(keys).await.unwrap();
    }

    /// Path and query of the address.
    pub(super) async fn address(&self) -> String {
        let url = self.client.current_url().await.unwrap();
        url.as_str().strip_prefix(&self.site).unwrap().to_owned()
    }

    /// Sets the height of the window.
    pub(super) async fn resize(&self, height: u32) {
        self.client.set_window_size(1280, height).await.unwrap();
    }

    pub(super) async fn back(&self) {
        self.client.back().await.unwrap();
    }

    pub(super) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// Issues that axe reports for the page: rule, impact, and first element.
    pub(super) async fn violations(&self) -> Vec<String> {
        let axe = include_str!("../../assets/axe.min.js");
        self.ask(axe, json!([])).await;
        let run = "const done = arguments[arguments.length - 1];
            axe.run(document).then(r => done(r.violations.map(v => `${v.id} (${v.impact}): ${v.nodes.map(n => n.target + ' ' + n.failureSummary).join('; ')}`)),
                e => done([String(e)]))";
        let found = self.client.execute_async(run, vec![]).await.unwrap();
        serde_json::from_value(found).unwrap()
    }

    /// Browser messages since the last call: script errors, failed loads, policy violations.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let session = self.client.session_id().await.unwrap().unwrap();
        let request =
            axum::http::Request::post(format!("{}/session/{session}/se/log", self.driver))
                .header("content-type", "application/json")
                .body(Full::new(bytes::Bytes::from_static(br#"{"type":"browser"}"#)))
                .unwrap();
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        let answer = client.build_http().request(request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let entries = answer["value"].as_array().unwrap();
        // Other tests run pods, whose network interfaces make Chromium repeat requests.
        let is_ours = |text: &String| !text.contains("net::ERR_NETWORK_CHANGED");
        entries.iter().map(ToString::to_string).filter(is_ours).collect()
    }

    /// Asserts that nothing external was loaded and the browser reported nothing.
    pub(super) async fn assert_clean(&self) {
        let script = "return performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin))";
        assert_eq!(self.ask(script, json!([])).await, json!([]));
        assert_eq!(self.complaints().await, Vec::<String>::new());
    }
}
