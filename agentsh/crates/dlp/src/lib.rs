//! What leaves through tools: copies of what servers said ([`taint`]), in whatever they are encoded ([`text`]), judged by
//! the labels of both sides ([`flow`]); and the hosts that a call names ([`destination`]). Pure: no input or output, no
//! clock, no runtime; time comes in as a parameter.

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
