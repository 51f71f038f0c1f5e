//! Dispatches operations by name: JSON of the protocol to typed calls of the embedded engine.

use dynoxide::{Database, DynoxideError};
use serde::{Serialize, de::DeserializeOwned};

use crate::http_server::status_of;

#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Response {
    pub(super) fn error(code: &str, message: &str) -> Self {
        let space =
            if code == "ThrottlingException" { "com.amazon.coral.availability" } else { "com.amazonaws.dynamodb.v20120810" };
        let body = serde_json::json!({ "__type": format!("{space}#{code}"), "message": message });
        Self { status: status_of(code), body: body.to_string() }
    }

    pub(super) fn is_ok(&self) -> bool {
        self.status == 200
    }
}

fn call<I: DeserializeOwned, O: Serialize>(
    body: &str,
    operation: impl FnOnce(I) -> dynoxide::Result<O>,
) -> dynoxide::Result<String> {
    let input = serde_json::from_str(body).map_err(|error| DynoxideError::SerializationException(error.to_string()))?;
    let output = operation(input)?;
    serde_json::to_string(&output).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

macro_rules! operations {
    ($database:ident, $operation:ident, $body:ident, $($name:literal => $method:ident,)*) => {
        match $operation {
            $($name => call($body, |input| $database.$method(input)),)*
            _ => return Response {
                status: 400,
                body: r#"{"__type":"com.amazon.coral.service#UnknownOperationException"}"#.to_owned(),
            },
        }
    };
}

/// Performs an operation on items, or describes tables: only the template changes them. Blocks its thread meanwhile.
pub(super) fn perform(database: &Database, operation: &str, body: &str) -> Response {
    let result = operations! { database, operation, body,
        "GetItem" => get_item,
        "PutItem" => put_item,
        "UpdateItem" => update_item,
        "DeleteItem" => delete_item,
        "Query" => query,
        "Scan" => scan,
        "BatchGetItem" => batch_get_item,
        "BatchWriteItem" => batch_write_item,
        "TransactGetItems" => transact_get_items,
        "TransactWriteItems" => transact_write_items,
        "DescribeTable" => describe_table,
        "ListTables" => list_tables,
        "DescribeTimeToLive" => describe_time_to_live,
    };
    match result {
        Ok(body) => Response { status: 200, body },
        Err(error) => Response { status: error.status_code(), body: error.to_json() },
    }
}
