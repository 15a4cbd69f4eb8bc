//! The words of events that are closed sets. On disk and in `--json` they are what they are called here.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$note])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What became of something that was judged.
    Action { Allow = "allow", Alert = "alert", Rewrite = "rewrite", Ask = "ask", Block = "block", }
}

words! {
    /// What became of a login to a server.
    LoginWord {
        LoggedIn = "logged-in", LoggedOut = "logged-out", Renewed = "renewed",
        /// The user has to log in, or for more.
        Wanted = "wanted",
        Refused = "refused",
    }
}

words! {
    Severity { Low = "low", Medium = "medium", High = "high", Critical = "critical", }
}

words! {
    /// Who warns.
    AdvisorySource {
        Dependency = "dependency",
        Vendor = "vendor",
        Community = "community",
        Availability = "availability",
    }
}

words! {
    /// How a signed policy stands.
    BundleState {
        InForce = "in-force",
        /// Its time is over; it stays in force until another one can be had.
        Expired = "expired",
        /// Another one was refused; this one stays in force.
        Refused = "refused",
    }
}

words! {
    /// What the kernel gave of a layer that was asked for.
    LayerState { Enforced = "enforced", Degraded = "degraded", Absent = "absent", }
}

words! {
    /// Why a process ended.
    ExitCause { Exited = "exited", Killed = "killed", MemoryLimit = "memory-limit", }
}

words! {
    ToolStatus { New = "new", Unchanged = "unchanged", Changed = "changed", }
}

words! {
    /// Who sent a message.
    Sender { Client = "client", Server = "server", }
}

words! {
    /// What auditors said of a call.
    AuditVerdict {
        Clean = "clean",
        Flagged = "flagged",
        TimedOut = "timed-out",
        Failed = "failed",
        /// Nobody waited for the answer.
        Cancelled = "cancelled",
    }
}

words! {
    /// What became of a question to a person.
    ApprovalWord {
        Approved = "approved",
        Denied = "denied",
        TimedOut = "timed-out",
        /// Who called went away first.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// What came of asking a registry about what a server offers.
    InterfaceWord {
        Same = "same",
        Registered = "registered",
        Approved = "approved",
        /// It could not be asked, and this is what it vouched for last.
        Cached = "cached",
        Changed = "changed",
        Unknown = "unknown",
        Rejected = "rejected",
        TimedOut = "timed-out",
        Unreachable = "unreachable",
        /// Its answer is not about what was asked, or what the server offers cannot be asked about.
        Invalid = "invalid",
        /// A person is asked.
        Waiting = "waiting",
    }
}

words! {
    /// For how long a yes holds.
    ApprovalScope { Once = "once", Session = "session", Always = "always", }
}

words! {
    ConnectionState { Open = "open", Closed = "closed", Failed = "failed", }
}

words! {
    /// How a server is reached.
    ServerType { Stdio = "stdio", Http = "http", }
}

words! {
    /// Why results are not remembered, or not whole.
    ForgotReason {
        MemoryFull = "memory-full",
        TooLong = "too-long",
        StoreDamaged = "store-damaged",
        StoreRefused = "store-refused",
    }
}

words! {
    /// What happened to a guarded file.
    GuardChange {
        Replaced = "replaced",
        PutBack = "put-back",
        SetAside = "set-aside",
        NotPutBack = "not-put-back",
        NewRepository = "new-repository",
        Instructions = "instructions",
        Refused = "refused",
        Written = "written",
        Ended = "ended",
    }
}

words! {
    /// What a policy says of a path.
    FileWord { Read = "read", Write = "write", Deny = "deny", Unmask = "unmask", }
}

words! {
    /// In whose form a model is spoken to.
    ModelProvider { Anthropic = "anthropic", OpenAiChat = "openai-chat", OpenAiResponses = "openai-responses", Google = "google", Ollama = "ollama", }
}

words! {
    /// Why an answer of a model was replaced.
    ReplacedReason { SystemPromptLeak = "system_prompt_leak", }
}
