//! `agentsh proxy`: several servers as one, started the real way.

mod config;
mod leaks;
mod servers;
