//! `FilterCriteria` patterns: the part of EventBridge's pattern language that filters of streams use.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

const RULES: [&str; 5] = ["prefix", "suffix", "exists", "anything-but", "equals-ignore-case"];

/// Fails on a pattern that [`matches()`] does not support.
pub(crate) fn check(pattern: &Value) -> Result<()> {
    match pattern {
        Value::Object(fields) => fields.values().try_for_each(check),
        Value::Array(rules) => rules.iter().try_for_each(|rule| match rule {
            Value::Object(rule) => {
                let is_known = |name: &String| RULES.contains(&name.as_str());
                ensure!(
                    rule.len() == 1 && rule.keys().all(is_known),
                    "the local stack does not support the filter rule {rule:?}"
                );
                Ok(())
            }
            Value::Array(_) => bail!("a filter rule cannot be a list"),
            _ => Ok(()),
        }),
        other => bail!("a value of a filter pattern must be a list of rules, not {other}"),
    }
}

/// Returns true if the event has all fields of the pattern and each field matches one of its rules.
pub(crate) fn matches(pattern: &Value, event: Option<&Value>) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(name, inner)| matches(inner, event.and_then(|event| event.get(name)))),
        Value::Array(rules) => rules.iter().any(|rule| rule_matches(rule, event)),
        _ => false,
    }
}

fn rule_matches(rule: &Value, value: Option<&Value>) -> bool {
    let Value::Object(rule) = rule else { return value == Some(rule) };
    let Some((name, operand)) = rule.iter().next() else { return false };
    let text = value.and_then(Value::as_str);
    let both = |test: fn(&str, &str) -> bool| text.zip(operand.as_str()).is_some_and(|(text, operand)| test(text, operand));
    match name.as_str() {
        "exists" => operand.as_bool() == Some(value.is_some()),
        "prefix" => both(|text, prefix| text.starts_with(prefix)),
        "suffix" => both(|text, suffix| text.ends_with(suffix)),
        "equals-ignore-case" => both(|text, other| text.eq_ignore_ascii_case(other)),
        "anything-but" => value.is_some_and(|value| match operand {
            Value::Array(excluded) => !excluded.contains(value),
            excluded => excluded != value,
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_matches_if_each_field_matches_a_rule() {
        let event = json!({ "eventName": "INSERT", "dynamodb": { "Keys": { "pk": { "S": "user#7" } } } });
        let passes = |pattern: Value| matches(&pattern, Some(&event));
        assert!(passes(json!({ "eventName": ["MODIFY", "INSERT"] })));
        assert!(!passes(json!({ "eventName": ["REMOVE"] })));
        assert!(passes(json!({ "dynamodb": { "Keys": { "pk": { "S": [{ "prefix": "user#" }] } } } })));
        assert!(!passes(json!({ "dynamodb": { "Keys": { "pk": { "S": [{ "prefix": "post#" }] } } } })));
        assert!(passes(json!({ "dynamodb": { "NewImage": [{ "exists": false }] } })));
        assert!(passes(json!({ "eventName": [{ "anything-but": ["REMOVE"] }] })));
    }

    #[test]
    fn an_unknown_rule_is_an_error_when_the_template_is_read() {
        assert!(check(&json!({ "a": [{ "numeric": [">", 1] }] })).is_err());
        assert!(check(&json!({ "a": "plain" })).is_err());
        assert!(check(&json!({ "a": { "b": ["x", { "exists": true }] } })).is_ok());
    }
}
