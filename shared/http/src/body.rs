//! [`Body`]: the fields of a JSON body.

use std::{borrow::Cow, collections::HashMap, str::FromStr};

use serde_json::{Map, Value, value::RawValue};
use tidemark_domain::{ParseIdError, Platform, Seq, Timestamp, UserId, ids::parse_decimal};

use crate::Problem;

/// The maximum number of characters in a title, and of bytes in a text.
const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 64 * 1024;

/// The maximum number of bytes of an application's own data.
const MAX_DATA: usize = 4 * 1024;

/// The fields of a JSON body. `null` counts as absent. A refusal is a 400 with the name of the field.
#[derive(Debug)]
pub struct Body<'a> {
    pub(crate) fields: Map<String, Value>,
    /// The body as it was sent.
    pub(crate) raw: &'a [u8],
}

impl Body<'_> {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn required(&self, name: &str) -> Result<&Value, Problem> {
        self.get(name).ok_or_else(|| Problem::invalid(name, "is required"))
    }

    /// A string of `min` to `max` characters.
    pub(crate) fn optional_text(&self, name: &str, min: usize, max: usize) -> Result<Option<String>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| Problem::invalid(name, "must be a string"))?;
        match (min..=max).contains(&text.chars().count()) {
            true => Ok(Some(text.to_owned())),
            false => Err(Problem::invalid(name, format!("must have {min} to {max} characters"))),
        }
    }

    pub(crate) fn text(&self, name: &str, min: usize, max: usize) -> Result<String, Problem> {
        self.optional_text(name, min, max)?.ok_or_else(|| Problem::invalid(name, "is required"))
    }

    pub(crate) fn optional_id<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.get(name).map(|value| parse_text(name, value)).transpose()
    }

    /// A JSON object of at most 4 KiB, as the text that was sent.
    pub(crate) fn optional_object(&self, name: &str) -> Result<Option<String>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        if !value.is_object() {
            return Err(Problem::invalid(name, "must be a JSON object"));
        }
        // The text of the last field with this name, which is also the one that `fields` has.
        let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(self.raw).unwrap_or_default();
        let text = fields.get(name).map_or_else(|| value.to_string(), |raw| raw.get().to_owned());
        if text.len() > MAX_DATA {
            return Err(Problem::invalid(name, format!("must have at most {MAX_DATA} bytes")));
        }
        Ok(Some(text))
    }

    pub(crate) fn optional_integer(&self, name: &str, least: i8, most: i8) -> Result<Option<i8>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number =
            value.as_f64().filter(|number| number.fract() == 0.0).filter(|number| (least.into()..=most.into()).contains(number));
        number
            .map(|number| Some(number as i8))
            .ok_or_else(|| Problem::invalid(name, format!("must be an integer from {least} to {most}")))
    }

    /// `title`, 1 to 200 characters, and the optional `body`, at most 64 KiB.
    pub(crate) fn title_and_text(&self) -> Result<(String, Option<String>), Problem> {
        let title = self.text("title", 1, MAX_TITLE)?;
        let text = self.optional_text("body", 0, MAX_TEXT)?;
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
            return Err(Problem::invalid("body", format!("must have at most {MAX_TEXT} bytes")));
        }
        Ok((title, text))
    }

    /// A boolean; false if absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| Problem::invalid(name, "must be true or false"))
    }

    pub(crate) fn required_flag(&self, name: &str) -> Result<bool, Problem> {
        self.required(name)?.as_bool().ok_or_else(|| Problem::invalid(name, "must be true or false"))
    }

    /// A platform, as a number or a decimal string.
    pub(crate) fn platform(&self, name: &str) -> Result<Platform, Problem> {
        parse_platform(name, self.required(name)?)
    }

    /// A list of 1 to `max` platforms, each as a number or a decimal string.
    pub(crate) fn platforms(&self, name: &str, max: usize) -> Result<Vec<Platform>, Problem> {
        self.list(name, max, parse_platform)
    }

    pub(crate) fn user(&self, name: &str) -> Result<UserId, Problem> {
        parse_text(name, self.required(name)?)
    }

    /// A sequence number, as a number or a decimal string.
    pub(crate) fn seq(&self, name: &str) -> Result<Seq, Problem> {
        let value = self.required(name)?;
        let seq = integer(value).or_else(|| value.as_str().and_then(parse_decimal));
        seq.ok_or_else(|| Problem::invalid(name, "must be a sequence number"))
    }

    /// A time, rounded to the nearest [`Timestamp`].
    pub(crate) fn optional_time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let time = value.as_str().and_then(Timestamp::parse_nearest);
        time.map(Some).ok_or_else(|| Problem::invalid(name, "must be an RFC 3339 time"))
    }

    pub(crate) fn ids<T: FromStr<Err: std::fmt::Display>>(&self, name: &str, max: usize) -> Result<Vec<T>, Problem> {
        self.list(name, max, parse_text)
    }

    fn list<T>(&self, name: &str, max: usize, parse: fn(&str, &Value) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
        let items = self.required(name)?.as_array().filter(|items| (1..=max).contains(&items.len()));
        let items = items.ok_or_else(|| Problem::invalid(name, format!("must be a list of 1 to {max} ids")))?;
        items.iter().enumerate().map(|(index, item)| parse(&format!("{name}[{index}]"), item)).collect()
    }
}

/// A number without a fraction, in any notation: `7.0` is `7`. Above 2^53 only digits are exact.
fn integer(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(whole).map(|number| number as u64))
}

pub(crate) fn parse_platform(name: &str, value: &Value) -> Result<Platform, Problem> {
    let number = integer(value).map(|number| number.to_string());
    let text = number.as_deref().or_else(|| value.as_str()).ok_or_else(|| Problem::invalid(name, "must be a platform"))?;
    text.parse().map_err(|error: ParseIdError| Problem::invalid(name, error.to_string()))
}

fn parse_text<T: FromStr<Err: std::fmt::Display>>(name: &str, value: &Value) -> Result<T, Problem> {
    let text = value.as_str().ok_or_else(|| Problem::invalid(name, "must be a string"))?;
    text.parse().map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
}
