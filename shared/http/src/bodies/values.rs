//! Values that several bodies have.

use serde::Serialize;
use serde_json::value::RawValue;
use tidemark_domain::openapi::{U16, U64};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{KnownFormat, ObjectBuilder, OneOfBuilder, RefOr, Schema, SchemaFormat, Type},
};

/// The start of the next page, opaque. Null only at the end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]+$", examples("AgAAAAAAAAAH"))]
pub struct NextCursor(pub(crate) Option<String>);

/// The state of the list at this page, opaque. `?since=` with it lists what has entered the list since. Only a first
/// page has it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9_-]+$", examples("AgAAAAAAAAAH"))]
pub struct FirstCursor(pub(crate) String);

/// A stored JSON text as it was given.
pub fn raw(text: Option<String>) -> Option<Box<RawValue>> {
    text.and_then(|text| RawValue::from_string(text).ok())
}

/// The schema of a platform in a request.
pub(super) struct PlatformGiven;

impl PartialSchema for PlatformGiven {
    fn schema() -> RefOr<Schema> {
        number_or_decimal("A platform, as a number or a decimal string.", 1, u16::MAX.into(), U16)
    }
}

impl ToSchema for PlatformGiven {}

/// The schema of a sequence number in a request.
pub(super) struct Through;

impl PartialSchema for Through {
    fn schema() -> RefOr<Schema> {
        let description = "A sequence number, as a number or a decimal string. A number above the last one means the last \
            one. 0 covers nothing.";
        number_or_decimal(description, 0, u64::MAX, &format!("0|{U64}"))
    }
}

impl ToSchema for Through {}

fn number_or_decimal(description: &str, least: u64, most: u64, pattern: &str) -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(Some(most));
    let number = number.format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)));
    let decimal = ObjectBuilder::new().schema_type(Type::String).pattern(Some(format!("^({pattern})$")));
    OneOfBuilder::new().item(number).item(decimal).description(Some(description)).examples([most.min(7)]).into()
}
