//! Describes errors of requests to the API server for log messages.

/// Describes the error of a request. If the API server refused the request, the text is only the
/// human-readable message of its answer.
pub(crate) fn describe_error(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    }
}
