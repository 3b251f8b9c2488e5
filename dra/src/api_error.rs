//! Describes errors of requests to the API server for log messages.

/// Describes the error of a request. If the API server refused the request, returns only the
/// human-readable message from its answer.
pub(crate) fn describe_error(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    }
}
