//! Creates the client that requests ResourceClaims from the API server.
//!
//! The namespace and the name of a claim become parts of the path of a URL, and the crate kube does
//! not escape them. They come from the kubelet and from claim records. They are checked, so that a
//! wrong name cannot lead to the path of another object.

use anyhow::ensure;
use device_class::name::excerpt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};

use crate::names::{is_dns_label, is_dns_subdomain};

/// Returns the client for the claims in a namespace, for a request about the claim `name`.
///
/// # Errors
/// Returns an error if `namespace` is not a DNS label or `name` is not a DNS subdomain.
pub(crate) fn build_claims_api(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Api<ResourceClaim>, anyhow::Error> {
    check_names(namespace, name)?;
    Ok(Api::namespaced(client.clone(), namespace))
}

/// Checks that both names consist of characters that need no escaping in the path of a URL.
fn check_names(namespace: &str, name: &str) -> Result<(), anyhow::Error> {
    ensure!(
        is_dns_label(namespace),
        "`{}` is not the name of a namespace (a DNS label)",
        excerpt(namespace)
    );
    ensure!(
        is_dns_subdomain(name),
        "`{}` is not the name of a claim (a DNS subdomain)",
        excerpt(name)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_themselves_in_a_path_are_asked_for() {
        let (label, long) = ("a".repeat(63), "a".repeat(253));
        for (namespace, name) in [("n", "a"), ("kube-system", "a-1.b.c"), (&label, &long)] {
            assert!(check_names(namespace, name).is_ok(), "{namespace} {name}");
        }
        let (label, long) = ("a".repeat(64), "a".repeat(254));
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../../secrets/x",
            "a?watch=true",
            "a#b",
            "a%2fb",
            "a b",
            "a\n",
            "a\0",
            "A",
            "-a",
            "a-",
            "a_b",
            "é",
            "a..b",
            ".a",
            "a.",
            &long,
        ] {
            assert!(check_names("n", bad).is_err(), "{bad:?}");
            assert!(check_names(bad, "a").is_err(), "{bad:?}");
        }
        assert!(check_names(&label, "a").is_err());
        assert!(check_names("a.b", "a").is_err());
    }
}
