//! The Redis function library: all files of `lua/`. Its name contains a hash of its content, so two versions can serve
//! at the same time during a deployment.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Deliver,
    Retract,
    Begin,
    OpenGate,
    Seed,
    Finish,
    Drop,
    Touch,
    Progress,
    Relate,
    Fill,
    Store,
    Replace,
    React,
    Open,
    Lease,
    Remember,
    Count,
    Outdate,
    Spend,
    Rank,
    Moved,
    Settle,
    Watch,
    Unwatch,
    Notify,
    Claim,
    Told,
}

const CODEC: &str = include_str!("lua/codec.lua");

impl Function {
    const ALL: [Self; 28] = [
        Self::Deliver,
        Self::Retract,
        Self::Begin,
        Self::OpenGate,
        Self::Seed,
        Self::Finish,
        Self::Drop,
        Self::Touch,
        Self::Progress,
        Self::Relate,
        Self::Fill,
        Self::Store,
        Self::Replace,
        Self::React,
        Self::Open,
        Self::Lease,
        Self::Remember,
        Self::Count,
        Self::Outdate,
        Self::Spend,
        Self::Rank,
        Self::Moved,
        Self::Settle,
        Self::Watch,
        Self::Unwatch,
        Self::Notify,
        Self::Claim,
        Self::Told,
    ];

    /// The name of the function in its file, and the file's content.
    const fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::Deliver => ("deliver", include_str!("lua/deliver.lua")),
            Self::Retract => ("retract", include_str!("lua/retract.lua")),
            Self::Begin => ("begin", include_str!("lua/begin.lua")),
            Self::OpenGate => ("open_gate", include_str!("lua/open_gate.lua")),
            Self::Seed => ("seed", include_str!("lua/seed.lua")),
            Self::Finish => ("finish", include_str!("lua/finish.lua")),
            Self::Drop => ("drop", include_str!("lua/drop.lua")),
            Self::Touch => ("touch", include_str!("lua/touch.lua")),
            Self::Progress => ("progress", include_str!("lua/progress.lua")),
            Self::Relate => ("relate", include_str!("lua/relate.lua")),
            Self::Fill => ("fill", include_str!("lua/fill.lua")),
            Self::Store => ("store", include_str!("lua/store.lua")),
            Self::Replace => ("replace", include_str!("lua/replace.lua")),
            Self::React => ("react", include_str!("lua/react.lua")),
            Self::Open => ("open", include_str!("lua/open.lua")),
            Self::Lease => ("lease", include_str!("lua/lease.lua")),
            Self::Remember => ("remember", include_str!("lua/remember.lua")),
            Self::Count => ("count", include_str!("lua/count.lua")),
            Self::Outdate => ("outdate", include_str!("lua/outdate.lua")),
            Self::Spend => ("spend", include_str!("lua/spend.lua")),
            Self::Rank => ("rank", include_str!("lua/rank.lua")),
            Self::Moved => ("moved", include_str!("lua/moved.lua")),
            Self::Settle => ("settle", include_str!("lua/settle.lua")),
            Self::Watch => ("watch", include_str!("lua/watch.lua")),
            Self::Unwatch => ("unwatch", include_str!("lua/unwatch.lua")),
            Self::Notify => ("notify", include_str!("lua/notify.lua")),
            Self::Claim => ("claim", include_str!("lua/claim.lua")),
            Self::Told => ("told", include_str!("lua/told.lua")),
        }
    }

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
    let body = std::iter::once(CODEC).chain(sources.iter().map(|(_, code)| *code)).collect::<Vec<_>>().join("\n");
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
