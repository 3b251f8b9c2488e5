//! The certificate that replicas share, and handshakes with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::webhook::certificate::shared::{Names, reconcile};
use cluster::webhook::program::serve_shared;
use cluster::webhook::review::Reviewer;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::reviews::review;
use super::{container, mappings, pod};
use crate::api_server::ApiServer;
use crate::client::{parts, post};

const SECRET: &str = "/api/v1/namespaces/boathook-webhook/secrets/boathook-webhook-tls";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/boathook-webhook";
const SERVICE: &str = "boathook-webhook.boathook-webhook.svc";

fn names() -> Names {
    let name = || "boathook-webhook".to_owned();
    Names {
        namespace: name(),
        service: name(),
        secret: "boathook-webhook-tls".to_owned(),
        configuration: name(),
    }
}

async fn server() -> ApiServer {
    let server = ApiServer::start().await;
    server.put(SECRET, json!({"apiVersion": "v1", "kind": "Secret"}));
    let webhook = |name: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "boathook-webhook", "namespace": "boathook-webhook"}},
        })
    };
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "webhooks": [webhook("pods.fpga.boathook.dev")],
    });
    server.put(CONFIGURATION, configuration);
    server
}

/// The CAs that API servers trust.
fn bundle(server: &ApiServer) -> String {
    let configuration = server.get(CONFIGURATION).unwrap();
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
    String::from_utf8(STANDARD.decode(bundle.unwrap()).unwrap()).unwrap()
}

/// Sends a review as an API server does: over TLS, with the Service's name.
async fn ask(address: SocketAddr, bundle: &str, name: &'static str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name.try_into().unwrap(), stream).await?;
    let body = review(&pod(container(&[("nlb0-orch", "1")]))).to_string();
    stream.write_all(&post("/pods", &body)).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn time(days: i64) -> OffsetDateTime {
    OffsetDateTime::now_utc() + time::Duration::days(days)
}

#[tokio::test]
async fn the_api_server_gets_an_answer_under_the_services_name() {
    let server = server().await;
    let reviewer = Arc::new(Reviewer::default());
    reviewer.change(|known| *known = mappings());
    // A Service sends no review to a pod that has no certificate.
    assert_eq!(reviewer.waits_for(), Some("there is no certificate yet"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = server.client();
    let serving = tokio::spawn({
        let reviewer = Arc::clone(&reviewer);
        async move {
            serve_shared(
                listener,
                &client,
                &reviewer,
                &names(),
                Duration::from_millis(20),
            )
            .await
        }
    });
    let announced = || {
        let configuration = server.get(CONFIGURATION).unwrap();
        configuration["webhooks"][0]["clientConfig"]["caBundle"].is_string()
    };
    crate::client::wait_until("the CA in the configuration", announced).await;
    crate::client::wait_until("readiness", || reviewer.waits_for().is_none()).await;
    // An idle client does not keep others from their handshakes.
    let _idle = TcpStream::connect(address).await.unwrap();
    for name in [
        SERVICE,
        "boathook-webhook.boathook-webhook",
        "boathook-webhook",
    ] {
        let answer = ask(address, &bundle(&server), name).await.unwrap();
        let (status, body) = parts(&answer);
        assert_eq!(status, 200, "{answer}");
        assert!(body.contains("\"patchType\":\"JSONPatch\""), "{answer}");
    }
    assert!(
        ask(address, &bundle(&server), "other.boathook-webhook.svc")
            .await
            .is_err()
    );

    // A new certificate is used without a restart, and the old CA is not needed any more.
    let before = bundle(&server);
    server.put(SECRET, json!({"apiVersion": "v1", "kind": "Secret"}));
    crate::client::wait_until("another CA", || bundle(&server) != before).await;
    let mut shown = false;
    for _ in 0..200 {
        shown |= ask(address, &bundle(&server), SERVICE).await.is_ok();
    }
    assert!(shown);
    assert!(ask(address, &before, SERVICE).await.is_err());
    serving.abort();
}

#[tokio::test]
async fn replicas_that_start_at_once_share_one_certificate() {
    let server = server().await;
    let client = server.client();
    let names = names();
    let starts = (0..8).map(|_| reconcile(&client, &names, time(0)));
    let materials = futures::future::join_all(starts).await;
    let first = materials[0].as_ref().unwrap();
    for material in &materials {
        assert_eq!(material.as_ref().unwrap(), first);
    }
    assert_eq!(bundle(&server), first.current.ca);
}

#[tokio::test]
async fn both_cas_are_trusted_while_a_certificate_is_renewed() {
    let server = server().await;
    let (client, names) = (server.client(), names());
    let first = reconcile(&client, &names, time(0)).await.unwrap();
    let announced = reconcile(&client, &names, time(61)).await.unwrap();
    assert_eq!(announced.current, first.current);
    let next = announced.next.unwrap();
    assert_eq!(bundle(&server), first.current.ca.clone() + &next.ca);
    // Another replica, an hour later and a day later.
    let kept = reconcile(&client, &names, time(61)).await.unwrap();
    assert_eq!(kept.next, Some(next.clone()));
    let switched = reconcile(&client, &names, time(62)).await.unwrap();
    assert_eq!(switched.current, next);
    assert_eq!(bundle(&server), next.ca.clone() + &first.current.ca);
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_written_again() {
    let server = server().await;
    let (client, names) = (server.client(), names());
    let first = reconcile(&client, &names, time(0)).await.unwrap();
    for (key, value) in [
        ("tls.key", STANDARD.encode("no key")),
        ("tls.crt", STANDARD.encode(&first.current.ca)),
        ("ends", STANDARD.encode("tomorrow")),
    ] {
        let mut secret = server.get(SECRET).unwrap();
        secret["data"][key] = value.into();
        server.put(SECRET, secret);
        let new = reconcile(&client, &names, time(0)).await.unwrap();
        assert_ne!(new.current.key, first.current.key, "{key}");
        assert_eq!(bundle(&server), new.current.ca);
    }
}

#[tokio::test]
async fn what_others_change_is_put_right() {
    let server = server().await;
    let (client, names) = (server.client(), names());
    let first = reconcile(&client, &names, time(0)).await.unwrap();
    let mut configuration = server.get(CONFIGURATION).unwrap();
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
    server.put(CONFIGURATION, configuration);
    assert_eq!(reconcile(&client, &names, time(1)).await.unwrap(), first);
    assert_eq!(bundle(&server), first.current.ca);
    let version = server.get(CONFIGURATION).unwrap()["metadata"]["resourceVersion"].clone();
    reconcile(&client, &names, time(1)).await.unwrap();
    let after = server.get(CONFIGURATION).unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"], version,
        "written without need"
    );
    for path in [CONFIGURATION, SECRET] {
        server.delete(path);
        let error = anyhow::Error::from(reconcile(&client, &names, time(1)).await.unwrap_err());
        let (_, kind) = path.rsplit_once('/').unwrap();
        assert!(format!("{error:#}").contains(kind), "{error:#}");
    }
}
