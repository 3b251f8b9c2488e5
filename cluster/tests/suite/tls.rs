//! A certificate as `deploy/webhook/create-certificate` makes it, and clients that trust it.

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

/// The Service's name.
pub(crate) const SERVICE: &str = "boathook-webhook.boathook-webhook.svc";

/// `kubectl` as far as the script needs it: it keeps what it is given.
const KUBECTL: &str = r#"#!/bin/sh
for argument; do
    case $argument in
        --cert=*) cp "${argument#*=}" "$KEPT/tls.crt" ;;
        --key=*) cp "${argument#*=}" "$KEPT/tls.key" ;;
        '[{'*) echo "$argument" > "$KEPT/patch" ;;
    esac
done
"#;

/// A directory with tls.crt and tls.key, and the patch of the webhook's configuration.
/// `None`, with a printed reason, without openssl.
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

/// A client that trusts a certificate.
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

/// Connects to a server, from one of the loopback addresses.
pub(crate) async fn connect(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// A handshake as an API server makes it.
pub(crate) async fn handshake(
    client: &TlsConnector,
    stream: TcpStream,
    name: &'static str,
) -> std::io::Result<TlsStream<TcpStream>> {
    client.connect(name.try_into().unwrap(), stream).await
}
