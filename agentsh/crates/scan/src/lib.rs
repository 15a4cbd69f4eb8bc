//! What a text tries to make a model do, and what in it is secret. Pure: no input or output, no clock; any input takes
//! linear time.
//!
//! | to judge | function |
//! |---|---|
//! | a tool, prompt, resource, template or instructions, as listed | [`scan_definition`] |
//! | a result, an error, a message of a prompt | [`scan_result`] |
//! | the arguments of a call | [`scan_outbound`] |
//! | one text | [`scan_text`] |
//!
//! Each answers with a [`Scan`]: a scored verdict, findings with their places, secrets with theirs, and the strings
//! as they should be forwarded ([`rewritten_json`] puts them into the message). What is pinned or forwarded is never a view.

mod clean;
mod document;
mod finding;
mod html;
mod prohibitions;
mod rewrites;
mod rules;
mod scan;
mod schema;
mod score;
mod secrets;
mod share_links;
mod shell_words;
mod written_content;

pub use clean::sanitised;
pub use document::rewritten_json;
pub use finding::redacted_context;
pub use finding::{Action, Category, Finding, Redaction, Removal, Rewrite, Scan, Severity};
pub use rewrites::{Changes, Tagged, forward, moves_cursor, replace_places, without_control};
pub use rules::{ALARM_POINTS, Channel, Patterns, WINDOW};
pub use scan::{
    definition_text, scan_definition, scan_instructions, scan_outbound, scan_result, scan_secrets, scan_text,
};
