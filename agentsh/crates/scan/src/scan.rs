//! The scans: from the strings of a message to signs and one result.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use agentsh_base::json::Json;
use agentsh_secrets::certain::{self, Secret, add_view, find_in_views};
use agentsh_secrets::views::{self, invisible};

use crate::clean::Clean;
use crate::document::{Document, Part, strings, strings_but};
use crate::finding::{Action, Category, Finding, Redaction, Rewrite, Scan, Severity, context};
use crate::rules::{Channel, Patterns};
use crate::score::{self, Own, Rule, Sign};
use crate::secrets;
use crate::{schema, share_links, shell_words, written_content};

/// Members that are never rewritten, because their sender needs them unchanged.
const TOKENS: [&str; 5] = ["cursor", "nextCursor", "requestState", "progressToken", "taskId"];
/// The same in protocol members; in structured content and arguments they are ordinary data.
const IDENTIFIERS: [&str; 9] =
    ["id", "name", "uri", "uriTemplate", "mimeType", "type", "method", "jsonrpc", "role"];
/// Limit of reported findings; the verdict counts all.
const FINDINGS: usize = 100;
/// Bytes around a seam between two text blocks.
const SEAM_BYTES: usize = 200;
/// Points.
const HIDDEN_CHARACTER: u32 = 65;
const HIDDEN_CHARACTER_IN_OUTPUT: u32 = 15;
/// Enough for an alert.
const HIDDEN_IN_INSTRUCTIONS: u32 = 30;
const HIDDEN_ORDER: u32 = 35;
/// Minimum distinct bytes of a private key, which has at least 64 bytes.
const MIN_OF_KEY: usize = 8;
const PRIVATE_KEY: u32 = 35;
const SHARE_LINK: u32 = 40;
const OUT_OF_SIGHT: u32 = 20;
/// White space after which people do not look.
const BLANK: usize = 120;

/// Scans a definition: every string that model or user can see, and member names.
#[must_use]
pub fn scan_definition(definition: &Json<'_>) -> Scan {
    let mut parts = Vec::new();
    strings(definition, "", &schema::is_known, &mut parts);
    let mut own = Vec::new();
    schema::check(definition, &mut own);
    judge(&parts, Channel::Definition, &own, &[])
}

/// The scanned text of a definition.
#[must_use]
pub fn definition_text(definition: &Json<'_>) -> String {
    let mut parts = Vec::new();
    strings(definition, "", &schema::is_known, &mut parts);
    Document::of(&parts).text
}

/// Scans a result: content, structured content and errors, each block and over their seams.
#[must_use]
pub fn scan_result(result: &Json<'_>) -> Scan {
    let mut parts = Vec::new();
    strings(result, "", &is_plain_name, &mut parts);
    let blobs: Vec<String> =
        parts.iter().filter(|part| is_blob(part)).map(|part| part.pointer.clone()).collect();
    for part in parts.iter_mut().filter(|part| blobs.contains(&part.pointer)) {
        let bytes = agentsh_base::radix::base64(part.text.as_bytes());
        part.text = views::readable_text(&bytes).into();
        part.is_name = true;
    }
    parts.retain(|part| !part.text.is_empty());
    let blocks: Vec<usize> = (0..parts.len()).filter(|at| is_block(&parts[*at])).collect();
    let seams: Vec<(usize, usize)> = blocks.windows(2).map(|pair| (pair[0], pair[1])).collect();
    judge(&parts, Channel::Output, &[], &seams)
}

/// A name of a member that says nothing to a model or a shell.
fn is_plain_name(name: &str) -> bool {
    !name.contains(' ') && name.len() < 40
}

/// Scans the arguments of a call.
#[must_use]
pub fn scan_outbound(arguments: &Json<'_>) -> Scan {
    let mut parts = Vec::new();
    strings(arguments, "", &is_plain_name, &mut parts);
    judge(&parts, Channel::Outbound, &[], &[])
}

/// Secrets in a message, and its strings with tags. Members for which `is_left` is true are skipped: identifiers,
/// images, signed data.
#[must_use]
pub fn scan_secrets(
    message: &Json<'_>,
    is_left: &dyn Fn(&str) -> bool,
    counts: &dyn Fn(&str) -> bool,
) -> (Vec<Redaction>, Vec<Rewrite>) {
    let mut parts = Vec::new();
    strings_but(message, is_left, &mut parts);
    let (mut redactions, mut rewrites) = (Vec::new(), Vec::new());
    for part in parts {
        let found: Vec<_> =
            find_in_views(&part.text).into_iter().filter(|secret| counts(secret.kind)).collect();
        if !found.is_empty() {
            redactions.extend(secrets::redactions(&part.pointer, &found));
            rewrites.push(Rewrite { text: secrets::redacted(&part.text, &found), pointer: part.pointer });
        }
    }
    (redactions, rewrites)
}

/// Scans one text, at pointer ``.
#[must_use]
pub fn scan_text(text: &str, channel: Channel) -> Scan {
    let part = Part { pointer: String::new(), text: text.into(), is_name: false };
    judge(&[part], channel, &[], &[])
}

/// Scans an instruction file, such as a skill: as a text, but invisible characters are never legitimate.
#[must_use]
pub fn scan_instructions(text: &str) -> Scan {
    let mut scan = scan_text(text, Channel::Output);
    let mut places = invisible::suspicious(text, FINDINGS);
    places.retain(|place| text.get(place.clone()) != Some("\u{ad}"));
    if scan.verdict != Action::Allow || places.is_empty() {
        return scan;
    }
    (scan.verdict, scan.score) = (Action::Alert, scan.score.max(HIDDEN_IN_INSTRUCTIONS));
    let secrets = secrets::redactions("", &find_in_views(text));
    let (rule, category, severity) = describe(Rule::Own(Own::HiddenCharacters));
    scan.findings.extend(places.into_iter().map(|place| Finding {
        rule: rule.clone(),
        category,
        severity,
        pointer: String::new(),
        context: context(text, &place, &secrets),
        start: place.start,
        end: place.end,
    }));
    scan
}

fn is_blob(part: &Part<'_>) -> bool {
    is_blob_at(&part.pointer, &part.text)
}

/// Whether a text is Base64 data.
pub(crate) fn is_blob_at(pointer: &str, text: &str) -> bool {
    pointer.ends_with("/blob") || pointer.ends_with("/data") && text.len() > 64 && !text.contains(' ')
}

/// Text of a content block next to another's.
fn is_block(part: &Part<'_>) -> bool {
    part.pointer.ends_with("/text") && !part.is_name
}

fn judge(
    parts: &[Part<'_>],
    channel: Channel,
    schema: &[(Own, String, u32)],
    seams: &[(usize, usize)],
) -> Scan {
    let document = Document::of(parts);
    let text = &document.text;
    let is_shown = |part: &Part<'_>| channel == Channel::Output && !part.is_name;
    let of_parts: Vec<_> =
        parts.iter().map(|part| is_searched(part, channel).then(|| certain::find(&part.text))).collect();
    let cleaned: Vec<_> = parts.iter().map(|part| is_shown(part).then(|| Clean::of(&part.text))).collect();
    let mut of_views = Vec::new();
    let mut signs = score::signs_and(text, channel, &mut |view| {
        if channel != Channel::Definition {
            add_view(view, &mut of_views);
        }
    });
    let mut scan = Scan::default();
    let mut secrets = secrets_of(parts, of_parts, &document, of_views);
    for at in seams {
        scan_seam(parts, *at, &document, channel, &mut signs, &mut secrets);
    }
    for (at, ((part, secrets), clean)) in parts.iter().zip(&secrets).zip(cleaned).enumerate() {
        let start = document.start(at);
        own_signs(part, start, channel, secrets, &mut signs);
        if let Some(clean) = &clean {
            hidden_orders(part, start, clean, &mut signs, &mut scan);
        }
        scan.redactions.extend(secrets::redactions(&part.pointer, secrets));
        if channel != Channel::Definition
            && let Some(text) = forwarded(part, secrets, clean, channel)
        {
            scan.rewrites.push(Rewrite { pointer: part.pointer.clone(), text });
        }
    }
    if !schema.is_empty() {
        let places: BTreeMap<&str, usize> =
            parts.iter().enumerate().rev().map(|(at, part)| (part.pointer.as_str(), at)).collect();
        for (own, pointer, weight) in schema {
            let start = document.start(places.get(pointer.as_str()).copied().unwrap_or(0));
            signs.push(Sign {
                rule: Rule::Own(*own),
                place: start..start + 1,
                weight: *weight,
                is_plain: true,
            });
        }
    }
    if channel == Channel::Outbound {
        signs.extend(
            parts.iter().enumerate().flat_map(|(at, part)| harmful_commands(part, document.start(at))),
        );
        written_content::reduce_weights(parts, &document, &mut signs);
    }
    let outcome = score::judge(text, &mut signs, channel);
    scan.verdict = outcome.verdict;
    scan.score = outcome.score;
    if scan.verdict != Action::Allow {
        score::retain_heavy(&mut signs);
        findings(parts, &document, &signs, &secrets, channel, &mut scan);
    }
    scan
}

fn harmful_commands(part: &Part<'_>, start: usize) -> Vec<Sign> {
    let sign = |(id, place): (&str, Range<usize>)| {
        let at = Patterns::builtin().rules.iter().position(|rule| rule.id == id)?;
        let weight = Patterns::builtin().rules.get(at)?.outbound;
        let place = start + place.start..start + place.end;
        Some(Sign { rule: Rule::Pattern(at), place, weight, is_plain: true })
    };
    shell_words::harmful(&part.text).into_iter().filter_map(sign).collect()
}

/// Whether secrets of a part are replaced. Definitions are listed and not rewritten.
fn is_searched(part: &Part<'_>, channel: Channel) -> bool {
    channel != Channel::Definition && !part.is_name && !is_identifier(part, channel)
}

/// Secrets of each part that is searched: its own, and those of views.
fn secrets_of(
    parts: &[Part<'_>],
    of_parts: Vec<Option<Vec<Secret>>>,
    document: &Document,
    mut of_views: Vec<Secret>,
) -> Vec<Vec<Secret>> {
    of_views.sort_by_key(|secret| secret.place.start);
    let of_part = |(at, (part, own)): (usize, (&Part<'_>, Option<Vec<Secret>>))| {
        let Some(mut found) = own else { return Vec::new() };
        let start = document.start(at);
        let end = start + part.text.len();
        let first = of_views.partition_point(|secret| secret.place.start < start);
        let of_views = of_views[first..].iter().take_while(|secret| secret.place.start < end);
        // A secret that crosses a part's end is left out; the seams are scanned separately.
        let of_views = of_views.filter(|secret| secret.place.end <= end);
        found.extend(of_views.map(|secret| {
            Secret::without_label(secret.kind, secret.place.start - start..secret.place.end - start)
        }));
        certain::sort_and_merge(found)
    };
    parts.iter().zip(of_parts).enumerate().map(of_part).collect()
}

fn is_identifier(part: &Part<'_>, channel: Channel) -> bool {
    is_identifier_at(&part.pointer, channel)
}

/// Whether the sender needs it unchanged.
pub(crate) fn is_identifier_at(pointer: &str, channel: Channel) -> bool {
    let name = pointer.rsplit('/').next().unwrap_or_default();
    let is_data = channel == Channel::Outbound || pointer.starts_with("/structuredContent/");
    TOKENS.contains(&name) || !is_data && IDENTIFIERS.contains(&name)
}

/// The string to forward, if changed.
fn forwarded(
    part: &Part<'_>,
    secrets: &[Secret],
    clean: Option<Clean<'_>>,
    channel: Channel,
) -> Option<String> {
    if part.is_name || is_identifier(part, channel) {
        return None;
    }
    if let Some(clean) = clean.filter(Clean::is_changed) {
        let secrets = clean.secrets(secrets.iter().map(|secret| (secret.kind, secret.place.clone())));
        return Some(secrets::redacted(&clean.into_text(), &secrets));
    }
    (!secrets.is_empty()).then(|| secrets::redacted(&part.text, secrets))
}

/// Signs other than words: characters, links, keys, white space.
fn own_signs(part: &Part<'_>, start: usize, channel: Channel, secrets: &[Secret], signs: &mut Vec<Sign>) {
    let text = part.text.as_ref();
    let mut push = |own: Own, place: Range<usize>, weight: u32| {
        signs.push(Sign {
            rule: Rule::Own(own),
            place: start + place.start..start + place.end,
            weight,
            is_plain: true,
        });
    };
    if channel != Channel::Outbound && !text.is_ascii() {
        let weight = match channel {
            Channel::Definition => HIDDEN_CHARACTER,
            _ => HIDDEN_CHARACTER_IN_OUTPUT,
        };
        // A soft hyphen is legitimate in a result.
        for place in invisible::suspicious(text, 8) {
            if channel == Channel::Definition || &text[place.clone()] != "\u{ad}" {
                push(Own::HiddenCharacters, place, weight);
            }
        }
    }
    // A name is forwarded unchanged or not at all.
    if channel == Channel::Definition && (part.is_name || is_identifier(part, channel)) {
        for (at, letter) in text.char_indices().filter(|(_, letter)| letter.is_control()).take(1) {
            push(Own::HiddenCharacters, at..at + letter.len_utf8(), HIDDEN_CHARACTER);
        }
    }
    if channel == Channel::Outbound {
        return;
    }
    for place in share_links::links(text) {
        push(Own::ShareLink, place, SHARE_LINK);
    }
    // `XXXX` between the lines is not a key.
    let is_key = |secret: &&Secret| {
        let key = text[secret.place.clone()].split("-----").nth(2).unwrap_or_default();
        key.bytes().collect::<BTreeSet<u8>>().len() >= MIN_OF_KEY
    };
    for secret in secrets.iter().filter(|secret| secret.kind == "PRIVATE KEY").filter(is_key) {
        push(Own::PrivateKey, secret.place.clone(), PRIVATE_KEY);
    }
    if let Some(place) = out_of_sight(text) {
        push(Own::ManySpaces, place, OUT_OF_SIGHT);
    }
}

/// Text after a long run of spaces; the run is found by sampling every [`BLANK`] bytes.
fn out_of_sight(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(window) = bytes.get(at..at + BLANK) {
        if let Some(other) = window.iter().rposition(|byte| *byte != b' ') {
            at += other + 1;
            continue;
        }
        let end = at + BLANK + bytes[at + BLANK..].iter().take_while(|byte| **byte == b' ').count();
        if bytes.get(end).is_some_and(|next| !next.is_ascii_whitespace()) {
            return Some(at..end + 1);
        }
        at = end;
    }
    None
}

/// A hidden order weighs more than a visible one.
fn hidden_orders(part: &Part<'_>, start: usize, clean: &Clean<'_>, signs: &mut Vec<Sign>, scan: &mut Scan) {
    signs.extend(clean.orders().map(|place| Sign {
        rule: Rule::Own(Own::HiddenHtml),
        place: start + place.start..start + place.end,
        weight: HIDDEN_ORDER,
        is_plain: false,
    }));
    scan.removals.extend(clean.removals(&part.pointer));
}

/// Scans the seam of two text blocks.
fn scan_seam(
    parts: &[Part<'_>],
    (first, second): (usize, usize),
    document: &Document,
    channel: Channel,
    signs: &mut Vec<Sign>,
    secrets: &mut [Vec<Secret>],
) {
    let (before, after) = (&parts[first].text, &parts[second].text);
    let from = before.ceil_char_boundary(before.len().saturating_sub(SEAM_BYTES));
    let to = after.floor_char_boundary(after.len().min(SEAM_BYTES));
    let joined = format!("{}{}", &before[from..], &after[..to]);
    let middle = before.len() - from;
    let straddles = |place: &Range<usize>| place.start < middle && middle < place.end;
    let start = document.start(first) + from;
    for mut sign in score::signs(&joined, channel).into_iter().filter(|sign| straddles(&sign.place)) {
        sign.place = start + sign.place.start..start + middle;
        signs.push(sign);
    }
    for secret in find_in_views(&joined).into_iter().filter(|secret| straddles(&secret.place)) {
        let head = from + secret.place.start..before.len();
        let tail = 0..secret.place.end - middle;
        for (part, place) in [(first, head), (second, tail)] {
            secrets[part].retain(|other| other.place.end <= place.start || place.end <= other.place.start);
            secrets[part].push(Secret::without_label(secret.kind, place));
            secrets[part].sort_by_key(|secret| secret.place.start);
        }
    }
}

fn findings(
    parts: &[Part<'_>],
    document: &Document,
    signs: &[Sign],
    of_parts: &[Vec<Secret>],
    channel: Channel,
    scan: &mut Scan,
) {
    let (mut seen, mut secrets) = (BTreeSet::new(), BTreeMap::new());
    for sign in signs {
        let Some((at, place)) = document.locate(&sign.place) else { continue };
        let (name, category, severity) = describe(sign.rule);
        // Distinguishes suspicious from near certain.
        let severity = if scan.verdict == Action::Block { severity } else { severity.min(Severity::Medium) };
        if scan.findings.len() >= FINDINGS || !seen.insert((name.clone(), at, place.start / 64)) {
            continue;
        }
        let part = &parts[at];
        let secrets = secrets.entry(at).or_insert_with(|| match of_parts.get(at) {
            Some(known) if !known.is_empty() || is_searched(part, channel) => secrets::redactions("", known),
            _ => secrets::redactions("", &find_in_views(&part.text)),
        });
        scan.findings.push(Finding {
            rule: name,
            category,
            severity,
            pointer: part.pointer.clone(),
            context: context(&part.text, &place, secrets),
            start: place.start,
            end: place.end,
        });
    }
}

fn describe(rule: Rule) -> (String, Category, Severity) {
    match rule {
        Rule::Pattern(at) => Patterns::builtin()
            .rules
            .get(at)
            .map_or((String::new(), Category::Custom, Severity::Low), |rule| {
                (rule.id.clone(), rule.category, rule.severity)
            }),
        Rule::Own(own) => {
            let (category, severity) = match own {
                Own::HiddenCharacters => (Category::HiddenCharacters, Severity::High),
                Own::Disguised => (Category::HiddenCharacters, Severity::Critical),
                Own::HiddenHtml => (Category::HiddenContent, Severity::High),
                Own::ManySpaces => (Category::HiddenContent, Severity::Medium),
                Own::DirectiveParameter => (Category::SchemaIntegrity, Severity::High),
                Own::LongParameter | Own::UnknownKeyword | Own::RemoteReference => {
                    (Category::SchemaIntegrity, Severity::Medium)
                }
                Own::Roles => (Category::HiddenInstructions, Severity::Medium),
                Own::PrivateKey => (Category::PrivateKey, Severity::High),
                Own::ShareLink => (Category::RecommendationPoisoning, Severity::High),
            };
            (own.name().to_owned(), category, severity)
        }
    }
}
