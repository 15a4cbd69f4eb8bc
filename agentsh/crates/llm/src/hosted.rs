//! Tools that the provider runs for the agent: fetching a URL, calling an MCP server, running code. Judged as tools of
//! the agent, with one name for all APIs.
//!
//! Declared tools are parsed per API. URLs of images and files are searched for in the whole request, so that new kinds
//! of blocks are covered. An unknown tool counts as reaching any host.

use std::collections::BTreeSet;

use crate::LlmError;
use crate::dialect::parse;
use crate::json::Json;
use crate::route::Provider;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hosted {
    /// The policy's name, for the server `agent`: [`FETCH`], [`SEARCH`], [`CODE`] and so on.
    pub tool: String,
    /// The API's name, if different.
    pub written: String,
    pub reach: HostedReach,
}

/// What the action can reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostedReach {
    /// Only the provider's own: an index, the account's files, a machine without network.
    Provider,
    /// This URL, with `GET`.
    Url(String),
    /// The MCP server at this URL, with `POST`.
    Server(String),
    /// These domains and everything below.
    Domains(Vec<String>),
    /// Anything.
    Anywhere,
}

/// The provider fetches a URL.
pub const FETCH: &str = "web_fetch";
/// It searches its web index.
pub const SEARCH: &str = "web_search";
/// It runs code on its own machine.
pub const CODE: &str = "code_execution";
/// It calls an MCP server.
pub const MCP: &str = "mcp";
/// A batch of questions in a file at the provider, which nothing here reads.
pub const BATCH: &str = "batch";
/// The provider stores a file.
pub const FILES: &str = "files";

/// Tools that the agent runs itself, without dates.
const CLIENTS: &[&str] = &[
    "",
    "apply_patch",
    "bash",
    "computer",
    "computer_use",
    "computer_use_preview",
    "custom",
    "function",
    "functiondeclarations",
    "local_shell",
    "mcp_toolset",
    "memory",
    "namespace",
    "str_replace_based_edit_tool",
    "text_editor",
];

/// Provider tools: the API's names, and the policy's.
const PROVIDERS: &[(&str, &str)] = &[
    ("advisor", "advisor"),
    ("code_execution", CODE),
    ("code_interpreter", CODE),
    ("codeexecution", CODE),
    ("enterprisewebsearch", SEARCH),
    ("file_search", "file_search"),
    ("filesearch", "file_search"),
    ("googlemaps", "maps"),
    ("googlesearch", SEARCH),
    ("googlesearchretrieval", SEARCH),
    ("image_generation", "image_generation"),
    ("shell", CODE),
    ("tool_search", "tool_search"),
    ("tool_search_tool_bm25", "tool_search"),
    ("tool_search_tool_regex", "tool_search"),
    ("urlcontext", FETCH),
    ("web_fetch", FETCH),
    ("web_search", SEARCH),
    ("web_search_preview", SEARCH),
];

/// Members whose URLs the provider loads, without case and underscores, because some providers accept both.
const URLS: [&str; 6] = ["audiourl", "documenturl", "fileurl", "fileuri", "imageurl", "videourl"];

/// Members with a URL that the provider loads, or with the content itself; also in the plural.
const MEDIA: [&str; 4] = ["audio", "file", "image", "video"];

/// Members with tool inputs or schemas, whose URLs are not loaded.
const OPAQUE: [&str; 12] = [
    "args",
    "arguments",
    "inputexamples",
    "inputschema",
    "jsonschema",
    "metadata",
    "outputschema",
    "parameters",
    "parametersjsonschema",
    "responsejsonschema",
    "responseschema",
    "schema",
];

/// All tools that a question makes the provider run, each once, and the names of all that it offers. Linear time.
#[must_use]
pub fn read(provider: Provider, question: &Json<'_>) -> (Vec<Hosted>, BTreeSet<String>) {
    let mut found = HostedTools { provider, all: Vec::new(), offered: BTreeSet::new() };
    found.walk(question, None);
    found.all.sort_unstable();
    found.all.dedup();
    (found.all, found.offered)
}

/// The question with OpenAI's search limited to its index. Other bytes stay.
///
/// # Errors
/// When it is not strict JSON.
pub fn within_index(body: &[u8]) -> Result<String, LlmError> {
    let body = std::str::from_utf8(body).map_err(|_| LlmError::Shape("text that is not UTF-8"))?;
    let mut tree = parse(body)?;
    keep_to_index(&mut tree, false);
    Ok(tree.to_compact())
}

/// Like [`HostedTools::walk`] finds tools; `is_tool`: the value is one, or a list of them.
fn keep_to_index(value: &mut Json<'_>, is_tool: bool) {
    let is_search = is_tool && kinds(value).iter().any(|kind| undated(kind) == SEARCH);
    match value {
        Json::Array(items) => items.iter_mut().for_each(|item| keep_to_index(item, is_tool)),
        Json::Object(members) => {
            if is_search {
                members.retain(|(raw, _)| unescaped(raw) != LIVE);
                members.push((LIVE, Json::Bool(false)));
            }
            for (raw, inner) in members {
                let member = normalised_name(&unescaped(raw));
                if !OPAQUE.contains(&member.as_str()) {
                    keep_to_index(inner, member == "tools");
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Whether [`within_index`] makes this question acceptable.
#[must_use]
pub fn has_index(provider: Provider, hosted: &Hosted) -> bool {
    provider == Provider::OpenAiResponses && undated(&hosted.written) == SEARCH && hosted.tool == SEARCH
}

/// Whether OpenAI's search opens pages.
const LIVE: &str = "external_web_access";

struct HostedTools {
    provider: Provider,
    all: Vec<Hosted>,
    offered: BTreeSet<String>,
}

impl HostedTools {
    fn add(&mut self, tool: &str, written: &str, reach: HostedReach) {
        self.all.push(Hosted { tool: tool.to_owned(), written: written.to_owned(), reach });
    }

    /// `name` is the member with the value.
    fn walk(&mut self, value: &Json<'_>, name: Option<&str>) {
        match value {
            Json::Array(items) => items.iter().for_each(|item| self.walk(item, name)),
            Json::Object(members) => {
                let kinds = kinds(value);
                if matches!(name, Some("content" | "input")) && kinds.iter().any(|kind| is_medium(kind)) {
                    self.medium(value);
                }
                let is_call = !kinds.is_empty() && kinds.iter().all(|kind| kind.ends_with("tool_use"));
                for (raw, inner) in members {
                    let member = normalised_name(&unescaped(raw));
                    if OPAQUE.contains(&member.as_str())
                        || (member == "input" && name == Some("content") && is_call)
                        || (member == "response" && name == Some("functionresponse"))
                    {
                        continue;
                    }
                    self.member(&member, inner);
                    self.walk(inner, Some(&member));
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    /// A part other than text: every URL in it is loaded.
    fn medium(&mut self, value: &Json<'_>) {
        match value {
            Json::Array(items) => items.iter().for_each(|item| self.medium(item)),
            Json::Object(members) if kinds(value) != ["text"] => {
                let said = ["context", "text", "title"];
                let others = members.iter().filter(|(raw, _)| !said.contains(&unescaped(raw).as_str()));
                others.for_each(|(_, inner)| self.medium(inner));
            }
            Json::String(_) => {
                let text = value.as_text().unwrap_or_default();
                let scheme =
                    text.trim_start().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
                if matches!(scheme.as_deref(), Some("http" | "https")) {
                    self.url(Some(value));
                }
            }
            _ => {}
        }
    }

    fn member(&mut self, name: &str, value: &Json<'_>) {
        // Google's parser takes one object for a list of it.
        let items = match value {
            Json::Array(items) => items,
            Json::Object(_) => std::slice::from_ref(value),
            _ => &[],
        };
        match name {
            "tools" => items.iter().for_each(|tool| {
                self.tool(tool);
                self.offer(tool);
            }),
            // The old API of OpenAI.
            "functions" => items.iter().for_each(|function| self.offer(function)),
            "mcpservers" => items.iter().for_each(|server| self.server(server)),
            "websearchoptions" if is_there(value) => {
                self.add(SEARCH, "web_search_options", HostedReach::Provider)
            }
            // xAI: feeds are loaded from anywhere.
            "searchparameters" if is_there(value) => {
                self.add(SEARCH, "search_parameters", HostedReach::Anywhere)
            }
            // Azure OpenAI: the conversation goes to the endpoint that each names.
            "datasources" => items.iter().for_each(|_| self.add("data_source", "", HostedReach::Anywhere)),
            // Cohere, Alibaba and OpenRouter.
            "connectors" => items.iter().for_each(|_| self.add(SEARCH, "connectors", HostedReach::Anywhere)),
            "enablesearch" if matches!(value, Json::Bool(true)) => {
                self.add(SEARCH, "enable_search", HostedReach::Provider);
            }
            "model" if value.as_text().is_some_and(|model| model.ends_with(":online")) => {
                self.add(SEARCH, "online", HostedReach::Provider);
            }
            "plugins" => items.iter().for_each(|plugin| match text_member(plugin, "id").as_deref() {
                Some("web") => self.add(SEARCH, "web", HostedReach::Provider),
                Some("response-healing" | "file-parser" | "moderation" | "auto-router") => {}
                other => self.add(other.unwrap_or("plugin"), "", HostedReach::Anywhere),
            }),
            "background" if matches!(value, Json::Bool(true)) => {
                self.add("background", "", HostedReach::Provider);
            }
            "container" if self.provider == Provider::Anthropic && is_there(value) => {
                self.add(CODE, "container", HostedReach::Provider);
            }
            "source" => self.url(value.member("url")),
            _ if URLS.contains(&name) => self.url(Some(value)),
            _ if MEDIA.contains(&name.trim_end_matches('s')) => self.medium(value),
            _ => {}
        }
    }

    fn url(&mut self, value: Option<&Json<'_>>) {
        let text = value.and_then(|value| value.as_text().or_else(|| value.member("url")?.as_text()));
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return };
        let is_data = text.trim_start().get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"));
        if !is_data {
            self.add(FETCH, "url", HostedReach::Url(text.trim().to_owned()));
        }
    }

    /// The names under which a model may call a tool.
    fn offer(&mut self, tool: &Json<'_>) {
        self.offered.extend(text_member(tool, "name"));
        for kind in kinds(tool) {
            let kind = undated(&kind);
            // The name in the calls of OpenAI's `computer_use_preview`.
            self.offered.extend(kind.starts_with("computer_use").then(|| "computer".to_owned()));
            self.offered.insert(kind.to_owned());
        }
        for (raw, inner) in tool.as_object().unwrap_or_default() {
            match (normalised_name(&unescaped(raw)).as_str(), inner) {
                ("functiondeclarations", Json::Array(functions)) => {
                    functions.iter().for_each(|function| self.offer(function));
                }
                ("custom" | "function" | "functiondeclarations", Json::Object(_)) => self.offer(inner),
                _ => {}
            }
        }
    }

    fn tool(&mut self, tool: &Json<'_>) {
        if self.provider == Provider::Google {
            // Each member of an entry is a tool.
            for (raw, value) in tool.as_object().unwrap_or_default() {
                let written = unescaped(raw);
                match normalised_name(&written).as_str() {
                    // Its servers are found by their own member.
                    "mcpservers" => {}
                    "computeruse" => {}
                    name => self.add_named(name, &written, value),
                }
            }
            return;
        }
        for written in kinds(tool) {
            self.add_named(undated(&written), &written, tool);
        }
    }

    fn add_named(&mut self, name: &str, written: &str, tool: &Json<'_>) {
        if name == MCP {
            return self.server(tool);
        }
        // The agent's machine, unless the question says otherwise.
        let places = ["environment", "container"].into_iter().filter_map(|name| tool.member(name));
        let is_local = places.clone().all(|place| text_member(place, "type").as_deref() == Some("local"));
        if CLIENTS.contains(&name) || (name == "shell" && is_local) {
            return;
        }
        let Some((_, own)) = PROVIDERS.iter().find(|(other, _)| *other == name) else {
            return self.add(name, written, HostedReach::Anywhere);
        };
        let domains = |tool: &Json<'_>| {
            let listed = tool.member("filters").unwrap_or(tool).member("allowed_domains")?.as_array()?;
            let listed: Option<Vec<String>> =
                listed.iter().map(|domain| domain.as_text().map(|text| text.into_owned())).collect();
            listed.filter(|listed| !listed.is_empty())
        };
        let within =
            |domains: Option<Vec<String>>| domains.map_or(HostedReach::Anywhere, HostedReach::Domains);
        let opens_pages = self.provider == Provider::OpenAiResponses
            && *own == SEARCH
            && !(undated(written) == SEARCH && matches!(tool.member(LIVE), Some(Json::Bool(false))));
        let reach = match *own {
            FETCH => within(domains(tool)),
            SEARCH if opens_pages => within(domains(tool)),
            CODE => {
                let mut policies = places.filter_map(|place| place.member("network_policy"));
                let is_open = |policy: &&Json<'_>| {
                    is_there(policy) && text_member(policy, "type").as_deref() != Some("disabled")
                };
                policies.find(is_open).map_or(HostedReach::Provider, |policy| within(domains(policy)))
            }
            _ => HostedReach::Provider,
        };
        self.add(own, written, reach);
    }

    /// An MCP server that the provider calls.
    fn server(&mut self, server: &Json<'_>) {
        let transport = server.member("streamableHttpTransport");
        let transport = transport.or_else(|| server.member("streamable_http_transport")).unwrap_or(server);
        let urls: Vec<String> =
            ["url", "server_url"].iter().filter_map(|name| text_member(transport, name)).collect();
        if urls.is_empty() || server.member("connector_id").is_some_and(is_there) {
            return self.add(MCP, MCP, HostedReach::Anywhere);
        }
        // Each is judged: the provider takes one of them.
        urls.into_iter().for_each(|url| self.add(MCP, MCP, HostedReach::Server(url)));
    }
}

/// Whether a part of this type is something other than a text or the output of a tool.
fn is_medium(kind: &str) -> bool {
    (kind.contains("document") || MEDIA.iter().any(|medium| kind.contains(medium)))
        && ["_call", "_output", "_result"].iter().all(|end| !kind.ends_with(end))
}

fn is_there(value: &Json<'_>) -> bool {
    !matches!(value, Json::Null)
}

fn text_member(value: &Json<'_>, name: &str) -> Option<String> {
    value.member(name).and_then(Json::as_text).map(|text| text.into_owned())
}

/// Every type that a parser might see, some of which ignore case.
fn kinds(value: &Json<'_>) -> Vec<String> {
    let members = value.as_object().unwrap_or_default().iter();
    let kinds = members.filter(|(raw, _)| normalised_name(&unescaped(raw)) == "type");
    kinds.filter_map(|(_, kind)| kind.as_text()).map(|kind| kind.into_owned()).collect()
}

fn unescaped(raw: &str) -> String {
    Json::String(raw).as_text().unwrap_or_default().into_owned()
}

fn normalised_name(name: &str) -> String {
    name.chars().filter(|letter| *letter != '_').map(|letter| letter.to_ascii_lowercase()).collect()
}

/// `web_search_20250305` and `web_search_2025_08_26` are both `web_search`.
fn undated(written: &str) -> &str {
    written.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_')
}

#[cfg(test)]
#[path = "hosted_tests.rs"]
mod tests;
