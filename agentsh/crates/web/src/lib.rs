//! HTML pages of agentsh: plain values in, text out; no I/O, no clock.
//!
//! [`Html`] escapes everything that is shown, and shows invisible characters as `\u{…}`. The pages need no script and
//! load nothing from elsewhere; [`SCRIPT`] only updates them.

use agentsh_base::escape;

mod approvals;
mod fleet;
mod flow;
mod frame;
mod href;
mod html;
mod now;
mod policy;
mod receipt;
mod registry;
mod row;
mod server;
mod session;
mod table;

pub use approvals::{Approvals, Question, approvals};
pub use fleet::{
    FleetNow, HostLine, PersonLine, ServerOfHost, fleet_approvals, fleet_hosts, fleet_now, fleet_people,
    fleet_server, fleet_servers, sign_in,
};
pub use flow::{Edge, End, Flow};
pub use frame::{Frame, Message, Pages, Place, message, opened_page};
pub use href::Href;
pub use html::Html;
pub use now::{Now, Sessions, now, sessions};
pub use policy::{Effective, Part, Policy, PolicyPreview, PolicyQuestion, policy};
pub use receipt::{Receipt, ReceiptTable, receipt};
pub use registry::{
    DecisionMaker, FoundDetail, RegistrationRow, Registry, Requested, registry, registry_detail,
};
pub use row::{Row, Tone, Word, merge_equal_rows};
pub use server::{Change, Field, Offer, Server, ServerLine, Servers, ToolRow, server, servers};
pub use session::{Layer, Listed, Process, Session, Timeline, session, standalone_page};

/// The one script, as a separate file: the pages allow no other.
pub const SCRIPT: &str = include_str!("live.js");

pub const STYLE: &str = include_str!("style.css");

/// The rights of a page in the browser: show it, load its own script and stylesheet, and send forms back.
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The headers of every answer. Without a referrer a browser would send forms from the origin `null`.
pub const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];
