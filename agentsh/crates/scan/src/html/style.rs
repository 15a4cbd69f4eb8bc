//! CSS that hides content.

/// Pixels beyond which content is off-screen.
const OFF_SCREEN_PIXELS: f64 = -900.0;
/// Limit of hidden selectors per text.
const SELECTORS: usize = 256;

/// Why an element with this `style` is invisible.
pub fn why_invisible(style: &str) -> Option<&'static str> {
    let style = without_comments(style).to_ascii_lowercase();
    let declarations = declarations(&style);
    let value =
        |name: &str| declarations.iter().rev().find(|(other, _)| *other == name).map(|(_, value)| *value);
    let is = |name: &str, wanted: &[&str]| value(name).is_some_and(|value| wanted.contains(&value));
    let nothing = |name: &str| value(name).is_some_and(is_nothing);
    let far = |name: &str| value(name).and_then(pixels).is_some_and(|pixels| pixels <= OFF_SCREEN_PIXELS);
    if is("display", &["none"])
        || is("visibility", &["hidden", "collapse"])
        || is("content-visibility", &["hidden"])
    {
        return Some("invisible-style");
    }
    if value("opacity").and_then(number).is_some_and(|number| number < 0.05) {
        return Some("invisible-style");
    }
    if value("font-size").and_then(number).is_some_and(|number| number < 1.5)
        && !is_relative(value("font-size"))
    {
        return Some("invisible-style");
    }
    if (nothing("height") || nothing("max-height") || nothing("width") || nothing("max-width"))
        && is("overflow", &["hidden", "clip"])
    {
        return Some("invisible-style");
    }
    let clipped = value("clip")
        .is_some_and(|clip| clip.starts_with("rect(0") || clip.starts_with("rect(1px,"))
        || value("clip-path").is_some_and(|path| {
            path.contains("inset(50%") || path.contains("inset(100%") || path.contains("circle(0")
        })
        || value("transform").is_some_and(|way| {
            way.contains("scale(0)") || way.contains("translatex(-9") || way.contains("translate(-9")
        })
        || value("filter").is_some_and(|filter| filter.contains("opacity(0"));
    if clipped || is("color", &["transparent", "rgba(0,0,0,0)", "#0000", "#00000000"]) {
        return Some("invisible-style");
    }
    let background = value("background-color").or(value("background"));
    if value("color")
        .is_some_and(|color| background == Some(color) || background.is_some_and(|b| same_white(color, b)))
    {
        return Some("invisible-style");
    }
    let moved = ["left", "top", "right", "bottom", "margin-left", "margin-top", "inset-inline-start"];
    (moved.iter().any(|name| far(name)) || far("text-indent")).then_some("off-screen")
}

/// Whether a style gives an element no width or no height.
pub fn has_no_size(style: &str) -> bool {
    let style = without_comments(style).to_ascii_lowercase();
    declarations(&style).iter().any(|(name, value)| matches!(*name, "width" | "height") && is_nothing(value))
}

fn declarations(style: &str) -> Vec<(&str, &str)> {
    let pairs = style.split(';').filter_map(|declaration| declaration.split_once(':'));
    pairs.map(|(name, value)| (name.trim(), value.trim().trim_end_matches("!important").trim_end())).collect()
}

/// A length in pixels of CSS; a character is 16 and a window 1,000 wide. Without a percentage: slides stand beside each other.
fn pixels(value: &str) -> Option<f64> {
    let value = value.strip_prefix("calc(").map_or(value, |inner| inner.trim_end_matches(')'));
    const UNITS: [(&str, f64); 10] = [
        ("rem", 16.0),
        ("em", 16.0),
        ("ch", 8.0),
        ("vw", 10.0),
        ("vh", 10.0),
        ("in", 96.0),
        ("cm", 37.8),
        ("mm", 3.78),
        ("pt", 1.33),
        ("%", 0.0),
    ];
    let factor = UNITS.iter().find(|(unit, _)| value.ends_with(unit)).map_or(1.0, |(_, factor)| *factor);
    number(value).map(|number| number * factor)
}

fn same_white(color: &str, background: &str) -> bool {
    const WHITE: [&str; 5] = ["white", "#fff", "#ffffff", "rgb(255,255,255)", "rgb(255, 255, 255)"];
    WHITE.contains(&color) && WHITE.contains(&background)
}

/// `0`, `0px`, `1px`: too small for a letter.
pub fn is_nothing(value: &str) -> bool {
    let value = value.trim();
    number(value).is_some_and(|number| (0.0..=1.0).contains(&number)) && !is_relative(Some(value))
}

fn is_relative(value: Option<&str>) -> bool {
    value.is_some_and(|value| {
        number(value).is_some_and(|number| number > 0.0)
            && ["em", "rem", "%", "vw", "vh", "ch"].iter().any(|unit| value.ends_with(unit))
    })
}

fn number(value: &str) -> Option<f64> {
    let value = value.trim();
    let length = value.bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+')).count();
    value[..length].parse().ok()
}

fn without_comments(style: &str) -> String {
    let mut out = String::with_capacity(style.len());
    let mut rest = style;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

/// Classes and ids that a page's style sheets hide.
pub fn hidden_selectors(text: &str) -> Vec<String> {
    let mut selectors = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(offset) = memchr::memmem::find(&bytes[at..], b"<style") {
        let start = at + offset;
        let Some(open) = memchr::memchr(b'>', &bytes[start..]) else { break };
        let from = start + open + 1;
        let end = memchr::memmem::find(&bytes[from..], b"</").map_or(text.len(), |length| from + length);
        for rule in text[from..end].split('}') {
            let Some((names, style)) = rule.split_once('{') else { continue };
            if why_invisible(style).is_none() {
                continue;
            }
            for name in names.split(',').map(str::trim) {
                let simple = name.len() > 1
                    && name.starts_with(['.', '#'])
                    && name[1..].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
                if simple && selectors.len() < SELECTORS {
                    selectors.push(name.to_owned());
                }
            }
        }
        at = end;
    }
    selectors
}
