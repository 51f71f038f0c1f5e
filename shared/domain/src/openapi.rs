//! Schemas of ids and times for `openapi.yaml`. Their patterns accept what the parsers accept; a test compares them.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type},
};

use super::{CommentId, GroupId, ListId, NoticeId, Platform, PostId, Timestamp, UserId};

/// A decimal from 1 to 2^64 − 1.
pub const U64: &str = "[1-9][0-9]{0,18}|1[0-7][0-9]{18}|18[0-3][0-9]{17}|184[0-3][0-9]{16}|1844[0-5][0-9]{15}\
    |18446[0-6][0-9]{14}|184467[0-3][0-9]{13}|1844674[0-3][0-9]{12}|184467440[0-6][0-9]{10}|1844674407[0-2][0-9]{9}\
    |18446744073[0-6][0-9]{8}|1844674407370[0-8][0-9]{6}|18446744073709[0-4][0-9]{5}|184467440737095[0-4][0-9]{4}\
    |18446744073709550[0-9]{3}|18446744073709551[0-5][0-9]{2}|1844674407370955160[0-9]|1844674407370955161[0-5]";

/// A decimal from 1 to 2^16 − 1.
pub const U16: &str = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]";

/// A decimal from 1 to 2^32 − 1.
const U32: &str = "[1-9][0-9]{0,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}\
    |429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5]";

/// A decimal from 1 to [`MAX_SEQ`](super::ids::MAX_SEQ).
const SEQ: &str = "[1-9][0-9]{0,14}|[1-8][0-9]{15}|900[0-6][0-9]{12}|90070[0-9]{11}|90071[0-8][0-9]{10}|900719[0-8][0-9]{9}\
    |9007199[01][0-9]{8}|90071992[0-4][0-9]{7}|900719925[0-3][0-9]{6}|9007199254[0-6][0-9]{5}|90071992547[0-3][0-9]{4}\
    |9007199254740[0-8][0-9]{2}|90071992547409[0-8][0-9]|900719925474099[01]";

fn text(description: &str, pattern: String, example: &str) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.description(Some(description)).pattern(Some(pattern)).examples([example])
}

macro_rules! schema {
    ($($of:ty => $schema:expr;)*) => {
        $(
            impl PartialSchema for $of {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $of {}
        )*
    };
}

schema! {
    UserId => text("An unsigned 64-bit number except zero, in decimal.", format!("^({U64})$"), "1042");
    PostId => text("`{author}-{seq}`.", format!("^({U64})-({SEQ})$"), "1042-7");
    CommentId => text("`{author}-{seq}-{number}`.", format!("^({U64})-({SEQ})-({SEQ})$"), "1042-7-3");
    ListId => text("`{user}-{number}`.", format!("^({U64})-({U32})$"), "1-1");
    GroupId => text(
        "The id of a group of the caller's inbox. It is opaque.",
        format!("^(request|(follow|accepted|like|favorite|repost|quote|comment)-(0|{U64}))$"),
        "like-7",
    );
    NoticeId => text("`{platform}-{seq}`.", format!("^({U16})-({SEQ})$"), "1-7");
    Platform => ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("A group of users that receives notices."))
        .minimum(Some(1))
        .maximum(Some(u16::MAX))
        .examples([1]);
    Timestamp => text(
        "UTC, with milliseconds.",
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$".to_owned(),
        "2026-11-20T08:00:00.123Z",
    )
    .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
}
