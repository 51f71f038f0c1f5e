//! Reads the tables and queues of the template.

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value, json};

use super::{
    ACCOUNT, REGION, kind,
    values::{Scope, is_true, scalar},
};

/// One `AWS::DynamoDB::Table`.
#[derive(Clone, Debug)]
pub struct Table {
    pub logical_id: String,
    /// The physical name: `TableName`, or the logical id.
    pub name: String,
    /// Key attributes with their roles, as in the API (`[{AttributeName, KeyType}]`).
    pub key_schema: Value,
    /// Types of key attributes, as in the API.
    pub attributes: Value,
    pub global_indexes: Vec<Index>,
    pub local_indexes: Vec<Index>,
    /// `StreamViewType`. `None` if the table has no stream.
    pub stream_view: Option<String>,
    /// The attribute with an item's expiry. `None` if expiry is off.
    pub ttl_attribute: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Index {
    pub name: String,
    /// The whole definition, as in the API.
    pub definition: Value,
}

/// One standard `AWS::SQS::Queue`.
#[derive(Clone, Debug)]
pub struct Queue {
    pub logical_id: String,
    /// The physical name: `QueueName`, or the logical id.
    pub name: String,
    pub url: String,
    pub arn: String,
    /// The visibility timeout: how long a received message is hidden.
    pub visibility_seconds: u32,
    /// The time that a message is kept if it is not deleted.
    pub retention_seconds: u32,
    /// The delay of every message.
    pub delay_seconds: u32,
    /// The size limit of a message in bytes, attributes included.
    pub maximum_bytes: usize,
    /// The time that a receive waits on an empty queue if the request sets no time.
    pub wait_seconds: u32,
    /// The dead-letter queue. `None` if messages may be received any number of times.
    pub redrive: Option<Redrive>,
}

#[derive(Clone, Debug)]
pub struct Redrive {
    /// The physical name of the dead-letter queue.
    pub target: String,
    /// The number of receives after which a message moves to the dead-letter queue.
    pub max_receives: u32,
}

/// Adds the values of `Ref` and `GetAtt` for this resource to the scope.
pub(super) fn describe(id: &str, body: &Value, sqs_endpoint: &str, scope: &mut Scope) -> Result<()> {
    let own_name = |property: &str| -> Result<String> {
        match body.pointer(&format!("/Properties/{property}")) {
            Some(value) => {
                scope.evaluate(value)?.as_ref().map(scalar).transpose()?.ok_or_else(|| anyhow!("`{property}` is empty"))
            }
            None => Ok(id.to_owned()),
        }
    };
    let entries = match kind(body) {
        "AWS::DynamoDB::Table" => {
            let name = own_name("TableName")?;
            let arn = format!("arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}");
            let mut entries = vec![("", name), ("Arn", arn.clone())];
            if body.pointer("/Properties/StreamSpecification").is_some() {
                entries.push(("StreamArn", format!("{arn}/stream/local")));
            }
            entries
        }
        "AWS::SQS::Queue" => {
            let name = own_name("QueueName")?;
            let url = format!("{sqs_endpoint}/{ACCOUNT}/{name}");
            vec![
                ("", url.clone()),
                ("Arn", format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")),
                ("QueueName", name),
                ("QueueUrl", url),
            ]
        }
        _ => return Ok(()),
    };
    for (attribute, value) in entries {
        scope.attributes.insert((id.to_owned(), attribute.to_owned()), value);
    }
    Ok(())
}

impl Table {
    pub(super) fn read(id: &str, body: &Value) -> Result<Self> {
        let properties =
            body.get("Properties").and_then(Value::as_object).ok_or_else(|| anyhow!("the resource has no properties"))?;
        let required = |name: &str| properties.get(name).cloned().ok_or_else(|| anyhow!("`{name}` is missing"));
        let attributes = required("AttributeDefinitions")?;
        let key_schema = required("KeySchema")?;
        let defined: Vec<&str> =
            attributes.as_array().into_iter().flatten().filter_map(|a| a.get("AttributeName")?.as_str()).collect();
        let global_indexes = indexes(properties, "GlobalSecondaryIndexes")?;
        let local_indexes = indexes(properties, "LocalSecondaryIndexes")?;
        let schemas = global_indexes.iter().chain(&local_indexes).filter_map(|index| index.definition.get("KeySchema"));
        for key in schemas.chain([&key_schema]).flat_map(|schema| schema.as_array().into_iter().flatten()) {
            let name = key.get("AttributeName").and_then(Value::as_str).unwrap_or_default();
            if !defined.contains(&name) {
                bail!("the key attribute `{name}` is not among its `AttributeDefinitions`");
            }
        }
        let ttl_enabled = is_true(body.pointer("/Properties/TimeToLiveSpecification/Enabled"));
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            logical_id: id.to_owned(),
            name: text("/Properties/TableName").unwrap_or_else(|| id.to_owned()),
            key_schema,
            attributes,
            global_indexes,
            local_indexes,
            stream_view: text("/Properties/StreamSpecification/StreamViewType"),
            ttl_attribute: text("/Properties/TimeToLiveSpecification/AttributeName").filter(|_| ttl_enabled),
        })
    }
}

impl Queue {
    pub(super) fn read(id: &str, body: &Value, scope: &Scope) -> Result<Self> {
        let empty = Map::new();
        let properties = body.get("Properties").and_then(Value::as_object).unwrap_or(&empty);
        if is_true(properties.get("FifoQueue")) {
            bail!("the local stack does not support FIFO queues");
        }
        let number = |name: &str, fallback: u32, maximum: u32| -> Result<u32> {
            let Some(value) = properties.get(name) else { return Ok(fallback) };
            let value: u32 = scalar(value)?.parse().with_context(|| format!("`{name}` must be a whole number"))?;
            if value > maximum {
                bail!("`{name}` is {value}, more than {maximum}");
            }
            Ok(value)
        };
        let own = |attribute: &str| {
            let value = scope.attributes.get(&(id.to_owned(), attribute.to_owned()));
            value.cloned().ok_or_else(|| anyhow!("the resource has no {attribute}"))
        };
        let redrive = match properties.get("RedrivePolicy") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(serde_json::from_str::<Value>(text).context("`RedrivePolicy` is not JSON")?),
            Some(policy) => Some(policy.clone()),
        };
        let redrive = redrive.map(|policy| -> Result<Redrive> {
            let target = policy
                .get("deadLetterTargetArn")
                .and_then(Value::as_str)
                .ok_or_else(|| anyhow!("`RedrivePolicy` names no queue"))?;
            let max = policy.get("maxReceiveCount").ok_or_else(|| anyhow!("`RedrivePolicy` has no `maxReceiveCount`"))?;
            let max_receives: u32 = scalar(max)?.parse().context("`maxReceiveCount` must be a whole number")?;
            if !(1..=1000).contains(&max_receives) {
                bail!("`maxReceiveCount` must be from 1 to 1000");
            }
            Ok(Redrive { target: target.rsplit(':').next().unwrap_or(target).to_owned(), max_receives })
        });
        Ok(Self {
            logical_id: id.to_owned(),
            name: own("QueueName")?,
            url: own("QueueUrl")?,
            arn: own("Arn")?,
            visibility_seconds: number("VisibilityTimeout", 30, 43_200)?,
            retention_seconds: number("MessageRetentionPeriod", 345_600, 1_209_600)?,
            delay_seconds: number("DelaySeconds", 0, 900)?,
            maximum_bytes: number("MaximumMessageSize", 1_048_576, 1_048_576)? as usize,
            wait_seconds: number("ReceiveMessageWaitTimeSeconds", 0, 20)?,
            redrive: redrive.transpose()?,
        })
    }
}

fn indexes(properties: &Map<String, Value>, name: &str) -> Result<Vec<Index>> {
    let mut out = Vec::new();
    for index in properties.get(name).and_then(Value::as_array).into_iter().flatten() {
        let id = index.get("IndexName").and_then(Value::as_str).ok_or_else(|| anyhow!("an index in `{name}` has no name"))?;
        let projection = index.get("Projection").filter(|projection| !projection.is_null()).cloned();
        let projection = projection.unwrap_or_else(|| json!({ "ProjectionType": "ALL" }));
        let definition = json!({ "IndexName": id, "KeySchema": index.get("KeySchema"), "Projection": projection });
        out.push(Index { name: id.to_owned(), definition });
    }
    Ok(out)
}
