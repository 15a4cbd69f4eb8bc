//! Answers DNS queries of a sandbox; nothing is forwarded. Pure.
//!
//! A name that is not allowed gets NXDOMAIN, because some resolvers retry REFUSED until they time out. The whole name
//! is matched, so search domains and `ndots` are harmless.

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::allow::Allowlist;
use super::fake_ip_pool::FakeIpPool;
use super::reason::Reason;
use crate::types::RuleRef;

/// Seconds. Addresses never change names, so this only bounds when a refusal is recorded again.
pub const TTL: u32 = 30;
/// In bytes. A query with all options is far shorter.
pub const MAX_QUERY: usize = 4096;
/// UDP limit without EDNS.
const PLAIN_UDP: usize = 512;
/// UDP limit without fragmentation.
const OUR_UDP: u16 = 1232;
/// A shorter message has no id to answer to.
const HEADER: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// The result of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// None: no response may be sent.
    pub response: Option<Vec<u8>>,
    /// The query, as far as it could be parsed.
    pub asked: Option<Question>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Lower case, without the trailing dot, escaped.
    pub name: String,
    pub rtype: RecordType,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The name's address pair, whichever was asked for.
    Answered(Ipv4Addr, Ipv6Addr),
    /// An allowed name, with an unsupported record type.
    Empty,
    Refused {
        rule: RuleRef,
        reason: Reason,
    },
    /// Not a valid query.
    Malformed(Reason),
}

/// Answers one message.
#[must_use]
pub fn answer(query: &[u8], over: Transport, allow: &Allowlist, pool: &mut FakeIpPool) -> Answer {
    let Some(id) = query.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes)) else {
        return no_answer(Reason::TooShort);
    };
    let (Some(flags), true) = (query.get(2), query.len() >= HEADER) else {
        return no_answer(Reason::TooShort);
    };
    // Answering responses could loop between two resolvers.
    if flags & 0x80 != 0 {
        return no_answer(Reason::NotAQuery);
    }
    let op_code = OpCode::from_u8((flags >> 3) & 0x0f);
    if op_code != OpCode::Query {
        return header_only(id, op_code, ResponseCode::NotImp, Reason::OperationNotKnown);
    }
    if query.len() > MAX_QUERY {
        return header_only(id, op_code, ResponseCode::FormErr, Reason::TooLong);
    }
    if query.get(4..6) != Some(&[0, 1]) {
        return header_only(id, op_code, ResponseCode::FormErr, Reason::NotOneQuestion);
    }
    match Message::from_vec(query) {
        Ok(message) => question(&message, over, allow, pool),
        Err(_) => header_only(id, op_code, ResponseCode::FormErr, Reason::NotReadable),
    }
}

/// The answer to the only query of a message.
struct Reply {
    code: ResponseCode,
    records: Vec<RData>,
    outcome: Outcome,
}

fn question(message: &Message, over: Transport, allow: &Allowlist, pool: &mut FakeIpPool) -> Answer {
    let [query] = message.queries.as_slice() else {
        return header_only(
            message.metadata.id,
            OpCode::Query,
            ResponseCode::FormErr,
            Reason::NotOneQuestion,
        );
    };
    let name = of_host(query.name(), query.query_type());
    let asked = Question { name: display_name(&name), rtype: query.query_type() };
    let reply = if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        Reply {
            code: ResponseCode::BADVERS,
            records: Vec::new(),
            outcome: Outcome::Malformed(Reason::EdnsVersionNotKnown),
        }
    } else if query.query_class() != DNSClass::IN {
        refused_reply(ResponseCode::Refused, RuleRef::default_rule("network.allow"), Reason::ClassNotAllowed)
    } else {
        look_up(&name, query.query_type(), allow, pool)
    };
    let response = encode(message, over, &reply);
    Answer { response, asked: Some(asked), outcome: reply.outcome }
}

/// A question about a service of a host (`_http._tcp.HOST`, RFC 2782) is one about the host.
fn of_host(name: &Name, rtype: RecordType) -> Name {
    let services = match rtype {
        RecordType::A | RecordType::AAAA => 0,
        _ => name.iter().take_while(|label| label.starts_with(b"_")).count(),
    };
    name.trim_to(name.iter().count() - services)
}

fn look_up(name: &Name, rtype: RecordType, allow: &Allowlist, pool: &mut FakeIpPool) -> Reply {
    let no = |rule, reason| refused_reply(ResponseCode::NXDomain, rule, reason);
    let default = || RuleRef::default_rule("network.allow");
    let Some(host) = host_name(name) else { return no(default(), Reason::NameNotValid) };
    if host == "localhost" || host.ends_with(".localhost") {
        return addresses(rtype, (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
    }
    if let Some(named) = reverse(&host, name, pool) {
        return Reply {
            code: ResponseCode::NoError,
            records: if rtype == RecordType::PTR { vec![RData::PTR(PTR(named))] } else { Vec::new() },
            outcome: Outcome::Empty,
        };
    }
    let rule = match allow.name(&host) {
        Some(rule) => rule.rule.clone(),
        // A person is asked at connection time, because resolvers do not wait that long.
        None if allow.asks_about_unlisted() => RuleRef::default_rule("network.unknown"),
        None => return no(default(), Reason::NameNotAllowed),
    };
    if !matches!(rtype, RecordType::A | RecordType::AAAA) {
        return Reply { code: ResponseCode::NoError, records: Vec::new(), outcome: Outcome::Empty };
    }
    match pool.address_of(&host) {
        Some(pair) => addresses(rtype, pair),
        None => no(rule, Reason::NamePoolFull),
    }
}

fn addresses(rtype: RecordType, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> Reply {
    let record = match rtype {
        RecordType::A => RData::A(A(v4)),
        RecordType::AAAA => RData::AAAA(AAAA(v6)),
        _ => return Reply { code: ResponseCode::NoError, records: Vec::new(), outcome: Outcome::Empty },
    };
    Reply { code: ResponseCode::NoError, records: vec![record], outcome: Outcome::Answered(v4, v6) }
}

fn refused_reply(code: ResponseCode, rule: RuleRef, reason: Reason) -> Reply {
    Reply { code, records: Vec::new(), outcome: Outcome::Refused { rule, reason } }
}

/// The name behind a pool address, for a reverse lookup.
fn reverse(host: &str, name: &Name, pool: &FakeIpPool) -> Option<Name> {
    if !host.ends_with(".arpa") {
        return None;
    }
    let block = name.parse_arpa_name().ok()?;
    if block.prefix_len() != block.max_prefix_len() {
        return None;
    }
    let mut named = Name::from_ascii(pool.name_of(block.addr())?).ok()?;
    named.set_fqdn(true);
    Some(named)
}

/// Lower case, without the trailing dot; None if a label is not a host name's.
fn host_name(name: &Name) -> Option<String> {
    let mut host = String::new();
    for label in name.iter() {
        if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)) {
            return None;
        }
        if !host.is_empty() {
            host.push('.');
        }
        host.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    (!host.is_empty()).then_some(host)
}

/// Like [`host_name`], for display: any name, escaped.
fn display_name(name: &Name) -> String {
    let mut text = String::new();
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            match byte.to_ascii_lowercase() {
                plain if plain.is_ascii_alphanumeric() || b"-_*".contains(&plain) => {
                    text.push(char::from(plain))
                }
                odd => {
                    text.push('\\');
                    text.push_str(&format!("{odd:03}"));
                }
            }
        }
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// The question is returned byte for byte.
fn encode(message: &Message, over: Transport, reply: &Reply) -> Option<Vec<u8>> {
    let mut response = Message::response(message.metadata.id, OpCode::Query);
    response.metadata = Metadata::response_from_request(&message.metadata);
    response.metadata.recursion_available = true;
    response.metadata.authentic_data = false;
    response.metadata.response_code = reply.code;
    for query in &message.queries {
        response.add_query(query.clone());
        for record in &reply.records {
            response.add_answer(Record::from_rdata(query.name().clone(), TTL, record.clone()));
        }
    }
    if let Some(theirs) = &message.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(OUR_UDP).set_version(0).set_dnssec_ok(theirs.flags().dnssec_ok);
        edns.set_rcode_high(reply.code.high());
        response.set_edns(edns);
    }
    let bytes = response.to_vec().ok()?;
    let limit = match (over, &message.edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => PLAIN_UDP,
        (Transport::Udp, Some(edns)) => usize::from(edns.max_payload().clamp(512, OUR_UDP)),
    };
    if bytes.len() <= limit { Some(bytes) } else { response.truncate().to_vec().ok() }
}

fn no_answer(why: Reason) -> Answer {
    Answer { response: None, asked: None, outcome: Outcome::Malformed(why) }
}

/// A header without a question, for unparsable queries.
fn header_only(id: u16, op_code: OpCode, code: ResponseCode, why: Reason) -> Answer {
    let mut response = Message::new(id, MessageType::Response, op_code);
    response.metadata.response_code = code;
    Answer { response: response.to_vec().ok(), asked: None, outcome: Outcome::Malformed(why) }
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
