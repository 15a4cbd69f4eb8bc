//! `sandbox.mcp.exfiltration`, and `flow` of a server.

use super::model::{DataSink, DataSource, HostPattern, MarkerPlace, NetworkRule, OnChange, Ruled};
use super::raw::RawExfiltration;
use super::reader::{Here, Reader};
use super::{domain, domain::HostError};

pub fn section(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<RawExfiltration> {
    let fields = reader.fields(here, &["enabled", "on_detection", "marker", "allowed_domains"])?;
    let actions = [("block", OnChange::Block), ("alert", OnChange::Alert), ("allow", OnChange::Allow)];
    let places = [
        ("off", None),
        ("suffix", Some(MarkerPlace::Suffix)),
        ("prefix", Some(MarkerPlace::Prefix)),
        ("both", Some(MarkerPlace::Both)),
        ("random_word_boundary", Some(MarkerPlace::Between)),
    ];
    Some(RawExfiltration {
        rule: reader.rule(here),
        enabled: reader.boolean(fields.find("enabled")),
        on_detection: reader.word(fields.find("on_detection"), &actions),
        marker: reader.word(fields.find("marker"), &places),
        allowed_domains: fields.find("allowed_domains").and_then(|here| {
            let list = reader.list(Some(here.clone()), allowed_domain)?;
            Some(reader.ruled(&here, list.value))
        }),
    })
}

/// A host that arguments may name.
pub fn allowed_domain(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<NetworkRule> {
    let text = reader.text(here)?;
    match domain::parse_rule(&text) {
        Ok(rule) => Some(rule),
        // In an argument of a tool it is a name like any other.
        Err(HostError::Loopback(name)) => {
            let host = name.parse().map_or(HostPattern::Exact(name.clone()), |address: std::net::IpAddr| {
                HostPattern::Net(address, if address.is_ipv4() { 32 } else { 128 })
            });
            Some(NetworkRule::plain(host, Vec::new()))
        }
        Err(error) => {
            reader.problem(
                here,
                error.to_string(),
                Some("write `example.com` or `*.example.com`".to_owned()),
            );
            None
        }
    }
}

pub type Flow = (Option<Ruled<DataSource>>, Option<Ruled<DataSink>>);

/// `flow: {source: private, sink: external}`
pub fn flow(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Flow {
    let Some(flow) = here.and_then(|here| reader.fields(&here, &["source", "sink"])) else {
        return (None, None);
    };
    let sources = [("private", DataSource::Private), ("public", DataSource::Public)];
    let sinks = [("local", DataSink::Local), ("external", DataSink::External)];
    let source = reader.word(flow.find("source"), &sources);
    (source, reader.word(flow.find("sink"), &sinks))
}
