//! Tests of the client against faulty servers. Each is a socket that sends one answer.

use std::time::Duration;

use octavo_settings::server_url::ServerUrl;
use octavo_toolkit::error::explain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

async fn error(server: &str, limit: Duration) -> String {
    let url: ServerUrl = server.parse().unwrap();
    let client = Client::connect(&ServerSettings::plaintext(url, limit)).await.unwrap();
    let result = client.get::<serde_json::Value>(&RequestPath::new("/x")).await;
    let error = result.unwrap_err();
    explain(&error, error.advice()).replace(server, "SERVER")
}

/// Returns the error for a server that sends `answer` and then closes the connection.
async fn failure(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = socket.read(&mut request).await.unwrap();
        // The reader may have closed the connection.
        let _ = socket.write_all(&answer).await;
    };
    let server = format!("http://{address}");
    let limit = Duration::from_mins(1);
    let (text, ()) = tokio::join!(error(&server, limit), serve);
    text
}

fn answer(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn server_takes_precedence_over_the_kubeconfig() {
    let settings = |server: Option<&str>| ServerSettings {
        server: server.map(|url| url.parse().unwrap()),
        kubeconfig: Some("/nowhere".into()),
        context: Some("elsewhere".to_owned()),
        ..ServerSettings::plaintext("http://unused".parse().unwrap(), Duration::from_mins(1))
    };
    let connected = Client::connect(&settings(Some("http://127.0.0.1:1"))).await;
    assert_eq!(connected.unwrap().server, "http://127.0.0.1:1");
    let error = Client::connect(&settings(None)).await.unwrap_err();
    let text = explain(&error, error.advice());
    assert!(text.starts_with("error: cannot use the kubeconfig /nowhere\n  because: "), "{text}");
    assert!(text.contains("\n  try: correct the kubeconfig, or name another one"), "{text}");
}

#[tokio::test]
async fn refused_connection_has_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text = error(&server, Duration::from_mins(1)).await;
    assert!(
        text.starts_with(
            "error: cannot get SERVER/x\n  because: connection refused\n  \
             try: check --server or OCTAVO_SERVER"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn problem_detail_is_shown_without_control_characters() {
    let body = r#"{"type": "t", "title": "Not found", "status": 404, "detail": "there is no node \"a\u001b[31m\"",
        "instance": "/x", "later": 1}"#;
    assert_eq!(
        failure(answer("404 Not Found\r\ncontent-type: application/problem+json", body)).await,
        "error: cannot get SERVER/x\n  because: there is no node \"a\u{fffd}[31m\"\n"
    );
}

#[tokio::test]
async fn other_servers_are_distinguished() {
    for (reply, because) in [
        (
            answer("200 OK\r\ncontent-type: text/html", "<html>"),
            "the response is text/html, so the server is probably not an aggregator",
        ),
        (
            answer("302 Found\r\nlocation: http://elsewhere/", ""),
            "the server redirects to http://elsewhere/, and redirects are not followed",
        ),
        (
            answer("502 Bad Gateway\r\ncontent-type: text/html", "<html>"),
            "the server returned 502 Bad Gateway without an explanation",
        ),
        (answer("200 OK\r\ncontent-type: application/json", "{"), "cannot parse the response"),
        (b"220 mail ready\r\n".to_vec(), "the server does not respond with HTTP"),
        // A TLS server answers a plain-text client with an alert.
        (vec![21, 3, 3, 0, 2, 2, 70], "the server does not respond with HTTP"),
        (Vec::new(), "the connection was lost before the response was complete"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                .to_vec(),
            "the connection was lost before the response was complete",
        ),
    ] {
        let text = failure(reply).await;
        assert!(text.contains(&format!("because: {because}\n")), "{text}");
        assert!(text.contains("\n  try: "), "{text}");
    }
}

#[tokio::test]
async fn endless_answer_is_rejected() {
    let mut endless = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
    endless.resize(MAX_ANSWER_BYTES + 1024, b' ');
    let text = failure(endless).await;
    assert!(text.contains("the response is larger than 64 MiB"), "{text}");
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let text = error(&server, Duration::from_millis(50)).await;
    assert!(
        text.contains("because: no response within 50ms\n  try: try again, or increase --timeout"),
        "{text}"
    );
    drop(listener);
}

#[tokio::test]
async fn tls_to_plain_http_server_suggests_http_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut hello = [0; 4096];
        let _ = socket.read(&mut hello).await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    };
    let server = format!("https://{address}");
    let (text, ()) = tokio::join!(error(&server, Duration::from_mins(1)), serve);
    assert!(text.contains("because: TLS handshake failed"), "{text}");
    assert!(text.contains("try: if the aggregator serves plain HTTP"), "{text}");
}
