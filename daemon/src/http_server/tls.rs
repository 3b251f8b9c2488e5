//! The TLS certificate of a server, which can be replaced while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use host_files::rooted_path::read_regular_file;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// The time between two reads of the certificate files. This delay does no harm, because
/// cert-manager replaces a certificate weeks before the old certificate expires.
const RELOAD_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum size in bytes of the file with the certificate chain, and of the file with the key.
/// Both come from a Kubernetes Secret, which has at most 1 MiB.
const MAX_TLS_FILE_BYTES: u64 = 1 << 20;

/// The certificate and key with which a server proves its identity to clients.
#[derive(Debug)]
pub struct Identity {
    acceptor_config: Arc<ServerConfig>,
    current_certificate: Arc<CurrentCertificate>,
}

#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl Identity {
    /// Reads the certificate chain from the file `tls.crt` and the key from the file `tls.key` in a
    /// directory. A Secret of the type `kubernetes.io/tls` has files with these names.
    pub fn from_dir(dir: &Path) -> Result<Arc<Self>> {
        let (certificate_chain, key) = read_tls_files(dir)?;
        let current_certificate = Arc::new(CurrentCertificate(RwLock::new(parse_certified_key(
            &certificate_chain,
            &key,
        )?)));
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::<CurrentCertificate>::clone(&current_certificate);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        Ok(Arc::new(Self {
            acceptor_config: Arc::new(config),
            current_certificate,
        }))
    }

    /// Replaces the certificate chain and the key. Both are PEM texts. Later handshakes use the new
    /// ones. Open connections are not affected.
    ///
    /// # Errors
    /// Returns an error if the texts cannot be parsed or used. The server then keeps the previous
    /// certificate.
    pub fn replace(&self, certificate_chain: &[u8], key: &[u8]) -> Result<()> {
        let certified_key = parse_certified_key(certificate_chain, key)?;
        let mut current_key = self
            .current_certificate
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current_key = certified_key;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.acceptor_config))
    }
}

/// Replaces the certificate whenever the file tls.crt or tls.key in a directory changes. If the new
/// files cannot be used, logs the error once and keeps the previous certificate. Never returns.
pub async fn reload_on_change(identity: Arc<Identity>, dir: PathBuf) {
    let mut last_files = read_tls_files(&dir).ok();
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let files = read_tls_files(&dir);
        if files.as_ref().ok() == last_files.as_ref() {
            continue;
        }
        last_files = files.as_ref().ok().cloned();
        match files.and_then(|(certificate_chain, key)| identity.replace(&certificate_chain, &key))
        {
            Ok(()) => tracing::info!("the certificate in {} is in use", dir.display()),
            Err(error) => tracing::error!("the previous certificate stays in use: {error:#}"),
        }
    }
}

fn read_tls_files(dir: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let read_file = |name| {
        let path = dir.join(name);
        read_regular_file(&path, MAX_TLS_FILE_BYTES)
            .with_context(|| format!("{}: cannot read", path.display()))
    };
    Ok((read_file("tls.crt")?, read_file("tls.key")?))
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current_key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current_key))
    }
}

fn parse_certified_key(certificate_chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>> {
    let certificate_chain: Vec<_> = CertificateDer::pem_slice_iter(certificate_chain)
        .collect::<Result<_, _>>()
        .context("certificate: not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(key).context("key: not PEM")?;
    let certified_key = CertifiedKey::from_der(certificate_chain, key, &ring::default_provider())
        .context("certificate and key cannot be used")?;
    Ok(Arc::new(certified_key))
}
