//! The text of an error of the API server.

/// Returns an error as text. If the API server has refused a request, this is the message,
/// which is written for people, and not the whole answer.
pub(crate) fn text(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    }
}
