//! The routes of the WebSocket API.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value};

use super::{Function, kind, values::Scope};

/// Returns the function of each route: a route names an integration, and the integration's address names the function.
pub(super) fn routes(
    resources: &Map<String, Value>,
    scope: &Scope,
    functions: &BTreeMap<String, Function>,
) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    for (id, body) in resources.iter().filter(|(_, body)| kind(body) == "AWS::ApiGatewayV2::Route") {
        let text = |body: &Value, name: &str| -> Result<String> {
            let value = body.pointer(&format!("/Properties/{name}")).map(|value| scope.evaluate(value)).transpose()?.flatten();
            value.as_ref().and_then(Value::as_str).map(str::to_owned).ok_or_else(|| anyhow!("`{id}` has no `{name}`"))
        };
        let (key, target) = (text(body, "RouteKey")?, text(body, "Target")?);
        let integration = target.strip_prefix("integrations/").and_then(|name| resources.get(name));
        let integration = integration.ok_or_else(|| anyhow!("`{id}`: its target `{target}` does not exist"))?;
        let address = text(integration, "IntegrationUri")?;
        let function = functions.keys().find(|function| address.contains(&format!("/{function}.Alias/")));
        match function {
            Some(function) => drop(out.insert(key, function.clone())),
            None => bail!("`{id}`: no function has the address `{address}`"),
        }
    }
    Ok(out)
}
