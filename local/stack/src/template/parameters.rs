//! Values of the template's parameters, under the rules that CloudFormation checks.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use regex_lite::Regex;
use serde_json::Value;

use super::{
    Bindings,
    values::{optional, scalar},
};

/// The given values, or the defaults. Lists become lists.
pub(super) fn read(declared: &Value, bindings: &Bindings) -> Result<BTreeMap<String, Value>> {
    if let Some(unknown) = bindings.parameters.keys().find(|name| declared[*name].is_null()) {
        let names: Vec<&str> = declared.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        bail!("the template has no parameter `{unknown}`; its parameters are {}", names.join(", "));
    }
    let mut out = BTreeMap::new();
    for (name, body) in declared.as_object().into_iter().flatten() {
        let value = match bindings.parameters.get(name) {
            Some(given) => given.clone(),
            None => {
                optional(body, "Default")?.with_context(|| format!("parameter `{name}` has neither a value nor a default"))?
            }
        };
        let list = body["Type"].as_str().is_some_and(|kind| kind == "CommaDelimitedList" || kind.starts_with("List<"));
        let items: Vec<&str> = if list { value.split(',').map(str::trim).collect() } else { vec![&value] };
        for item in &items {
            check(body, item).with_context(|| format!("parameter `{name}`"))?;
        }
        let value = match list {
            true if value.is_empty() => Value::Array(Vec::new()),
            true => items.into_iter().collect(),
            false => Value::String(value),
        };
        out.insert(name.clone(), value);
    }
    Ok(out)
}

/// Fails with the value and the rule that it breaks. A secret value is not shown.
fn check(body: &Value, value: &str) -> Result<()> {
    let shown = if body["NoEcho"].is_null() { format!("`{value}`") } else { "the value".to_owned() };
    if let Some(allowed) = body["AllowedValues"].as_array() {
        let allowed: Vec<String> = allowed.iter().map(scalar).collect::<Result<_>>()?;
        ensure!(allowed.iter().any(|one| one == value), "{shown} is not one of {} (AllowedValues)", allowed.join(", "));
    }
    if let Some(pattern) = optional(body, "AllowedPattern")? {
        let matches = Regex::new(&format!("^(?:{pattern})$")).context("`AllowedPattern`")?.is_match(value);
        let wanted = optional(body, "ConstraintDescription")?.map_or_else(String::new, |words| format!(": must be {words}"));
        ensure!(matches, "{shown} does not match {pattern} (AllowedPattern){wanted}");
    }
    if body["Type"] == "Number" {
        let number = value.parse().with_context(|| format!("{shown} is not a number (Type)"))?;
        within(body, &shown, number, "Value")?;
    }
    within(body, &format!("the length of {shown}"), value.chars().count() as f64, "Length")
}

/// Checks a value or a length against `MinValue` and `MaxValue`, or `MinLength` and `MaxLength`.
fn within(body: &Value, what: &str, number: f64, kind: &str) -> Result<()> {
    if let Some(least) = optional(body, &format!("Min{kind}"))? {
        ensure!(number >= least.parse()?, "{what} is less than {least} (Min{kind})");
    }
    if let Some(most) = optional(body, &format!("Max{kind}"))? {
        ensure!(number <= most.parse()?, "{what} is more than {most} (Max{kind})");
    }
    Ok(())
}
