//! The package archives of the machine's apt that are enabled.

use std::path::{Path, PathBuf};

/// Every archive over HTTP that a file of sources names, with the file. `read` gives the text of one.
#[must_use]
pub fn archives(read: impl Fn(&Path) -> String) -> Vec<(String, String)> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut more: Vec<PathBuf> = more.map(|entry| entry.path()).collect();
    more.sort();
    files.extend(more);
    let mut found = Vec::new();
    for file in files {
        let urls = match file.extension().and_then(|ending| ending.to_str()) {
            Some("list") => of_lines(&read(&file)),
            Some("sources") => of_stanzas(&read(&file)),
            _ => continue,
        };
        let said_by = file.display().to_string();
        found.extend(urls.into_iter().map(|url| (url, said_by.clone())));
    }
    found
}

/// Lines of `deb [OPTIONS] URL SUITE ...`.
fn of_lines(text: &str) -> Vec<String> {
    let url = |line: &str| {
        let (kind, rest) = line.trim_start().split_once([' ', '\t'])?;
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let url = rest.split_whitespace().next()?;
        (matches!(kind, "deb" | "deb-src") && is_http(url)).then(|| url.to_owned())
    };
    text.lines().filter_map(url).collect()
}

/// Stanzas of fields, with an empty line between two of them: `URIs: URL ...`, unless `Enabled` says no.
fn of_stanzas(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.is_empty()) {
        let fields = fields(stanza);
        let named = |wanted: &'static str| {
            fields.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        // A word that means neither yes nor no does not count as yes.
        let is_yes = |value: &String| {
            let words = ["yes", "true", "with", "on", "enable", "1"];
            words.iter().any(|word| value.trim().eq_ignore_ascii_case(word))
        };
        if named("Enabled").all(is_yes) {
            let urls = named("URIs").flat_map(|value| value.split_whitespace());
            found.extend(urls.filter(|url| is_http(url)).map(str::to_owned));
        }
    }
    found
}

/// Names and values; a line that begins with a space continues the value before it.
fn fields<'a>(stanza: &[&'a str]) -> Vec<(&'a str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in stanza {
        match (line.starts_with([' ', '\t']), fields.last_mut()) {
            (true, Some((_, value))) => *value += line,
            (true, None) => {}
            (false, _) => fields.extend(line.split_once(':').map(|(name, value)| (name, value.to_owned()))),
        }
    }
    fields
}

fn is_http(url: &str) -> bool {
    url.starts_with("http")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_list_lines_name_archives() {
        let text = "# deb http://old.example/x a\ndeb [signed-by=/k] https://one.example/debian a main\n\
                    deb-src\t[ arch=amd64 ]\thttp://two.example/d b # http://three.example\ndeb file:/x a\n\
                    debug http://four.example a\n";
        assert_eq!(of_lines(text), ["https://one.example/debian", "http://two.example/d"]);
    }

    #[test]
    fn disabled_apt_stanzas_name_no_archive() {
        let stanza = |lines: &str| format!("Types: deb\nURIs: http://a.example\n{lines}Suites: s\n");
        for on in ["", "Enabled: yes\n", "enabled: TRUE\n", "# Enabled: no\n", "Enabled: 1\r\n"] {
            assert_eq!(of_stanzas(&stanza(on)), ["http://a.example"], "{on:?}");
        }
        for off in [
            "Enabled: no\n",
            "enabled:NO\n",
            "Enabled: false\n",
            "Enabled:\n no\n",
            "# why\nEnabled: no\n",
            // A line of spaces ends no stanza.
            " \nEnabled: no\n",
            "Enabled: no\nEnabled: yes\n",
            "Enabled: perhaps\n",
        ] {
            assert_eq!(of_stanzas(&stanza(off)), [""; 0], "{off:?}");
        }
        let several = "Types: deb\nURIs: http://a.example\n# more\n https://b.example file:/x\nSuites: s\n\r\n\
                       Enabled: no\nURIs: http://c.example\n\n\nURIs: http://d.example\n";
        assert_eq!(of_stanzas(several), ["http://a.example", "https://b.example", "http://d.example"]);
    }
}
