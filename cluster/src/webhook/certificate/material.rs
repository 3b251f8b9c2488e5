//! The content of the Secret, and the next change to it. Pure, except that it creates
//! keys.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use time::{Duration, OffsetDateTime};

use super::pair::Pair;

/// A new certificate is created when the current one is valid for less than this.
pub const RENEWAL: Duration = Duration::days(30);

/// How long the CA of a new certificate is in the webhook configuration before the
/// certificate is served: longer than any replica takes to write it there.
pub const ANNOUNCEMENT: Duration = Duration::days(1);

/// The Secret's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Material {
    /// The certificate that is served.
    pub current: Pair,
    /// The certificate that will be served next.
    pub next: Option<Pair>,
    /// The CA of the previous certificate, which a replica may still serve.
    pub previous_ca: Option<String>,
}

/// The next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Keep,
    /// Create everything: the Secret is empty, or clients do not trust its content now.
    Create,
    /// Create the next certificate, and publish its CA.
    Announce,
    /// Serve the next certificate.
    Switch,
}

/// The change that is due at a time. The wall clock decides, as it does for clients that
/// verify the certificate; if it jumps, the certificate is at worst renewed too early.
pub fn step(material: Option<&Material>, now: OffsetDateTime) -> Step {
    let Some(material) = material.filter(|material| material.current.is_valid(now)) else {
        return Step::Create;
    };
    match &material.next {
        Some(next) if !next.is_valid(now) => Step::Announce,
        Some(next) if next.ends - super::pair::LIFETIME + ANNOUNCEMENT <= now => Step::Switch,
        None if material.current.ends - now < RENEWAL => Step::Announce,
        _ => Step::Keep,
    }
}

impl Material {
    /// Applies a change.
    pub fn after(
        this: Option<Self>,
        step: Step,
        make: impl FnOnce() -> Result<Pair, rcgen::Error>,
    ) -> Result<Self, rcgen::Error> {
        let Some(material) = this.filter(|_| step != Step::Create) else {
            return Ok(Self {
                current: make()?,
                next: None,
                previous_ca: None,
            });
        };
        Ok(match (step, material.next) {
            (Step::Announce, _) => Self {
                next: Some(make()?),
                ..Self {
                    next: None,
                    ..material
                }
            },
            (Step::Switch, Some(next)) => Self {
                previous_ca: Some(material.current.ca),
                current: next,
                next: None,
            },
            (_, next) => Self { next, ..material },
        })
    }

    /// The CAs that clients must trust, in PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.ca);
        let all = [Some(&self.current.ca), next, self.previous_ca.as_ref()];
        all.into_iter().flatten().cloned().collect()
    }

    /// In the form of the Secret.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        write(&mut data, "", &self.current);
        if let Some(next) = &self.next {
            write(&mut data, "next-", next);
        }
        let mut add = |key: &str, text: &str| data.insert(key.to_owned(), bytes(text));
        add("ca-bundle.crt", &self.bundle());
        if let Some(ca) = &self.previous_ca {
            add("previous-ca.crt", ca);
        }
        data
    }

    /// From the Secret's content; `None` if a part is missing.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        Some(Self {
            current: read(data, "")?,
            next: read(data, "next-"),
            previous_ca: text(data, "previous-ca.crt"),
        })
    }
}

fn write(data: &mut BTreeMap<String, ByteString>, prefix: &str, pair: &Pair) {
    let seconds = |time: OffsetDateTime| time.unix_timestamp().to_string();
    for (key, value) in [
        ("tls.crt", pair.certificate.clone()),
        ("tls.key", pair.key.clone()),
        ("ca.crt", pair.ca.clone()),
        ("begins", seconds(pair.begins)),
        ("ends", seconds(pair.ends)),
    ] {
        data.insert(format!("{prefix}{key}"), bytes(&value));
    }
}

fn read(data: &BTreeMap<String, ByteString>, prefix: &str) -> Option<Pair> {
    let text = |key: &str| text(data, &format!("{prefix}{key}"));
    let time = |key: &str| OffsetDateTime::from_unix_timestamp(text(key)?.parse().ok()?).ok();
    Some(Pair {
        certificate: text("tls.crt")?,
        key: text("tls.key")?,
        ca: text("ca.crt")?,
        begins: time("begins")?,
        ends: time("ends")?,
    })
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::certificate::pair::LIFETIME;

    fn pair(now: OffsetDateTime) -> Result<Pair, rcgen::Error> {
        Pair::new("webhook", "fpga", now)
    }

    fn forward(material: Option<Material>, now: OffsetDateTime) -> (Step, Material) {
        let step = step(material.as_ref(), now);
        (step, Material::after(material, step, || pair(now)).unwrap())
    }

    #[test]
    fn a_renewal_is_announced_before_it_is_shown() {
        let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (step, first) = forward(None, start);
        assert_eq!(step, Step::Create);
        assert_eq!(first.bundle().matches("BEGIN CERTIFICATE").count(), 1);
        let (step, _) = forward(Some(first.clone()), start + Duration::days(59));
        assert_eq!(step, Step::Keep);

        let renewal = start + Duration::days(61);
        let (step, announced) = forward(Some(first.clone()), renewal);
        assert_eq!(step, Step::Announce);
        assert_eq!(announced.current, first.current);
        // Until then both CAs are trusted.
        let new = announced.next.clone().unwrap();
        assert_eq!(
            announced.bundle(),
            format!("{}{}", first.current.ca, new.ca)
        );
        let (step, _) = forward(Some(announced.clone()), renewal + Duration::hours(23));
        assert_eq!(step, Step::Keep);

        let (step, switched) = forward(Some(announced), renewal + Duration::days(1));
        assert_eq!(step, Step::Switch);
        assert_eq!(switched.current, new);
        // A replica that has not switched yet is still trusted.
        assert_eq!(switched.bundle(), format!("{}{}", new.ca, first.current.ca));
        let (step, _) = forward(Some(switched), renewal + Duration::days(2));
        assert_eq!(step, Step::Keep);
    }

    #[test]
    fn a_clock_that_jumps_costs_a_renewal_at_most() {
        let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (_, first) = forward(None, start);
        for jump in [
            LIFETIME,
            Duration::days(10_000),
            -Duration::hours(2),
            -Duration::days(10_000),
        ] {
            let (step, new) = forward(Some(first.clone()), start + jump);
            assert_eq!(step, Step::Create, "{jump}");
            assert!(new.current.is_valid(start + jump));
        }
        // A certificate that was announced in the future is not shown.
        let (_, announced) = forward(Some(first.clone()), start + Duration::days(80));
        let (step, again) = forward(Some(announced), start + Duration::days(10));
        assert_eq!(step, Step::Announce);
        assert_eq!(again.current, first.current);
    }

    #[test]
    fn the_secret_holds_everything() {
        let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (_, first) = forward(None, start);
        let (_, announced) = forward(Some(first.clone()), start + Duration::days(61));
        let (_, switched) = forward(Some(announced.clone()), start + Duration::days(63));
        for material in [first, announced, switched] {
            let mut data = material.to_data();
            assert_eq!(Material::from_data(&data), Some(material));
            data.insert("ends".to_owned(), bytes("tomorrow"));
            assert_eq!(Material::from_data(&data), None);
        }
        assert_eq!(Material::from_data(&BTreeMap::new()), None);
    }
}
