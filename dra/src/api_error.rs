//! Describes errors of the API server for log messages.

/// Describes an error. If the API server refused the request, the text is its message for people
/// and not the whole answer.
pub(crate) fn describe(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    }
}
