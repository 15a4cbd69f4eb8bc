//! The server that a resource or task belongs to, as far as the servers' messages show it.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Limit of remembered URIs; others are requested from every server.
const MAX_URIS: usize = 65_536;
/// In bytes, of a URI or task id.
const MAX_TEXT: usize = 8192;
/// Templates that are remembered.
const MAX_TEMPLATES: usize = 4096;
/// Limit of remembered tasks; the oldest are dropped.
const MAX_TASKS: usize = 65_536;

#[derive(Debug, Default)]
pub struct Owners {
    /// The first declared server that listed an address.
    uris: HashMap<Box<str>, usize>,
    /// Pairs of servers that have an address in common, and, for pairs not reported yet, an address.
    told: BTreeSet<(usize, usize)>,
    pub shared: Vec<(usize, usize, Box<str>)>,
    templates: Vec<(usize, Box<str>)>,
    tasks: HashMap<Box<str>, usize>,
    task_order: VecDeque<Box<str>>,
}

impl Owners {
    /// A server listed this address. False if a server that was declared before it has listed it too.
    pub fn note_uri(&mut self, server: usize, uri: &str) -> bool {
        if uri.len() > MAX_TEXT {
            return true;
        }
        let Some(owner) = self.uris.get_mut(uri) else {
            if self.uris.len() < MAX_URIS {
                self.uris.insert(uri.into(), server);
            }
            return true;
        };
        if *owner != server {
            let first = (*owner).min(server);
            let other = (*owner).max(server);
            *owner = first;
            if self.told.insert((first, other)) {
                self.shared.push((first, other, uri.into()));
            }
        }
        *owner == server
    }

    /// A server listed this template.
    pub fn note_template(&mut self, server: usize, template: &str) {
        let is_known =
            self.templates.iter().any(|(owner, known)| *owner == server && known.as_ref() == template);
        if !is_known && template.len() <= MAX_TEXT && self.templates.len() < MAX_TEMPLATES {
            self.templates.push((server, template.into()));
        }
    }

    /// A server created this task. False if another server's task has the same name.
    pub fn note_task(&mut self, server: usize, task: &str) -> bool {
        if let Some(owner) = self.tasks.get(task) {
            return *owner == server;
        }
        if task.len() > MAX_TEXT {
            return true;
        }
        self.tasks.insert(task.into(), server);
        self.task_order.push_back(task.into());
        if self.task_order.len() > MAX_TASKS
            && let Some(oldest) = self.task_order.pop_front()
        {
            self.tasks.remove(&oldest);
        }
        true
    }

    pub fn of_task(&self, task: &str) -> Option<usize> {
        self.tasks.get(task).copied()
    }

    /// The server that listed the URI.
    pub fn of_uri(&self, uri: &str) -> Option<usize> {
        self.uris.get(uri).copied()
    }

    /// Servers with a template that matches, in order.
    pub fn of_template(&self, uri: &str) -> BTreeSet<usize> {
        let fitting = self
            .templates
            .iter()
            .filter(|(_, template)| template.as_ref() == uri || matches_template(template, uri));
        fitting.map(|(server, _)| *server).collect()
    }
}

/// Whether a URI matches a template: its fixed parts occur in order, anchored at both ends.
fn matches_template(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{').map(|part| part.split_once('}').map_or(part, |(_, fixed)| fixed));
    let Some(mut rest) = parts.next().and_then(|first| uri.strip_prefix(first)) else { return false };
    let Some(mut last) = parts.next() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(last) else { return false };
        rest = rest.get(at + last.len()..).unwrap_or_default();
        last = part;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_by_their_fixed_parts() {
        for (template, uri, expected) in [
            ("file:///{path}", "file:///a/b", true),
            ("file:///{path}", "https://a", false),
            ("x://{a}/y/{b}.txt", "x://1/y/2.txt", true),
            ("x://{a}/y/{b}.txt", "x://1/z/2.txt", false),
            ("x://{a}/y/{b}.txt", "x://1/y/2.md", false),
            ("x://fixed", "x://fixed", true),
            ("x://fixed", "x://fixed/more", false),
            ("{+all}", "anything", true),
            ("x:{broken", "x:y", false),
        ] {
            assert_eq!(matches_template(template, uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn resource_belongs_to_the_server_that_listed_it_and_a_task_to_one() {
        let mut owners = Owners::default();
        assert!(owners.note_uri(2, "x:1") && owners.note_uri(0, "x:1"));
        assert!(!owners.note_uri(2, "x:1") && owners.note_uri(2, "x:2"));
        assert_eq!(owners.shared, [(0, 2, "x:1".into())]);
        owners.note_template(1, "x:{id}");
        assert_eq!(
            (owners.of_uri("x:1"), owners.of_uri("x:2"), owners.of_uri("x:7")),
            (Some(0), Some(2), None)
        );
        assert_eq!(owners.of_template("x:7"), BTreeSet::from([1]));
        assert_eq!(owners.of_template("y:7"), BTreeSet::new());
        assert!(owners.note_task(0, "t") && owners.note_task(0, "t"));
        assert!(!owners.note_task(1, "t"));
        assert_eq!(owners.of_task("t"), Some(0));
    }
}
