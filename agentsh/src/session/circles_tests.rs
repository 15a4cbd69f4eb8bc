//! No circle between the files of a session, nor between those of each part of the engine that watches what leaves: each
//! can be read with everything below it, and without anything above it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_file_is_reached_from_what_it_uses() {
    for (part, path, least, (user, used)) in [
        ("src/session", "crate::session::", 45, ("run", "process")),
        ("crates/dlp/src", "crate::", 7, ("flow", "taint")),
        ("crates/dlp/src/destination", "crate::destination::", 10, ("find", "mail")),
        ("crates/dlp/src/flow", "crate::flow::", 2, ("decide", "labels")),
        ("crates/dlp/src/taint", "crate::taint::", 30, ("judge", "memory")),
        ("crates/dlp/src/text", "crate::text::", 20, ("views", "walk")),
    ] {
        let graph = graph(part, path);
        assert!(graph.len() >= least, "{part} {}", graph.len());
        assert!(graph.get(user).is_some_and(|all| all.contains(used)), "{part}");
        for file in graph.keys() {
            let (mut seen, mut way) = (BTreeSet::new(), vec![file.clone()]);
            assert!(!leads_to(&graph, file, file, &mut seen, &mut way), "a circle: {}", way.join(" -> "));
        }
    }
}

fn leads_to(graph: &Graph, from: &str, to: &str, seen: &mut BTreeSet<String>, way: &mut Vec<String>) -> bool {
    for used in graph.get(from).into_iter().flatten() {
        if used == to {
            way.push(used.clone());
            return true;
        }
        if seen.insert(used.clone()) {
            way.push(used.clone());
            if leads_to(graph, used, to, seen, way) {
                return true;
            }
            way.pop();
        }
    }
    false
}

fn graph(part: &str, path: &str) -> Graph {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(part);
    let mut files = Vec::new();
    sources(&root, &mut files);
    let parts = |file: &Path| -> Vec<String> {
        let below = file.strip_prefix(&root).unwrap().with_extension("");
        let mut parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.pop_if(|last| last == "mod");
        parts
    };
    let names: BTreeSet<String> = files.iter().filter_map(|file| parts(file).into_iter().next()).collect();
    let mut graph = Graph::new();
    for file in &files {
        let parts = parts(file);
        let Some(own) = parts.first() else { continue };
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let used = graph.entry(own.clone()).or_default();
        for start in [path.to_owned(), "super::".repeat(parts.len())] {
            used.extend(after(&code, &start).filter(|name| name != own && names.contains(name)));
        }
    }
    graph
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("tests") {
            files.push(path);
        }
    }
}

/// The first names of the paths that continue after `start`: of `start::{a, b::c}` they are `a` and `b`.
fn after<'c>(code: &'c str, start: &'c str) -> impl Iterator<Item = String> + 'c {
    let is_whole = |at: &usize| !code.get(..*at).is_some_and(|before| before.ends_with([':', '_']));
    let places = code.match_indices(start).map(|(at, _)| at).filter(is_whole);
    places.flat_map(move |at| first_names(code.get(at + start.len()..).unwrap_or_default()))
}

fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect()
    };
    let Some(list) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut names, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, sign) in list.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(list.get(begin..at).unwrap_or_default()));
                begin = at + 1;
                if sign == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}
