//! Creates the tables of the template in the database.

use anyhow::{Context as _, Result, bail, ensure};
use dynoxide::Database;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::template::{Index, Table};

/// Creates the table, or adds to an existing table what is new in the template. Never drops anything.
pub(super) fn ensure(database: &Database, table: &Table) -> Result<Option<String>> {
    match describe(database, &table.name)? {
        None => {
            database.create_table(request(creation(table))?).context("cannot create it")?;
            tracing::debug!(table = table.name, "created table");
        }
        Some(existing) => update(database, table, &existing)?,
    }
    if let Some(attribute) = &table.ttl_attribute {
        let current = database.describe_time_to_live(request(json!({ "TableName": table.name }))?)?;
        if current.time_to_live_description.attribute_name.as_ref() != Some(attribute) {
            let specification = json!({ "AttributeName": attribute, "Enabled": true });
            let input = request(json!({ "TableName": table.name, "TimeToLiveSpecification": specification }))?;
            database.update_time_to_live(input).context("cannot enable expiry")?;
        }
    }
    let description = describe(database, &table.name)?.unwrap_or_default();
    Ok(description["LatestStreamArn"].as_str().map(str::to_owned))
}

/// The request that creates a table.
pub(crate) fn creation(table: &Table) -> Value {
    let mut input = json!({
        "TableName": table.name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": table.attributes,
        "KeySchema": table.key_schema,
    });
    for (name, indexes) in [("GlobalSecondaryIndexes", &table.global_indexes), ("LocalSecondaryIndexes", &table.local_indexes)] {
        if !indexes.is_empty() {
            input[name] = indexes.iter().map(|index| index.definition.clone()).collect();
        }
    }
    if let Some(view) = &table.stream_view {
        input["StreamSpecification"] = json!({ "StreamEnabled": true, "StreamViewType": view });
    }
    input
}

fn update(database: &Database, table: &Table, existing: &Value) -> Result<()> {
    let same = same_keys(&existing["KeySchema"], &table.key_schema);
    ensure!(same, "the data directory has this table with another key; remove the data directory to start with an empty one");
    let has = |list: &str, index: &Index| {
        existing[list].as_array().into_iter().flatten().any(|e| e["IndexName"] == index.name.as_str())
    };
    if let Some(index) = table.local_indexes.iter().find(|index| !has("LocalSecondaryIndexes", index)) {
        bail!(
            "the local index `{}` cannot be added to an existing table; remove the data directory to start with an empty one",
            index.name
        );
    }
    for index in table.global_indexes.iter().filter(|index| !has("GlobalSecondaryIndexes", index)) {
        let creation = json!([{ "Create": index.definition }]);
        let input =
            json!({ "TableName": table.name, "AttributeDefinitions": table.attributes, "GlobalSecondaryIndexUpdates": creation });
        database.update_table(request(input)?).with_context(|| format!("cannot add the index `{}`", index.name))?;
    }
    if let Some(view) = &table.stream_view
        && existing.pointer("/StreamSpecification/StreamEnabled") != Some(&Value::Bool(true))
    {
        let stream = json!({ "StreamEnabled": true, "StreamViewType": view });
        let input = request(json!({ "TableName": table.name, "StreamSpecification": stream }))?;
        database.update_table(input).context("cannot enable its stream")?;
    }
    Ok(())
}

fn describe(database: &Database, table: &str) -> Result<Option<Value>> {
    match database.describe_table(request(json!({ "TableName": table }))?) {
        Ok(response) => Ok(serde_json::to_value(response)?.get("Table").cloned()),
        Err(dynoxide::DynoxideError::ResourceNotFoundException(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn same_keys(a: &Value, b: &Value) -> bool {
    let keys = |value: &Value| -> Vec<(Value, Value)> {
        value.as_array().into_iter().flatten().map(|key| (key["AttributeName"].clone(), key["KeyType"].clone())).collect()
    };
    keys(a) == keys(b)
}

fn request<T: DeserializeOwned>(input: Value) -> Result<T> {
    serde_json::from_value(input).context("DynamoDB does not accept the template's definition")
}
