//! Output of all verbs: styles, tables, exit statuses and errors, and the end of a verb that serves.

pub mod exit;
pub mod output;
pub mod stop;
pub mod style;
pub mod table;
