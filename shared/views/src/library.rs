//! The Redis function library: all files of `lua/` as one chunk, `codec` first. A local of one file is visible in the
//! files after it, so each name is used once. The library's name contains a hash of its content, so two releases can
//! serve at the same time. No code deletes the library of an earlier one.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

macro_rules! functions {
    ($($function:ident = $name:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function {
            $($function),*
        }

        impl Function {
            const ALL: &[Self] = &[$(Self::$function),*];

            /// The name of the function in its file, and the file's content.
            const fn source(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$function => ($name, include_str!(concat!("lua/", $name, ".lua")))),*
                }
            }
        }
    };
}

functions! {
    Deliver = "deliver"
    Retract = "retract"
    Begin = "begin"
    OpenGate = "open_gate"
    Seed = "seed"
    Finish = "finish"
    Drop = "drop"
    Touch = "touch"
    Progress = "progress"
    Relate = "relate"
    Fill = "fill"
    Store = "store"
    Replace = "replace"
    React = "react"
    Open = "open"
    Lease = "lease"
    Remember = "remember"
    Count = "count"
    Outdate = "outdate"
    Spend = "spend"
    Rank = "rank"
    Beside = "beside"
    Moved = "moved"
    Settle = "settle"
    Watch = "watch"
    Unwatch = "unwatch"
    Notify = "notify"
    Claim = "claim"
    Told = "told"
    NamePlatforms = "name_platforms"
    ForgetNotices = "forget_notices"
    ToldNotices = "told_notices"
}

impl Function {
    /// The name for logs and errors.
    pub(crate) fn source_name(self) -> &'static str {
        self.source().0
    }

    /// The name for FCALL.
    pub(crate) fn name(self) -> String {
        format!("{}_{}", self.source().0, LIBRARY.version)
    }
}

pub(crate) struct Library {
    version: String,
    /// The source code for FUNCTION LOAD, with its shebang.
    pub(crate) code: String,
}

pub(crate) static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let sources: Vec<(&str, &str)> = Function::ALL.iter().map(|function| function.source()).collect();
    let body = std::iter::once(include_str!("lua/codec.lua"))
        .chain(sources.iter().map(|(_, code)| *code))
        .collect::<Vec<_>>()
        .join("\n");
    let version: String = Sha256::digest(&body).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    // The connection appends its epoch to the arguments of every call.
    let register = |(name, _): &(&str, &str)| {
        let call = format!("function(keys, argv) return {name}(keys, argv, table.remove(argv)) end");
        format!("redis.register_function('{name}_{version}', {call})\n")
    };
    let registrations: String = sources.iter().map(register).collect();
    let code = format!("#!lua name=tidemark_{version}\n{body}\n{registrations}");
    Library { version, code }
});
