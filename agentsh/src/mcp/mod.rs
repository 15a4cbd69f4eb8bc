//! MCP on the wire.
