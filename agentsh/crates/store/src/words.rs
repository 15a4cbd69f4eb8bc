//! Closed sets of words in events. Their names here are those on disk and in `--json`.

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
            pub const WORDS: &[&str] = &[$($word,)+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one with this name.
            #[must_use]
            pub fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
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
    /// The outcome of a decision.
    Action { Allow = "allow", Alert = "alert", Rewrite = "rewrite", Ask = "ask", Block = "block", }
}

words! {
    /// The result of a login to a server.
    LoginWord {
        LoggedIn = "logged-in", LoggedOut = "logged-out", Renewed = "renewed",
        /// The user has to log in, or to request more rights.
        Wanted = "wanted",
        Refused = "refused",
    }
}

words! {
    Severity { Low = "low", Medium = "medium", High = "high", Critical = "critical", }
}

words! {
    /// The kind of source.
    AdvisorySource {
        Dependency = "dependency",
        Vendor = "vendor",
        Community = "community",
        Availability = "availability",
    }
}

words! {
    /// The state of a signed policy.
    BundleState {
        InForce = "in-force",
        /// It has expired; it stays in force until a new one is fetched.
        Expired = "expired",
        /// Another bundle was refused; this one stays in force.
        Refused = "refused",
    }
}

words! {
    /// How far a requested layer is enforced.
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
    /// The auditors' verdict about a call.
    AuditVerdict {
        Clean = "clean",
        Flagged = "flagged",
        TimedOut = "timed-out",
        Failed = "failed",
        /// The caller no longer waited for the answer.
        Cancelled = "cancelled",
    }
}

words! {
    /// The answer to a question.
    ApprovalWord {
        Approved = "approved",
        Denied = "denied",
        TimedOut = "timed-out",
        /// The caller went away before an answer.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// The result of a registry query about a server's interface.
    InterfaceWord {
        Same = "same",
        Registered = "registered",
        Approved = "approved",
        /// It could not be reached, and this is its last verified interface.
        Cached = "cached",
        Changed = "changed",
        Unknown = "unknown",
        Rejected = "rejected",
        TimedOut = "timed-out",
        Unreachable = "unreachable",
        /// Its answer does not fit the query, or the interface cannot be hashed.
        Invalid = "invalid",
        /// A person is asked.
        Waiting = "waiting",
    }
}

words! {
    /// How long an approval applies.
    ApprovalScope { Once = "once", Session = "session", Always = "always", }
}

words! {
    ConnectionState { Open = "open", Closed = "closed", Failed = "failed", }
}

words! {
    /// Who trusted a pin.
    TrustedBy { FirstUse = "first-use", User = "user", }
}

words! {
    /// The kinds of entries that a server offers.
    Offered {
        Tool = "tool",
        Prompt = "prompt",
        Resource = "resource",
        Template = "template",
        /// The text for the model that comes with the handshake; it has no name.
        Instructions = "instructions",
    }
}

words! {
    /// How a server is reached.
    ServerType { Stdio = "stdio", Http = "http", }
}

words! {
    /// Why results are not, or not completely, remembered.
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
    /// The rule for a path.
    FileWord { Read = "read", Write = "write", Deny = "deny", Unmask = "unmask", }
}

words! {
    /// The API format of a model.
    ModelProvider { Anthropic = "anthropic", OpenAiChat = "openai-chat", OpenAiResponses = "openai-responses", Google = "google", Ollama = "ollama", }
}

words! {
    /// Why an answer of a model was replaced.
    ReplacedReason { SystemPromptLeak = "system_prompt_leak", }
}
