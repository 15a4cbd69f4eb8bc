//! The routes of a server as its router lists them: a test that iterates over them also covers routes that are added
//! later.

/// Function names of a router for methods.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: String,
    /// With a value in place of each parameter.
    pub path: String,
}

impl Route {
    pub fn changes(&self) -> bool {
        self.method != "GET"
    }
}

/// Every `.route("PATH", METHOD(…)…)` of a source text. `value` takes the place of parameters.
pub fn of_router(source: &str, value: &str) -> Vec<Route> {
    let mut routes = Vec::new();
    for entry in source.split(".route(").skip(1) {
        let entry = entry.split("\n        .").next().unwrap_or_default();
        let (path, handlers) =
            entry.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')).expect(entry);
        let path: Vec<&str> =
            path.split('/').map(|part| if part.starts_with('{') { value } else { part }).collect();
        let before = routes.len();
        for method in METHODS {
            let is_word = |at: usize| {
                !handlers
                    .get(..at)
                    .unwrap_or_default()
                    .ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':')
            };
            if handlers.match_indices(&format!("{method}(")).any(|(at, _)| is_word(at)) {
                routes.push(Route { method: method.to_uppercase(), path: path.join("/") });
            }
        }
        assert!(routes.len() > before, "a route whose method this test does not know: {entry}");
    }
    assert!(!routes.is_empty(), "no routes");
    routes
}

/// Every arm `("METHOD", ["WORD", parameter, …])` of a source text, for the same.
pub fn of_match(source: &str, value: &str) -> Vec<Route> {
    let arms = source.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", ["));
    let routes = arms.map(|(method, rest)| {
        let words = rest.split(']').next().unwrap_or_default().split(", ");
        let path = words.flat_map(|word| ["/", word.split('"').nth(1).unwrap_or(value)]).collect();
        Route { method: method.to_owned(), path }
    });
    let routes: Vec<_> = routes.collect();
    assert!(!routes.is_empty(), "no routes");
    routes
}
