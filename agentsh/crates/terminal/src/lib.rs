//! How every verb answers: styles, tables, exit statuses and errors, and what ends a verb that serves.

pub mod exit;
pub mod output;
pub mod stop;
pub mod style;
pub mod table;
