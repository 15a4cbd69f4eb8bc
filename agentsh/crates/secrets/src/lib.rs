//! Secrets, personal data and other values in a text: one engine for three uses. Pure; linear time.
//!
//! - [`certain`]: beyond doubt, with the exact place; rewritten in messages.
//! - [`values`]: worth tracking; finds more, because nothing is rewritten.
//! - [`redact`]: not to be recorded; hides more than both, because the original is never needed back.
//!
//! All three share the table of key formats, the list of names and the check digits. [`views`] reads a text as a model does:
//! decoded, and without what is invisible.

pub mod certain;
pub mod checks;
mod iban;
mod key_formats;
mod names;
pub mod redact;
pub mod runs;
pub mod values;
pub mod views;
