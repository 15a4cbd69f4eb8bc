//! `agentsh run` and `agentsh mcp run` as their users see them.

mod agent;
mod approvals;
mod call;
mod content;
mod cross_server;
mod debug;
mod doctor;
mod environment;
mod exfiltration;
mod exit;
mod failures;
mod looks;
mod mcp_run;
mod model;
mod project;
mod queries;
mod readme;
mod remote;
mod report;
mod review;
mod sessions;
mod streams;
mod suggestions;
mod terminal;
mod vet_url;
