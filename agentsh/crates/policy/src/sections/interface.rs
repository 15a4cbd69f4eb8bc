//! `interface`: the registry of servers' interfaces, and what happens to a server whose interface differs.

use std::collections::BTreeMap;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, merge_key};
use crate::sections::Policy;
use crate::sections::credentials::is_variable;
use crate::sections::telemetry::address;

/// The word for the registry of the fleet server that this host is enrolled at.
pub const FLEET: &str = "fleet";
/// The longest wait for a person that may be written, in milliseconds.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;

/// The verification by a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryMode {
    /// Unknown interfaces are registered, changed ones fail.
    Auto,
    /// Unknown and changed interfaces fail.
    Verify,
    /// Everything is registered.
    Register,
    /// A person is asked about what is unknown or changed.
    Approval,
    Off,
}

impl RegistryMode {
    pub const WORDS: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("verify", Self::Verify),
        ("register", Self::Register),
        ("approval", Self::Approval),
        ("off", Self::Off),
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, mode)| *mode == self).map_or("", |(word, _)| word)
    }
}

/// The outcome if a registry does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnreachable {
    Block,
    /// Its last answer counts.
    Cached,
    /// It passes, with an alert.
    Warn,
}

impl OnUnreachable {
    const WORDS: [(&'static str, Self); 3] =
        [("block", Self::Block), ("cached", Self::Cached), ("warn", Self::Warn)];
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
        let fields = fields.find("interface").and_then(|here| reader.map(&here, INTERFACE));
        let Some(fields) = fields else { return Self::default() };
        let registry = fields.find("registry").and_then(|here| {
            let is_fleet = matches!(&here.node.value, crate::yaml::Value::Text(text) if text == FLEET);
            let url = if is_fleet { FLEET.to_owned() } else { address(reader, &here)? };
            Some(reader.ruled(&here, url))
        });
        let token_env = fields.find("token_env").and_then(|here| {
            let name = reader.text(&here)?;
            if !is_variable(&name) {
                return reader.fault(&here, "this is not a variable name", "write `token_env: NAME`");
            }
            Some(reader.ruled(&here, name))
        });
        let wait = fields.find("wait");
        let wait_ms = reader.duration(fields.find("wait"));
        if let (Some(here), Some(ms)) = (&wait, &wait_ms)
            && !(1..=MAX_WAIT_MS).contains(&ms.value)
        {
            reader.problem(here, "a person has between 1 ms and 24 h", None);
        }
        let names = fields.find("names").and_then(|here| reader.names(&here));
        let mut named = BTreeMap::new();
        for (id, here) in names.iter().flat_map(Fields::all) {
            if let Some(name) = reader.text(&here) {
                named.insert(id.to_owned(), reader.ruled(&here, name));
            }
        }
        Self(InterfacePolicy {
            registry,
            mode: reader.word(fields.find("mode"), &RegistryMode::WORDS),
            enforce: reader.boolean(fields.find("enforce")),
            on_unreachable: reader.word(fields.find("on_unreachable"), &OnUnreachable::WORDS),
            wait_ms,
            token_env,
            names: named,
        })
    }

    fn merge(&self, below: &mut Policy) {
        let below = &mut below.interface;
        merge_key(&self.0.registry, &mut below.registry);
        merge_key(&self.0.mode, &mut below.mode);
        merge_key(&self.0.enforce, &mut below.enforce);
        merge_key(&self.0.on_unreachable, &mut below.on_unreachable);
        merge_key(&self.0.wait_ms, &mut below.wait_ms);
        merge_key(&self.0.token_env, &mut below.token_env);
        below.names.extend(self.0.names.iter().map(|(id, name)| (id.clone(), name.clone())));
    }

    /// A project that declares servers may not choose their registry.
    fn narrow(&self, _: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let InterfacePolicy { registry, mode, enforce, on_unreachable, wait_ms, token_env, names } = &self.0;
        let written = [
            registry.as_ref().map(|value| &value.rule),
            mode.as_ref().map(|value| &value.rule),
            enforce.as_ref().map(|value| &value.rule),
            on_unreachable.as_ref().map(|value| &value.rule),
            wait_ms.as_ref().map(|value| &value.rule),
            token_env.as_ref().map(|value| &value.rule),
        ];
        for rule in written.into_iter().flatten().chain(names.values().map(|name| &name.rule)) {
            narrowing.refuse(rule, "only the user chooses the registry");
        }
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        let interface = &policy.interface;
        if let Some(url) = &interface.registry {
            lines.add("interface.registry", url.value.clone(), &url.rule);
        }
        if let Some(mode) = &interface.mode {
            lines.add("interface.mode", mode.value.as_str(), &mode.rule);
        }
        if let Some(flag) = &interface.enforce {
            lines.add("interface.enforce", flag.value.to_string(), &flag.rule);
        }
        if let Some(word) = &interface.on_unreachable {
            let shown = OnUnreachable::WORDS.iter().find(|(_, value)| *value == word.value);
            lines.add("interface.on_unreachable", shown.map_or("", |(word, _)| word), &word.rule);
        }
        if let Some(wait) = &interface.wait_ms {
            lines.add("interface.wait", format!("{} ms", wait.value), &wait.rule);
        }
        if let Some(name) = &interface.token_env {
            lines.add("interface.token_env", name.value.clone(), &name.rule);
        }
        for (id, name) in &interface.names {
            lines.add(&format!("interface.names.{id}"), name.value.clone(), &name.rule);
        }
    }
}
