//! `interface`: the registry of servers' interfaces, and what happens to a server whose interface differs.

use std::collections::BTreeMap;

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, merge_keys, rules_of};
use crate::sections::Policy;
use crate::sections::telemetry::address;

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

/// The policy in force, each key with its place if it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfacePolicy {
    pub registry: Option<Ruled<String>>,
    pub mode: Option<Ruled<RegistryMode>>,
    pub enforce: Option<Ruled<bool>>,
    pub on_unreachable: Option<Ruled<OnUnreachable>>,
    /// How long a person may take, in milliseconds.
    pub wait_ms: Option<Ruled<u64>>,
    /// The variable of the caller's environment with the token of an operator.
    pub token_env: Option<Ruled<String>>,
    /// Under which name a server is in the registry, by its id.
    pub names: BTreeMap<String, Ruled<String>>,
}

impl InterfacePolicy {
    /// Whether any file has this section.
    #[must_use]
    pub fn is_written(&self) -> bool {
        *self != Self::default()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface(InterfacePolicy);

const INTERFACE: &[Key] = keys! {
    /// The registry that is asked: `https:`, or `http:` on this machine; or `fleet`, the registry of the fleet server
    /// at which this host is enrolled. No sandbox reaches it.
    "registry": Kind::Text, default: "http://127.0.0.1:8000", example: "\"https://registry.example\"";
    /// How the registry is used. `auto`: an unknown interface is registered, a changed one fails. `verify`: both fail.
    /// `register`: everything is registered. `approval`: a person decides about both. `off`: nothing is asked.
    "mode": Kind::Word(&["auto", "verify", "register", "approval", "off"]), default: "auto",
        example: "verify";
    /// Whether a server whose interface fails is refused. Otherwise it is an alert.
    "enforce": Kind::Flag, default: "true", example: "false";
    /// What happens when the registry does not answer: the interface fails; it passes if it is the one that was last
    /// verified; or it passes with an alert.
    "on_unreachable": Kind::Word(&["block", "cached", "warn"]), default: "block", example: "cached";
    /// How long a person may take in the mode `approval`.
    "wait": Kind::Duration, default: "30m", example: "10m";
    /// Variable of the caller's environment with an operator's token, for a registry that requires one.
    "token_env": Kind::Text, default: "none: the registry must be open", example: "REGISTRY_TOKEN";
    /// Name of a server in the registry. One that calls itself something else fails.
    "names": Kind::Names(&Kind::Text),
        default: "the name that the server gave itself when it was first verified",
        example: "{github: github-mcp-server}";
};

impl Section<Policy> for Interface {
    const KEYS: &'static [Key] = keys! {
        /// The registry that records what servers offer. See docs/registry.md.
        "interface": Kind::Map(INTERFACE), example: "{registry: \"https://registry.example\", mode: verify}";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "interface", INTERFACE) else { return Self::default() };
        let registry = reader.one(fields.find("registry"), |reader, here| {
            let is_fleet = matches!(&here.node.value, crate::yaml::Value::Text(text) if text == FLEET);
            if is_fleet { Some(FLEET.to_owned()) } else { address(reader, here) }
        });
        let token_env = reader
            .one(fields.find("token_env"), |reader, here| reader.variable(here, "write `token_env: NAME`"));
        let wait = fields.find("wait");
        let wait_ms = reader.duration(fields.find("wait"));
        if let (Some(here), Some(ms)) = (&wait, &wait_ms)
            && !(1..=MAX_WAIT_MS).contains(&ms.value)
        {
            reader.problem(here, "a person has between 1 ms and 24 h", None);
        }
        let names = reader.named(fields.find("names"), |reader, here| reader.one(Some(here), Reader::text));
        Self(InterfacePolicy {
            registry,
            mode: reader.word(fields.find("mode"), RegistryMode::WORDS),
            enforce: reader.boolean(fields.find("enforce")),
            on_unreachable: reader.word(fields.find("on_unreachable"), OnUnreachable::WORDS),
            wait_ms,
            token_env,
            names,
        })
    }

    fn merge(&self, below: &mut Policy) {
        let below = &mut below.interface;
        merge_keys!(self.0 => below; registry, mode, enforce, on_unreachable, wait_ms, token_env);
        below.names.extend(self.0.names.iter().map(|(id, name)| (id.clone(), name.clone())));
    }

    /// A project that declares servers may not choose their registry.
    fn narrow(&self, _: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let written = rules_of!(self.0; registry, mode, enforce, on_unreachable, wait_ms, token_env);
        let names = self.0.names.values().map(|name| Some(&name.rule));
        narrowing.refuse_all(written.into_iter().chain(names), "only the user chooses the registry");
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        let interface = &policy.interface;
        lines.list("interface.registry", &interface.registry, Clone::clone);
        lines.list("interface.mode", &interface.mode, |mode| mode.as_str());
        lines.list("interface.enforce", &interface.enforce, ToString::to_string);
        lines.list("interface.on_unreachable", &interface.on_unreachable, |word| word.as_str());
        lines.list("interface.wait", &interface.wait_ms, |wait| format!("{wait} ms"));
        lines.list("interface.token_env", &interface.token_env, Clone::clone);
        for (id, name) in &interface.names {
            lines.add(&format!("interface.names.{id}"), name.value.clone(), &name.rule);
        }
    }
}
