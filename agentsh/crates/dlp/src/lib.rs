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
mod severity;

pub use places::{Forbidden, forbidden};
pub use severity::Severity;
pub use taint::Views;
