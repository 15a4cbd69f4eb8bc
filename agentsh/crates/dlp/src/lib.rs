//! Data that leaves through tools: copies of results ([`taint`]) in any encoding ([`text`]), judged by both servers'
//! labels ([`flow`]); and the hosts that a call names ([`destination`]). Pure; time is a parameter.

use agentsh_base::{json, types};
use agentsh_policy as policy;

pub mod destination;
pub mod flow;
pub mod taint;
pub mod text;
pub mod threads;

mod places;

pub use agentsh_policy::Severity;
pub use places::{Forbidden, forbidden};
pub use taint::Views;
