//! Values of the template's parameters, under the rules that CloudFormation checks.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use regex_lite::Regex;
use serde_json::Value;

use super::{Bindings, section, values::scalar};

/// The given values, or the defaults. Lists become lists.
pub(super) fn read(root: &Value, bindings: &Bindings) -> Result<BTreeMap<String, Value>> {
    let declared = section(root, "Parameters")?;
    if let Some(unknown) = bindings.parameters.keys().find(|name| !declared.contains_key(*name)) {
        let names: Vec<&str> = declared.keys().map(String::as_str).collect();
        bail!("the template has no parameter `{unknown}`; its parameters are {}", names.join(", "));
    }
    let mut out = BTreeMap::new();
    for (name, body) in &declared {
        let value = match bindings.parameters.get(name) {
            Some(given) => given.clone(),
            None => body
                .get("Default")
                .map(scalar)
                .transpose()?
                .ok_or_else(|| anyhow!("parameter `{name}` has neither a value nor a default"))?,
        };
        let list = body.get("Type").and_then(Value::as_str).is_some_and(|t| t == "CommaDelimitedList" || t.starts_with("List<"));
        let items: Vec<&str> = if list { value.split(',').map(str::trim).collect() } else { vec![&value] };
        for item in &items {
            check(body, item).with_context(|| format!("parameter `{name}`"))?;
        }
        let value = match list {
            true if value.is_empty() => Value::Array(Vec::new()),
            true => Value::Array(items.into_iter().map(|item| Value::String(item.to_owned())).collect()),
            false => Value::String(value),
        };
        out.insert(name.clone(), value);
    }
    Ok(out)
}

/// Fails with the value and the rule that it breaks. A secret value is not shown.
fn check(body: &Value, value: &str) -> Result<()> {
    let rule = |name: &str| body.get(name).map(scalar).transpose();
    let shown = if body.get("NoEcho").is_some() { "the value".to_owned() } else { format!("`{value}`") };
    if let Some(allowed) = body.get("AllowedValues").and_then(Value::as_array) {
        let allowed: Vec<String> = allowed.iter().map(scalar).collect::<Result<_>>()?;
        ensure!(allowed.iter().any(|one| one == value), "{shown} is not one of {} (AllowedValues)", allowed.join(", "));
    }
    if let Some(pattern) = rule("AllowedPattern")? {
        let matches = Regex::new(&format!("^(?:{pattern})$")).context("`AllowedPattern`")?.is_match(value);
        let wanted = rule("ConstraintDescription")?.map_or_else(String::new, |words| format!(": must be {words}"));
        ensure!(matches, "{shown} does not match {pattern} (AllowedPattern){wanted}");
    }
    let length = value.chars().count() as f64;
    if body.get("Type").and_then(Value::as_str) == Some("Number") {
        let number: f64 = value.parse().map_err(|_| anyhow!("{shown} is not a number (Type)"))?;
        within(&shown, number, rule("MinValue")?, rule("MaxValue")?, "Value")?;
    }
    within(&format!("the length of {shown}"), length, rule("MinLength")?, rule("MaxLength")?, "Length")
}

fn within(what: &str, number: f64, least: Option<String>, most: Option<String>, kind: &str) -> Result<()> {
    if let Some(least) = least {
        ensure!(number >= least.parse()?, "{what} is less than {least} (Min{kind})");
    }
    if let Some(most) = most {
        ensure!(number <= most.parse()?, "{what} is more than {most} (Max{kind})");
    }
    Ok(())
}
