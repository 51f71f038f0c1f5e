//! Reads the tables, the queues and the CORS configuration of the template.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ACCOUNT, REGION,
    events::number,
    kind,
    values::{Scope, is_true},
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

/// The `CorsConfiguration` of the HTTP API.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Cors {
    /// Origins, or `*`.
    pub allow_origins: Vec<String>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    /// Headers of responses that a page may read.
    pub expose_headers: Vec<String>,
    /// The time that a browser may keep the response to a preflight request, in seconds.
    pub max_age: u64,
}

impl Cors {
    pub(super) fn read(api: &Value) -> Result<Option<Self>> {
        Option::deserialize(&api["Properties"]["CorsConfiguration"]).context("`CorsConfiguration`")
    }
}

/// Adds the values of `Ref` and `GetAtt` for this resource to the scope.
pub(super) fn describe(id: &str, body: &Value, sqs_endpoint: &str, scope: &mut Scope) -> Result<()> {
    let own_name = |property: &str| match &body["Properties"][property] {
        Value::Null => Ok(id.to_owned()),
        name => scope.string(name),
    };
    let mut entries = Vec::new();
    match kind(body) {
        "AWS::DynamoDB::Table" => {
            let name = own_name("TableName")?;
            let arn = format!("arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}");
            if !body["Properties"]["StreamSpecification"].is_null() {
                entries.push((".StreamArn", format!("{arn}/stream/local")));
            }
            entries.extend([("", name), (".Arn", arn)]);
        }
        "AWS::SQS::Queue" => {
            let name = own_name("QueueName")?;
            let url = format!("{sqs_endpoint}/{ACCOUNT}/{name}");
            let arn = format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}");
            entries.extend([("", url.clone()), (".Arn", arn), (".QueueName", name), (".QueueUrl", url)]);
        }
        _ => {}
    }
    scope.attributes.extend(entries.into_iter().map(|(attribute, value)| (format!("{id}{attribute}"), value)));
    Ok(())
}

impl Table {
    pub(super) fn read(id: &str, body: &Value) -> Result<Self> {
        let properties = &body["Properties"];
        let required = |name: &str| properties.get(name).cloned().with_context(|| format!("`{name}` is missing"));
        let (attributes, key_schema) = (required("AttributeDefinitions")?, required("KeySchema")?);
        let defined: Vec<&str> = named(&attributes).collect();
        let global_indexes = indexes(properties, "GlobalSecondaryIndexes")?;
        let local_indexes = indexes(properties, "LocalSecondaryIndexes")?;
        let schemas = global_indexes.iter().chain(&local_indexes).map(|index| &index.definition["KeySchema"]);
        for name in schemas.chain([&key_schema]).flat_map(named) {
            ensure!(defined.contains(&name), "the key attribute `{name}` is not among its `AttributeDefinitions`");
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let ttl = &properties["TimeToLiveSpecification"];
        Ok(Self {
            logical_id: id.to_owned(),
            name: text(&properties["TableName"]).unwrap_or_else(|| id.to_owned()),
            stream_view: text(&properties["StreamSpecification"]["StreamViewType"]),
            ttl_attribute: text(&ttl["AttributeName"]).filter(|_| is_true(ttl, "Enabled")),
            key_schema,
            attributes,
            global_indexes,
            local_indexes,
        })
    }
}

/// The attribute names of key schemas and attribute definitions.
fn named(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().map(|entry| entry["AttributeName"].as_str().unwrap_or_default())
}

impl Queue {
    pub(super) fn read(id: &str, body: &Value, scope: &Scope) -> Result<Self> {
        let properties = &body["Properties"];
        ensure!(!is_true(properties, "FifoQueue"), "the local stack does not support FIFO queues");
        let number = |name: &str, fallback: u32, most: u32| -> Result<u32> {
            let value = number(properties, name)?.unwrap_or(fallback);
            ensure!(value <= most, "`{name}` is {value}, more than {most}");
            Ok(value)
        };
        let own = |attribute: &str| scope.attribute(&format!("{id}.{attribute}"));
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
            redrive: properties.get("RedrivePolicy").map(Redrive::read).transpose()?,
        })
    }
}

impl Redrive {
    fn read(policy: &Value) -> Result<Self> {
        ensure!(policy.is_object(), "`RedrivePolicy` must be a mapping");
        let target = policy["deadLetterTargetArn"].as_str().context("`RedrivePolicy` names no queue")?;
        let max_receives = number(policy, "maxReceiveCount")?.context("`RedrivePolicy` has no `maxReceiveCount`")?;
        ensure!((1..=1000).contains(&max_receives), "`maxReceiveCount` must be from 1 to 1000");
        Ok(Self { target: target.rsplit(':').next().unwrap_or(target).to_owned(), max_receives })
    }
}

fn indexes(properties: &Value, name: &str) -> Result<Vec<Index>> {
    let index = |index: &Value| {
        let id = index["IndexName"].as_str().with_context(|| format!("an index in `{name}` has no name"))?;
        let mut definition = json!({ "IndexName": id, "KeySchema": index["KeySchema"], "Projection": index["Projection"] });
        if definition["Projection"].is_null() {
            definition["Projection"] = json!({ "ProjectionType": "ALL" });
        }
        Ok(Index { name: id.to_owned(), definition })
    };
    properties[name].as_array().into_iter().flatten().map(index).collect()
}
