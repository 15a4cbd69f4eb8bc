//! What the machine and its user have that a sandbox may need: where a session works ([`Context`]), toolchains, git
//! identity and repositories, caches and package sources, and review mode. Each feature is a function from facts to
//! one contribution to a sandbox; none knows the session.

pub mod accepted_files;
pub mod address;
pub mod agreements;
pub mod apt;
pub mod context;
pub mod copies;
pub mod environment;
pub mod facts;
pub mod git_cache;
pub mod git_identity;
pub mod git_settings;
pub mod go_modules;
pub mod grants;
pub mod host_programs;
pub mod installed;
pub mod known_advisories;
pub mod layer;
pub mod named_files;
pub mod outgoing;
pub mod packages;
pub mod project_sources;
pub mod publish;
pub mod record;
pub mod registries;
pub mod registry_settings;
pub mod remotes;
pub mod repositories;
pub mod review;
pub mod standard_error;
pub mod toolchains;
pub mod undo;
pub mod user_git;
pub mod users_networks;

pub use context::{Context, ContextError};
pub use facts::{Backend, Facts};
pub use record::Record;
