//! Output of all verbs: styles, tables, errors and exit statuses; and the shutdown of a verb that serves.

pub mod exit;
pub mod output;
pub mod stop;
pub mod style;
pub mod table;
