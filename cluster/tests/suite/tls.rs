//! A certificate that `deploy/webhook/create-certificate` makes, and clients that trust it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

use harness::manifests::repository;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The DNS name of the webhook's Service.
pub(crate) const SERVICE: &str = "boathook-webhook.boathook-webhook.svc";

/// A script in the place of `kubectl` for create-certificate. It saves its input in files.
const KUBECTL: &str = r#"#!/bin/sh
for argument; do
    case $argument in
        --cert=*) cp "${argument#*=}" "$KEPT/tls.crt" ;;
        --key=*) cp "${argument#*=}" "$KEPT/tls.key" ;;
        '[{'*) echo "$argument" > "$KEPT/patch" ;;
    esac
done
"#;

/// Returns a directory with tls.crt, tls.key and the patch of the webhook's configuration.
/// Returns `None` and prints the reason if there is no openssl.
pub(crate) fn certificate() -> Option<TempDir> {
    if Command::new("openssl").arg("version").output().is_err() {
        skip::report("the webhook's certificate", "needs openssl");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let kubectl = dir.path().join("kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let others = std::env::var("PATH").unwrap();
    let path = format!("{}:{others}", dir.path().display());
    let mut script = Command::new(repository("deploy/webhook/create-certificate"));
    script.env("PATH", path).env("KEPT", dir.path());
    let output = script.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(dir)
}

/// Returns a client that trusts a certificate.
pub(crate) fn client(certificate: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(certificate).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Connects to a server from the given loopback address.
pub(crate) async fn connect(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Makes a TLS handshake as an API server does.
pub(crate) async fn handshake(
    client: &TlsConnector,
    stream: TcpStream,
    name: &'static str,
) -> std::io::Result<TlsStream<TcpStream>> {
    client.connect(name.try_into().unwrap(), stream).await
}
