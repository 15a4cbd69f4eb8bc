//! What in a text is secret, personal, or worth following: one engine for everybody who asks. Pure: no input or output,
//! no clock; every search takes time in proportion to the text.
//!
//! - [`certain`]: beyond doubt, with the exact place. What goes over the wire is rewritten there.
//! - [`values`]: worth following when it leaves. It finds more, because nothing is rewritten.
//! - [`record`]: what the record must not hold. It hides more than either, because nobody needs it back.
//!
//! All three know keys by one table of forms, names of secrets by one list, and numbers by the same checks.

pub mod certain;
pub mod checks;
mod forms;
mod iban;
mod names;
pub mod record;
pub mod values;
