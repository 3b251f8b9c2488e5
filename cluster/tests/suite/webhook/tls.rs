//! Tests of the webhook's TLS, with a certificate that an administrator makes.

use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::webhook::review::{LIMITS, Reviewer};
use daemon::http_server;
use daemon::http_server::tls::Identity;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::reviews::review;
use super::{container, mappings, pod};
use crate::client::{build_post, split_answer};
use crate::tls::{SERVICE, certificate, client, connect, handshake};

#[tokio::test]
async fn the_api_server_gets_an_answer_under_the_services_name() {
    let Some(dir) = certificate() else {
        return;
    };
    // The patch sets the certificate that the API server trusts.
    let patch = fs::read(dir.path().join("patch")).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch[0]["path"], "/webhooks/0/clientConfig/caBundle");
    let bundle = STANDARD.decode(patch[0]["value"].as_str().unwrap());
    let bundle = bundle.unwrap();
    let client = client(&bundle);

    let reviewer = Arc::new(Reviewer::default());
    reviewer.change_mappings(|known| *known = mappings());
    let identity = Identity::from_dir(dir.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (handler, serving) = (reviewer.handler(), Arc::clone(&identity));
    tokio::spawn(http_server::serve_tls(listener, LIMITS, handler, serving));

    let stream = connect([127, 0, 0, 1], address).await.unwrap();
    let mut stream = handshake(&client, stream, SERVICE).await.unwrap();
    let body = review(&pod(container(&[("nlb0-orch", "1")]))).to_string();
    stream.write_all(&build_post("/pods", &body)).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (status, body) = split_answer(&answer);
    assert_eq!(status, 200, "{answer}");
    assert!(body.contains("\"patchType\":\"JSONPatch\""), "{answer}");
    let stream = connect([127, 0, 0, 1], address).await.unwrap();
    let other = "other.boathook-webhook.svc";
    assert!(handshake(&client, stream, other).await.is_err());

    // A new certificate is used without a restart.
    let new = certificate().unwrap();
    let [trusted, key] =
        ["tls.crt", "tls.key"].map(|name| fs::read(new.path().join(name)).unwrap());
    identity.replace(&trusted, &key).unwrap();
    let stream = connect([127, 0, 0, 1], address).await.unwrap();
    // A new client has no TLS session of the old certificate that it could resume.
    let client = crate::tls::client(&bundle);
    assert!(handshake(&client, stream, SERVICE).await.is_err());
    let stream = connect([127, 0, 0, 1], address).await.unwrap();
    let trusting = crate::tls::client(&trusted);
    assert!(handshake(&trusting, stream, SERVICE).await.is_ok());
}
