//! `inspect`: one table with the reaction to each finding in each kind of text. Every line sets another key, as if the
//! file had written that key first; a line for the key itself overrides it.

use crate::diagnostic::{TextPosition, one_of};
use crate::keys::{KEY, Key, Kind, keys};
use crate::reader::{Here, Reader};
use crate::sections::Policy;
use crate::types::RuleRef;
use crate::yaml::{Entry, Node, Value};

/// From the mildest to the strictest.
pub const SCALE: [&str; 6] = ["off", "record", "warn", "redact", "ask", "block"];

/// One finding in one kind of text.
#[derive(Clone, Copy)]
pub struct Cell {
    /// With the words of the scale that something can do.
    key: Key,
    /// The values of the keys below, word by word.
    values: &'static [&'static str],
    /// The keys that decide. Kinds of text that share their keys have the same value.
    pub keys: &'static [&'static str],
    /// The words of `quiet`, `standard` and `strict`; empty: none.
    presets: [&'static str; 3],
}

/// Words of the scale that something can do, and what the keys are then.
type Words = (&'static [&'static str], &'static [&'static str]);

const COPIES: &str = "sandbox.mcp.exfiltration.on_detection";
const FOUND: Words = (&["off", "record", "block"], &["off", "alert", "block"]);
const TOLD: Words = (&["off", "record", "warn", "block"], &["off", "alert", "advise", "block"]);
const SECRET: Words = (&["off", "record", "redact", "block"], &["off", "audit", "redact", "block"]);
const ASKED: Words = (SECRET.0, &["off", "log", "redact", "block"]);
const FLOW: Words = (&["off", "record", "ask", "block"], &["allow", "alert", "ask", "block"]);
const CLASSED: Words = (&["record", "warn", "block"], &["alert", "advise", "block"]);
const WARNED: Words = (&["off", "warn", "block"], &["off", "warn", "block"]);
const UNUSUAL: Words = (&["off", "record", "ask"], &["off", "alert", "graded"]);
const LEAKED: Words = (&["off", "redact", "block"], &["false", "replace", "hold"]);

/// One line of the table: its name, its words, the keys that decide, the presets, and its description.
macro_rules! cell {
    ($name:literal: $words:expr => [$key:literal $(, $more:literal)*], $presets:expr, $about:literal) => {
        Cell {
            key: Key {
                name: $name,
                kind: Kind::Word($words.0),
                default: concat!("what `", $key, "` says"),
                about: $about,
                ..KEY
            },
            values: $words.1,
            keys: &[$key $(, $more)*],
            presets: $presets,
        }
    };
}

const PERSONAL: Cell = cell! { "personal": SECRET => ["sandbox.mcp.secrets.kinds.email",
"sandbox.mcp.secrets.kinds.phone", "sandbox.mcp.secrets.kinds.credit-card", "sandbox.mcp.secrets.kinds.iban",
"sandbox.mcp.secrets.kinds.ssn"], ["record", "record", "redact"],
"Mail addresses, telephone numbers, cards, accounts. Results and arguments must have the same value." };
const CLASSIFIER: Cell = cell! { "classifier": CLASSED => ["sandbox.mcp.classifier.action"], ["record", "warn", "block"],
"Instructions that your own classification model finds. Definitions and results must have the same value. Off without `sandbox.mcp.classifier.url`." };

const DEFINITIONS: [Cell; 4] = [
    cell! { "injection": FOUND => ["sandbox.mcp.content.definitions"], ["record", "record", "block"],
    "Instructions to the model in the definition of a tool, a prompt or a resource." },
    cell! { "drift": FLOW => ["sandbox.mcp.version_pinning.on_change"], ["record", "block", "block"],
    "A server or a definition that differs from its pin." },
    CLASSIFIER,
    cell! { "advisory": WARNED => ["sandbox.mcp.advisories.dependency", "sandbox.mcp.advisories.vendor",
    "sandbox.mcp.advisories.community", "sandbox.mcp.advisories.availability"], ["warn", "warn", "block"],
    "A server with an advisory." },
];

const RESULTS: [Cell; 4] = [
    cell! { "injection": TOLD => ["sandbox.mcp.content.results"], ["record", "warn", "block"],
    "Instructions to the model in a result. `warn` puts a sentence in front." },
    cell! { "secret": SECRET => ["sandbox.mcp.secrets.results"], ["record", "record", "redact"],
    "Keys, passwords and tokens." },
    PERSONAL,
    CLASSIFIER,
];

const REQUESTS: [Cell; 1] =
    [cell! { "injection": FOUND => ["sandbox.mcp.content.requests"], ["record", "block", "block"],
    "Instructions to the model in a request of a server to the client (sampling, elicitation)." }];

const ARGUMENTS: [Cell; 6] = [
    cell! { "secret": SECRET => ["sandbox.mcp.secrets.arguments"], ["record", "record", "redact"],
    "Keys, passwords and tokens." },
    PERSONAL,
    cell! { "copy": FLOW => ["sandbox.mcp.exfiltration.on_detection"], ["record", "record", "block"],
    "Data of another server, packed files, and hosts that `allowed_domains` does not list." },
    cell! { "destination": FLOW => ["sandbox.mcp.exfiltration.on_private_to_external"], ["off", "", "block"],
    "A call to a server that sends data off this machine, after another server returned private data." },
    cell! { "command": FOUND => ["sandbox.mcp.content.arguments"], ["record", "record", "block"],
    "A harmful command, such as a reverse shell." },
    cell! { "anomaly": UNUSUAL => ["sandbox.mcp.anomaly.on_detection"], ["off", "record", "ask"],
    "An unusual call or answer. `ask` refuses an extremely unusual one." },
];

const ANSWERS: [Cell; 1] = [cell! { "copy": LEAKED => ["llm.canary"], ["off", "off", "block"],
"The system prompt in an answer of the model. `redact` replaces it, `block` the whole answer." }];

const QUESTIONS: [Cell; 2] = [
    cell! { "secret": ASKED => ["llm.secrets"], ["record", "record", "redact"],
    "Keys, passwords and tokens in a request to the model." },
    cell! { "personal": ASKED => ["llm.secret_kinds.EMAIL", "llm.secret_kinds.PHONE", "llm.secret_kinds.CREDIT CARD",
    "llm.secret_kinds.IBAN", "llm.secret_kinds.SSN"], ["", "", "redact"],
    "Mail addresses, telephone numbers, cards, accounts in a request to the model." },
];

/// Each kind of text, and what may be found in it.
pub const SUBJECTS: [(&str, &[Cell]); 6] = [
    ("definitions", &DEFINITIONS),
    ("results", &RESULTS),
    ("requests", &REQUESTS),
    ("arguments", &ARGUMENTS),
    ("answers", &ANSWERS),
    ("questions", &QUESTIONS),
];

const fn keys<const N: usize>(cells: &[Cell; N]) -> [Key; N] {
    let mut keys = [KEY; N];
    let mut at = 0;
    while at < N {
        keys[at] = cells[at].key;
        at += 1;
    }
    keys
}

const PRESETS: [&str; 3] = ["quiet", "standard", "strict"];

pub const INSPECT: &[Key] = keys! {
    /// The values of missing lines: `quiet` asks and refuses nothing, `standard` is the default without any policy,
    /// `strict` refuses what it can.
    "preset": Kind::Word(&PRESETS), default: "none", example: "standard";
    /// Tools, prompts and resources as servers list them, and the servers themselves.
    "definitions": Kind::Map(&keys(&DEFINITIONS));
    /// Results of servers.
    "results": Kind::Map(&keys(&RESULTS));
    /// Requests of servers to the client.
    "requests": Kind::Map(&keys(&REQUESTS));
    /// Arguments that an agent sends to servers.
    "arguments": Kind::Map(&keys(&ARGUMENTS));
    /// Answers of the model.
    "answers": Kind::Map(&keys(&ANSWERS));
    /// Requests to the model.
    "questions": Kind::Map(&keys(&QUESTIONS));
};

/// One line of the section.
struct Line {
    path: &'static str,
    value: Value,
    place: TextPosition,
    /// Its place in the section; None: from a preset.
    written: Option<String>,
}

/// The keys that a section sets, as if the file had written them.
pub fn resolve(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Node> {
    let fields = reader.map(here, INSPECT)?;
    let mut lines: Vec<Line> = Vec::new();
    let words = [("quiet", 0), ("standard", 1), ("strict", 2)];
    if let Some(preset) = reader.word(fields.find("preset"), &words) {
        let place = TextPosition { line: preset.rule.line, column: 1, width: 1 };
        for cell in SUBJECTS.iter().flat_map(|(_, cells)| *cells) {
            cell.write(cell.presets[preset.value], place, None, &mut lines);
        }
    }
    for (subject, cells) in SUBJECTS {
        let Some(here) = fields.find(subject) else { continue };
        let Some(key) = INSPECT.iter().find(|key| key.name == subject) else { continue };
        let Some(fields) = reader.known(&here, &key.kind.keys()) else { continue };
        for cell in cells {
            let Some(here) = fields.find(cell.key.name) else { continue };
            let Kind::Word(words) = cell.key.kind else { continue };
            let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
            let told = match &here.node.value {
                Value::Text(told) if SCALE.contains(&told.as_str()) => Some(told),
                _ => None,
            };
            if let Some(told) = told.filter(|told| words.iter().all(|(word, _)| *word != told.as_str())) {
                let possible: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let message = format!("`{told}` is not possible for `{}`", here.path);
                reader.problem(&here, message, format!("write {}", one_of(&possible)));
                continue;
            }
            let Some(word) = reader.word(Some(here.clone()), &words) else { continue };
            let place = TextPosition { line: word.rule.line, ..here.node.place };
            if let Some(other) = cell.write(word.value, place, Some(here.path.clone()), &mut lines) {
                let message = format!("`{}` contradicts `{other}`", here.path);
                reader.problem(&here, message, format!("both are {}: write the same word", cell.key.default));
            }
        }
    }
    // If agentsh only records copies, it changes no result to find them.
    let copies =
        lines.iter().find(|line| line.path == COPIES && line.value == Value::Text("alert".to_owned()));
    if let Some(place) = copies.map(|line| line.place) {
        let value = Value::Text("off".to_owned());
        lines.push(Line { path: "sandbox.mcp.exfiltration.marker", value, place, written: None });
    }
    let mut tree = Node { value: Value::Map(Vec::new()), place: here.node.place };
    for line in lines {
        let mut node = &mut tree;
        for key in line.path.split('.') {
            node = node.entry(key, line.place)?;
        }
        node.value = line.value;
    }
    Some(tree)
}

impl Cell {
    /// Writes its keys; gives the line of the section that says something else.
    fn write(
        &self,
        word: &str,
        place: TextPosition,
        written: Option<String>,
        lines: &mut Vec<Line>,
    ) -> Option<String> {
        let Kind::Word(words) = self.key.kind else { return None };
        let value = *self.values.get(words.iter().position(|known| *known == word)?)?;
        let value = if value == "false" { Value::Bool(false) } else { Value::Text(value.to_owned()) };
        // If agentsh does not look for copies, the whole section is off.
        let is_copy = self.keys == [COPIES];
        let switched = is_copy.then(|| ("sandbox.mcp.exfiltration.enabled", Value::Bool(word != "off")));
        let mut contradicted = None;
        for (path, value) in self.keys.iter().map(|path| (*path, value.clone())).chain(switched) {
            match lines.iter_mut().find(|line| line.path == path) {
                Some(line) if line.written.is_none() || line.value == value => {
                    *line = Line { path, value, place, written: written.clone() };
                }
                Some(line) => contradicted = line.written.clone(),
                None => lines.push(Line { path, value, place, written: written.clone() }),
            }
        }
        contradicted
    }
}

impl Node {
    /// The entry of a map, created if it is missing. None: it is not a map.
    fn entry(&mut self, key: &str, place: TextPosition) -> Option<&mut Node> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|entry| entry.key == key).unwrap_or(entries.len());
        if at == entries.len() {
            let node = Node { value: Value::Map(Vec::new()), place };
            entries.push(Entry { key: key.to_owned(), key_place: place, node });
        }
        entries.get_mut(at).map(|entry| &mut entry.node)
    }
}

/// The first key that decides; empty where the section has no such line.
#[cfg(test)]
pub fn decides(subject: &str, finding: &str) -> &'static str {
    let cells = SUBJECTS.iter().filter(|(name, _)| *name == subject).flat_map(|(_, cells)| *cells);
    cells.filter(|cell| cell.key.name == finding).find_map(|cell| cell.keys.first()).copied().unwrap_or("")
}

/// The setting in force for one finding in one kind of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The name in the section.
    pub finding: &'static str,
    /// The keys that decide, each with its value and its place. The value is empty if no file sets the key and it is
    /// shown nowhere.
    pub decided: Vec<crate::Line>,
}

impl Policy {
    /// The settings in force for each finding in a kind of text of [`SUBJECTS`]; empty for an unknown one.
    #[must_use]
    pub fn inspected(&self, subject: &str) -> Vec<Inspected> {
        let lines = self.lines();
        let decided = |path: &&str| {
            let key = path.strip_prefix("sandbox.").unwrap_or(path);
            let written = lines.iter().find(|line| line.key == key).cloned();
            let unwritten = || crate::Line {
                key: key.to_owned(),
                value: String::new(),
                rule: RuleRef::default_rule(path),
            };
            written.unwrap_or_else(unwritten)
        };
        let cells = SUBJECTS.iter().filter(|(name, _)| *name == subject).flat_map(|(_, cells)| *cells);
        cells
            .map(|cell| Inspected {
                finding: cell.key.name,
                decided: cell.keys.iter().map(decided).collect(),
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "tests/inspect.rs"]
mod tests;
