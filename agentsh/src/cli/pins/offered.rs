//! Pins of interfaces: listed, compared field by field, trusted.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::PinSelection;
use super::difference::unified;
use agentsh_store::{InterfacePin, PinStore, escape};
use agentsh_terminal::output::{Context, Failure, json};

#[derive(Serialize)]
pub(super) struct Listed {
    #[serde(flatten)]
    pin: InterfacePin,
    /// Hash of what was offered instead, if anything.
    refused_hash: Option<String>,
}

impl Listed {
    pub fn row(&self, context: &Context) -> Vec<String> {
        let Self { pin, refused_hash } = self;
        let (hash, refused) = (context.hash(Some(&pin.hash)), context.hash(refused_hash.as_deref()));
        let (kind, at, by) = (pin.kind.as_str(), context.time(&pin.at), super::trusted_by(pin.trusted_by));
        super::row([&pin.server_id.0, &pin.scope, kind, &pin.name, &hash, &at, by, &refused])
    }
}

pub(super) async fn list_interface_pins(
    store: &PinStore,
    which: &PinSelection,
) -> Result<Vec<Listed>, Failure> {
    let (pins, changed) = store.interfaces(which.interface()).await?;
    let same = |pin: &InterfacePin, other: &InterfacePin| {
        (&pin.server_id, &pin.scope, pin.kind, &pin.name, &pin.audience)
            == (&other.server_id, &other.scope, other.kind, &other.name, &other.audience)
    };
    let listed = pins.into_iter().map(|pin| {
        let refused = changed.iter().find(|change| same(&pin, change));
        Listed { refused_hash: refused.map(|change| change.hash.clone()), pin }
    });
    Ok(listed.collect())
}

/// Accepts the definitions that were offered instead. False: there were none.
pub(super) async fn trust(
    store: &PinStore,
    which: &PinSelection,
    is_alone: bool,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    let mut trusted = store.trust_interfaces(which.interface(), None).await?;
    // A session stores a moment after a refusal what was offered.
    let until = Instant::now() + Duration::from_secs(2);
    while trusted.is_empty() && which.is_offered() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
        trusted = store.trust_interfaces(which.interface(), None).await?;
    }
    if trusted.is_empty() && which.is_offered() {
        return Err(Failure::No("none of its tools, prompts or resources was refused".to_owned()));
    }
    if is_alone && !trusted.is_empty() || !which.json {
        print_trusted(&trusted, which, out)?;
    }
    Ok(!trusted.is_empty())
}

fn print_trusted(trusted: &[InterfacePin], which: &PinSelection, out: &mut dyn Write) -> Result<(), Failure> {
    if which.json {
        return json(out, &trusted);
    }
    for pin in trusted {
        let (server, name) = (escape::line(&pin.server_id.0), escape::line(&pin.name));
        writeln!(out, "trusted {server}: {} {name} {}", pin.kind.as_str(), pin.hash)?;
    }
    Ok(())
}

/// Accepts definitions with this hash that were offered, or pinned before a reset; other pins stay.
pub(super) async fn trust_hash(
    store: &PinStore,
    which: &PinSelection,
    asked: &str,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let asked = format!("sha256:{}", asked.strip_prefix("sha256:").unwrap_or(asked).to_ascii_lowercase());
    let (pins, changed) = store.interfaces(which.interface()).await?;
    if let Some(other) = changed.iter().find(|change| change.hash != asked) {
        let (name, hash) = (escape::line(&other.name), &other.hash);
        return Err(Failure::No(format!(
            "'{name}' was offered with the hash {hash}, not with the given one"
        )));
    }
    let mut trusted = store.trust_interfaces(which.interface(), Some(asked.clone())).await?;
    let known: Vec<String> = pins.iter().map(|pin| pin.hash.clone()).collect();
    if trusted.is_empty() {
        trusted = pins.into_iter().filter(|pin| pin.hash == asked).take(1).collect();
    }
    if !trusted.is_empty() {
        return print_trusted(&trusted, which, out);
    }
    let known = match known.as_slice() {
        [] => "no definition of it is recorded".to_owned(),
        known => format!("pinned is {}", known.join(", ")),
    };
    Err(Failure::No(format!("no offer has this hash; {known}")))
}

/// From what was pinned to what was offered instead.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Change {
    server_id: String,
    pub scope: String,
    pub kind: &'static str,
    pub name: String,
    /// The clients to which it was offered so.
    pub audience: String,
    pub pinned_hash: Option<String>,
    pub hash: String,
    pub refused_at: String,
    pub fields: Vec<Field>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Field {
    pub name: String,
    /// Unified, over the value as text.
    pub diff: String,
}

impl Change {
    /// # Errors
    /// When the pins cannot be read.
    pub async fn all(store: &PinStore, which: &PinSelection) -> Result<Vec<Self>, Failure> {
        let (pins, changed) = store.interfaces(which.interface()).await?;
        Ok(Self::between_all(&pins, &changed))
    }

    /// Each change, compared with what is pinned.
    pub fn between_all(pins: &[InterfacePin], changed: &[InterfacePin]) -> Vec<Self> {
        let of = |change: &InterfacePin| {
            let of_entry = |pin: &&InterfacePin| {
                (&pin.server_id, &pin.scope, pin.kind, &pin.name)
                    == (&change.server_id, &change.scope, change.kind, &change.name)
            };
            let own = pins.iter().filter(of_entry).find(|pin| pin.audience == change.audience);
            // Otherwise the pin of what other clients are shown.
            own.or_else(|| pins.iter().find(of_entry))
        };
        changed.iter().map(|change| Self::between(of(change), change)).collect()
    }

    fn between(before: Option<&InterfacePin>, after: &InterfacePin) -> Self {
        let read = |pin: Option<&InterfacePin>| {
            let text = pin.and_then(|pin| pin.definition.as_deref());
            text.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or(Value::Null)
        };
        let (old, new) = (read(before), read(Some(after)));
        let mut fields = Vec::new();
        match (&old, &new) {
            (Value::Object(_), Value::Object(_)) | (Value::Null, Value::Object(_)) => {
                let names = [&old, &new].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys());
                let mut names: Vec<&String> = names.collect();
                names.sort();
                names.dedup();
                for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
                    let diff = unified(name, &display_value(old.get(name)), &display_value(new.get(name)));
                    fields.push(Field { name: name.clone(), diff });
                }
            }
            _ => {
                let diff = unified(&after.name, &display_value(Some(&old)), &display_value(Some(&new)));
                fields.push(Field { name: "text".to_owned(), diff });
            }
        }
        Self {
            server_id: after.server_id.0.clone(),
            scope: after.scope.clone(),
            kind: after.kind.as_str(),
            name: after.name.clone(),
            audience: after.audience.clone(),
            pinned_hash: before.map(|pin| pin.hash.clone()),
            hash: after.hash.clone(),
            refused_at: after.at.clone(),
            fields,
        }
    }

    pub fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (server, name) = (escape::line(&self.server_id), escape::line(&self.name));
        writeln!(out, "{server}: {} {name}", self.kind)?;
        if !self.audience.is_empty() {
            writeln!(out, "  client    {}", escape::line(&self.audience))?;
        }
        writeln!(out, "  pinned    {}", self.pinned_hash.as_deref().unwrap_or("never"))?;
        writeln!(out, "  offered   {}", self.hash)?;
        for Field { name, diff } in &self.fields {
            writeln!(out, "  changed   {}", escape::line(name))?;
            for line in diff.lines() {
                // Invisible characters are what one looks for here.
                writeln!(out, "    {}", escape::line(line))?;
            }
        }
        writeln!(out, "  accept    {}", self.accept())?;
        Ok(())
    }

    /// The command that trusts it.
    pub fn accept(&self) -> String {
        let (server, name) = (escape::line(&self.server_id), escape::line(&self.name));
        let which = if self.name.is_empty() { "--offered".to_owned() } else { format!("--tool '{name}'") };
        format!("agentsh mcp pins trust --server {server} {which}")
    }
}

/// A text as its lines, everything else as JSON over several lines.
fn display_value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => format!("{text}\n"),
        Some(other) => serde_json::to_string_pretty(other).unwrap_or_default() + "\n",
    }
}
