//! Tests of the client against faulty servers. Each is a socket that sends one answer.

use std::time::Duration;

use octavo_settings::server_url::ServerUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::explain;

async fn error(server: &str, patience: Duration) -> String {
    let url: ServerUrl = server.parse().unwrap();
    let client = Client::new(&ServerSettings::plaintext(url, patience)).unwrap();
    let asked = client
        .get::<serde_json::Value>(&RequestPath::new("/x"))
        .await;
    explain(&asked.unwrap_err().into()).replace(server, "SERVER")
}

/// Returns the error for a server that sends `answer` and then closes the connection.
async fn told(answer: Vec<u8>) -> String {
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
    let patience = Duration::from_mins(1);
    let (text, ()) = tokio::join!(error(&server, patience), serve);
    text
}

fn answer(head: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn refused_connection_has_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text = error(&server, Duration::from_mins(1)).await;
    assert!(
        text.starts_with(
            "error: cannot get SERVER/x\n  because: nobody listens there: the connection was refused\n  \
             try: is an aggregator running there? start one with `octavo-aggregator`"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn problem_detail_is_shown_without_control_characters() {
    let body = r#"{"type": "t", "title": "Not found", "status": 404, "detail": "there is no node \"a\u001b[31m\"",
        "instance": "/x", "later": 1}"#;
    assert_eq!(
        told(answer(
            "404 Not Found\r\ncontent-type: application/problem+json",
            body
        ))
        .await,
        "error: cannot get SERVER/x\n  because: there is no node \"a\u{fffd}[31m\"\n"
    );
}

#[tokio::test]
async fn other_servers_are_distinguished() {
    for (reply, because) in [
        (
            answer("200 OK\r\ncontent-type: text/html", "<html>"),
            "the answer is text/html, not what an aggregator gives",
        ),
        (
            answer("302 Found\r\nlocation: http://elsewhere/", ""),
            "it sends us to http://elsewhere/, and redirects are not followed",
        ),
        (
            answer("502 Bad Gateway\r\ncontent-type: text/html", "<html>"),
            "it answers 502 Bad Gateway without an explanation",
        ),
        (
            answer("200 OK\r\ncontent-type: application/json", "{"),
            "cannot understand the answer",
        ),
        (
            b"220 mail ready\r\n".to_vec(),
            "what answers does not speak HTTP",
        ),
        // A TLS server answers a plain-text client with an alert.
        (
            vec![21, 3, 3, 0, 2, 2, 70],
            "what answers does not speak HTTP",
        ),
        (
            Vec::new(),
            "the connection broke before the answer was whole",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                .to_vec(),
            "the connection broke before the answer was whole",
        ),
    ] {
        let text = told(reply).await;
        assert!(text.contains(&format!("because: {because}\n")), "{text}");
        assert!(text.contains("\n  try: "), "{text}");
    }
}

#[tokio::test]
async fn endless_answer_is_rejected() {
    let mut endless = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
    endless.resize(MAX_ANSWER_BYTES + 1024, b' ');
    let text = told(endless).await;
    assert!(text.contains("the answer is longer than 64 MiB"), "{text}");
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let text = error(&server, Duration::from_millis(50)).await;
    assert!(
        text.contains(
            "because: there was no answer within 50ms\n  try: try again, or give it more time"
        ),
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
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    };
    let server = format!("https://{address}");
    let (text, ()) = tokio::join!(error(&server, Duration::from_mins(1)), serve);
    assert!(text.contains("because: cannot speak TLS with it"), "{text}");
    assert!(text.contains("try: does it speak plain HTTP?"), "{text}");
}
