//! The report as one page: no script, nothing from elsewhere, every text of others escaped.

use super::Report;

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .3rem }
ul { margin: 0; padding-left: 1.2rem }
li { font-family: ui-monospace, monospace; font-size: .9rem; overflow-wrap: anywhere; white-space: pre-wrap }
</style>
";

/// A whole document; the lines are those of the text form, all of them.
pub(super) fn page(report: &Report) -> String {
    let title = format!("agentsh session {}", report.summary.session);
    let mut page = format!("{HEAD}<title>{0}</title>\n</head>\n<body>\n<h1>{0}</h1>\n", escaped(&title));
    for (title, lines) in report.summary.sections() {
        push_section(&mut page, title, &lines);
    }
    push_section(&mut page, "chain", &[report.chain.describe()]);
    for line in report.summary.left_out() {
        page.push_str(&format!("<p>{}</p>\n", escaped(&line)));
    }
    page + "</body>\n</html>\n"
}

fn push_section(page: &mut String, title: &str, lines: &[String]) {
    page.push_str(&format!("<h2>{}</h2>\n", escaped(title)));
    if lines.is_empty() {
        page.push_str("<p>nothing</p>\n");
        return;
    }
    page.push_str("<ul>\n");
    for line in lines {
        page.push_str(&format!("<li>{}</li>\n", escaped(line)));
    }
    page.push_str("</ul>\n");
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}
