//! `agentsh proxy`: several servers as one, started as users start it.

mod auditors;
mod config;
mod documented;
mod leaks;
mod markers;
mod ordinary;
mod pieces;
mod said;
mod servers;
mod webhook;
