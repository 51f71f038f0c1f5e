//! The connections of the WebSocket API, as API Gateway manages them.

use aws_config::SdkConfig;
use aws_sdk_apigatewaymanagement::{Client, config::Builder, primitives::Blob};
use tracing::warn;

pub(crate) struct Connections {
    client: Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    Done,
    /// The connection does not exist any more.
    Gone,
    /// API Gateway did not accept the message in time.
    Failed,
}

impl Connections {
    pub(crate) fn new(config: &SdkConfig, endpoint: String) -> Self {
        Self { client: Client::from_conf(Builder::from(config).endpoint_url(endpoint).build()) }
    }

    pub(crate) async fn post(&self, connection: &str, text: String) -> Posted {
        let request = self.client.post_to_connection().connection_id(connection).data(Blob::new(text));
        match request.send().await {
            Ok(_) => Posted::Done,
            Err(error) if error.as_service_error().is_some_and(|error| error.is_gone_exception()) => Posted::Gone,
            Err(error) => {
                warn!(connection, error = &error as &dyn std::error::Error, "a connection could not be reached");
                Posted::Failed
            }
        }
    }
}
