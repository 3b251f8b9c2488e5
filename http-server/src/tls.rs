//! The certificate of a server, which can be replaced while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use rooted_path::read_regular_file;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// The time between two reads of a certificate's files. cert-manager replaces them weeks
/// before they expire.
const RELOAD_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum size in bytes of a certificate chain or key. A Secret has at most 1 MiB.
const MAX_FILE: u64 = 1 << 20;

/// A server's certificate and key.
#[derive(Debug)]
pub struct Identity {
    acceptor_config: Arc<ServerConfig>,
    current: Arc<CurrentCertificate>,
}

#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl Identity {
    /// Reads the certificate in the files tls.crt and tls.key of a directory.
    pub fn from_dir(dir: &Path) -> Result<Arc<Self>> {
        let (chain, key) = read(dir)?;
        let current = Arc::new(CurrentCertificate(RwLock::new(parse_certified_key(
            &chain, &key,
        )?)));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<CurrentCertificate>::clone(&current);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        Ok(Arc::new(Self {
            acceptor_config: Arc::new(config),
            current,
        }))
    }

    /// Replaces the certificate.
    ///
    /// # Errors
    /// The certificate cannot be used; the previous one stays in use.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<()> {
        let new = parse_certified_key(chain, key)?;
        *self
            .current
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.acceptor_config))
    }
}

/// Uses tls.crt and tls.key of a directory, and never returns. A certificate that
/// cannot be used is logged once, and the previous certificate stays in use.
pub async fn reload(identity: Arc<Identity>, dir: PathBuf) {
    let mut loaded = read(&dir).ok();
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let files = read(&dir);
        if files.as_ref().ok() == loaded.as_ref() {
            continue;
        }
        loaded = files.as_ref().ok().cloned();
        match files.and_then(|(chain, key)| identity.replace(&chain, &key)) {
            Ok(()) => tracing::info!("the certificate in {} is in use", dir.display()),
            Err(error) => tracing::error!("the previous certificate stays in use: {error:#}"),
        }
    }
}

fn read(dir: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let file = |name| {
        let path = dir.join(name);
        read_regular_file(&path, MAX_FILE)
            .with_context(|| format!("{}: cannot read", path.display()))
    };
    Ok((file("tls.crt")?, file("tls.key")?))
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

fn parse_certified_key(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .context("certificate: not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(key).context("key: not PEM")?;
    let parse_certified_key = CertifiedKey::from_der(chain, key, &ring::default_provider())
        .context("certificate and key cannot be used")?;
    Ok(Arc::new(parse_certified_key))
}
