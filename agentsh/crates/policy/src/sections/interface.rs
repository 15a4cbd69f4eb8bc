//! `interface`: the registry of servers' interfaces, and what happens to a server whose interface differs.

use super::prelude::*;
use super::telemetry::address;

/// The word for the registry of the fleet server that this host is enrolled at.
pub const FLEET: &str = "fleet";
/// The longest wait for a person that may be written, in milliseconds.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;

words! {
    /// The verification by a registry.
    pub enum RegistryMode {
        /// Unknown interfaces are registered, changed ones fail.
        Auto = "auto",
        /// Unknown and changed interfaces fail.
        Verify = "verify",
        /// Everything is registered.
        Register = "register",
        /// A person is asked about what is unknown or changed.
        Approval = "approval",
        Off = "off",
    }
}

words! {
    /// The outcome if a registry does not answer.
    pub enum OnUnreachable {
        Block = "block",
        /// Its last answer counts.
        Cached = "cached",
        /// It passes, with an alert.
        Warn = "warn",
    }
}

word_values!(RegistryMode, OnUnreachable);

impl InterfacePolicy {
    /// Whether any file has this section.
    #[must_use]
    pub fn is_written(&self) -> bool {
        *self != Self::default()
    }
}

table! {
    /// The policy in force, each key with its place if it was written.
    struct InterfacePolicy;

    /// The registry that is asked: `https:`, or `http:` on this machine; or `fleet`, the registry of the fleet server
    /// at which this host is enrolled. No sandbox reaches it.
    pub registry: One<String> = Kind::Text, default: "http://127.0.0.1:8000",
        example: "\"https://registry.example\""
        => read registry;
    /// How the registry is used. `auto`: an unknown interface is registered, a changed one fails. `verify`: both fail.
    /// `register`: everything is registered. `approval`: a person decides about both. `off`: nothing is asked.
    pub mode: One<RegistryMode> = Kind::Word(&["auto", "verify", "register", "approval", "off"]),
        default: "auto",
        example: "verify";
    /// Whether a server whose interface fails is refused. Otherwise it is an alert.
    pub enforce: One<bool> = Kind::Flag, default: "true", example: "false";
    /// What happens when the registry does not answer: the interface fails; it passes if it is the one that was last
    /// verified; or it passes with an alert.
    pub on_unreachable: One<OnUnreachable> = Kind::Word(&["block", "cached", "warn"]), default: "block",
        example: "cached";
    /// How long a person may take in the mode `approval`.
    pub wait: One<u64> = Kind::Duration, default: "30m", example: "10m" => read wait;
    /// Variable of the caller's environment with an operator's token, for a registry that requires one.
    pub token_env: One<String> = Kind::Text, default: "none: the registry must be open",
        example: "REGISTRY_TOKEN"
        => read |reader, here| reader.variable(here, "write `token_env: NAME`");
    /// Name of a server in the registry. One that calls itself something else fails.
    pub names: Named<String> = Kind::Names(&Kind::Text),
        default: "the name that the server gave itself when it was first verified",
        example: "{github: github-mcp-server}";
}

impl Section<Policy> for InterfacePolicy {
    const KEYS: &'static [Key] = keys! {
        /// The registry that records what servers offer. See docs/registry.md.
        "interface": Kind::Map(Self::TABLE), example: "{registry: \"https://registry.example\", mode: verify}";
    };

    in_table! { Policy (interface): read merge describe }

    /// A project that declares servers may not choose their registry.
    fn narrow(&self, _: &mut Policy, narrowing: &mut Narrowing<'_>) {
        narrowing.refuse_all(self.rules(), "only the user chooses the registry");
    }
}

fn registry(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let is_fleet = matches!(&here.node.value, Value::Text(text) if text == FLEET);
    if is_fleet { Some(FLEET.to_owned()) } else { address(reader, here) }
}

fn wait(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let wait = reader.milliseconds(here)?;
    if !(1..=MAX_WAIT_MS).contains(&wait) {
        return reader.fault(here, "a person has between 1 ms and 24 h", None);
    }
    Some(wait)
}
