//! The Secret that replicas share, and the CAs in the webhook configuration.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use time::OffsetDateTime;

use super::material::{Material, Step, step};
use super::pair::Pair;
use crate::http::Identity;

/// The objects, all of which exist already: the permission to create objects cannot be
/// limited to a name.
#[derive(Debug, Clone)]
pub struct Names {
    /// The namespace of Service and Secret.
    pub namespace: String,
    /// The Service, whose names the certificate has.
    pub service: String,
    pub secret: String,
    /// The MutatingWebhookConfiguration.
    pub configuration: String,
}

/// Why the certificate cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The Secret cannot be read or written.
    #[error("Secret {0}")]
    Secret(String, #[source] kube::Error),
    /// The webhook configuration cannot be read or written.
    #[error("MutatingWebhookConfiguration {0}")]
    Configuration(String, #[source] kube::Error),
    /// The certificate cannot be created.
    #[error("cannot create a certificate for Service {0}")]
    Certificate(String, #[source] rcgen::Error),
}

/// Updates the Secret and the webhook configuration, and returns the certificate to
/// serve. Replicas that do this at the same time get the same result: a Secret that was
/// changed in between is read again.
pub async fn reconcile(
    client: &Client,
    names: &Names,
    now: OffsetDateTime,
) -> Result<Material, SharedError> {
    let material = keep_secret(client, names, now).await?;
    // Before anything new is shown, clients trust it.
    announce(client, names, &material.bundle())
        .await
        .map_err(|error| SharedError::Configuration(names.configuration.clone(), error))?;
    Ok(material)
}

async fn keep_secret(
    client: &Client,
    names: &Names,
    now: OffsetDateTime,
) -> Result<Material, SharedError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &names.namespace);
    let failed =
        |error| SharedError::Secret(format!("{}/{}", names.namespace, names.secret), error);
    loop {
        let mut secret = secrets.get(&names.secret).await.map_err(failed)?;
        // What somebody else has written into it, and cannot be shown, counts as nothing.
        let present = secret.data.as_ref().and_then(Material::from_data);
        let present = present.filter(|material| can_be_shown(&material.current));
        let step = step(present.as_ref(), now);
        if let (Step::Keep, Some(material)) = (step, &present) {
            return Ok(material.clone());
        }
        let make = || Pair::new(&names.service, &names.namespace, now);
        let material = Material::after(present, step, make)
            .map_err(|error| SharedError::Certificate(names.service.clone(), error))?;
        secret.data = Some(material.to_data());
        // With the resource version that was read: the other replica's change is kept.
        match secrets
            .replace(&names.secret, &PostParams::default(), &secret)
            .await
        {
            Ok(_) => {
                tracing::info!(
                    "certificate: {step:?}, valid until {}",
                    material.current.ends
                );
                return Ok(material);
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn can_be_shown(pair: &Pair) -> bool {
    Identity::new(pair.certificate.as_bytes(), pair.key.as_bytes()).is_ok()
}

async fn announce(client: &Client, names: &Names, bundle: &str) -> Result<(), kube::Error> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let present = configurations.get(&names.configuration).await?;
    let webhooks = present.webhooks.iter().flatten().enumerate();
    let outdated = webhooks.filter(|(_, webhook)| {
        let ca_bundle = webhook.client_config.ca_bundle.as_ref();
        ca_bundle.is_none_or(|ca_bundle| ca_bundle.0 != bundle.as_bytes())
    });
    let bundle = k8s_openapi::ByteString(bundle.as_bytes().to_vec());
    let operations: Vec<_> = outdated
        .flat_map(|(at, webhook)| {
            [
                json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": webhook.name}),
                json!({
                    "op": "add",
                    "path": format!("/webhooks/{at}/clientConfig/caBundle"),
                    "value": bundle,
                }),
            ]
        })
        .collect();
    if operations.is_empty() {
        return Ok(());
    }
    let patch: json_patch::Patch =
        serde_json::from_value(operations.into()).map_err(kube::Error::SerdeError)?;
    let patch = Patch::Json::<()>(patch);
    let params = PatchParams::default();
    configurations
        .patch(&names.configuration, &params, &patch)
        .await?;
    Ok(())
}
