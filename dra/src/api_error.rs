//! What the API server says when it refuses.

/// An error as text: of a refusal the message, which is written for people, and not the
/// whole answer.
pub(crate) fn text(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    }
}
