//! A certificate and the CA that signed it.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// How long a certificate is valid.
pub const LIFETIME: Duration = Duration::days(90);

/// How long before its creation a certificate becomes valid, because clocks differ.
const SKEW: Duration = Duration::hours(1);

/// A certificate, its key, and its CA, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    /// The CA's certificate.
    pub ca: String,
    /// When its validity begins.
    pub begins: OffsetDateTime,
    /// When it ends.
    pub ends: OffsetDateTime,
}

impl Pair {
    /// Creates a CA, and a certificate for a Service's names.
    pub fn new(service: &str, namespace: &str, now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        // Whole seconds, as certificates have them.
        let now = now.replace_nanosecond(0).unwrap_or(now);
        let (begins, ends) = (now - SKEW, now + LIFETIME);
        let named = |names: Vec<String>, name: String| {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            (params.not_before, params.not_after) = (begins, ends);
            params.use_authority_key_identifier_extension = true;
            Ok::<_, rcgen::Error>(params)
        };
        // Two CAs of one name in caBundle would be tried in turn, but confuse people.
        let mut ca = named(Vec::new(), format!("{service} CA {}", now.unix_timestamp()))?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let full = format!("{service}.{namespace}.svc");
        let names = vec![
            full.clone(),
            format!("{service}.{namespace}"),
            service.to_owned(),
        ];
        // A common name has at most 64 characters; clients read the others.
        let mut server = named(names, service.chars().take(64).collect())?;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &ca)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            ca: ca.pem(),
            begins,
            ends,
        })
    }

    /// Whether it is valid at this time.
    pub fn is_valid(&self, now: OffsetDateTime) -> bool {
        (self.begins..self.ends).contains(&now)
    }
}
