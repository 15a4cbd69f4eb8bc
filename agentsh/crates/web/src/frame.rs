//! The frame of every page.

use crate::{Href, Html, STYLE};

/// The parts that the navigation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Now,
    Sessions,
    Servers,
    Registry,
    Approvals,
    Policy,
    Hosts,
    People,
}

impl Place {
    /// The pages of a fleet.
    const FLEET: [(Self, &'static str, &'static str); 6] = [
        (Self::Now, "Now", ""),
        (Self::Hosts, "Hosts", "hosts"),
        (Self::Sessions, "Sessions", "sessions"),
        (Self::Servers, "Servers", "servers"),
        (Self::Approvals, "Approvals", "approvals"),
        (Self::People, "People", "people"),
    ];
    const REGISTRY: [(Self, &'static str, &'static str); 1] = [(Self::Registry, "Registry", "")];
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Now, "Now", ""),
        (Self::Sessions, "Sessions", "sessions"),
        (Self::Servers, "Servers", "servers"),
        (Self::Registry, "Registry", "registry"),
        (Self::Approvals, "Approvals", "approvals"),
        (Self::Policy, "Policy", "policy"),
    ];
}

/// Around a page.
#[derive(Clone, Debug)]
pub struct Frame {
    pub title: String,
    pub here: Place,
    /// Questions that wait for an answer.
    pub waiting: usize,
    /// Goes back with every form.
    pub token: String,
    /// The newest event that the page knows of. None: the page is not kept up to date.
    pub newest: Option<i64>,
    pub of: Pages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// `agentsh ui`.
    Machine,
    /// A fleet: the signed-in person and the role.
    Fleet { name: String, role: String },
    /// `agentsh registry serve`. These pages have no script.
    Registry,
}

impl Frame {
    /// The whole document.
    pub(crate) fn document(&self, body: impl FnOnce(&mut Html)) -> String {
        let mut html = Html::new(false);
        html.trusted_markup("<!doctype html>\n");
        html.element("html", &[("lang", "en")], |html| {
            html.element("head", &[], |html| {
                head(html, &self.title);
                html.void_element("link", &[("rel", "stylesheet"), ("href", "/style.css")]);
                if self.of != Pages::Registry {
                    html.element("script", &[("src", "/live.js"), ("defer", "")], |_| {});
                }
            });
            let newest = self.newest.map(|newest| newest.to_string());
            let live = newest.as_ref().map(|newest| [("data-newest", newest.as_str())]);
            html.element("body", live.as_ref().map_or(&[], |live| live.as_slice()), |html| {
                html.trusted_markup("<a class=\"skip\" href=\"#main\">Skip to the content</a>");
                html.element("header", &[], |html| self.navigation(html));
                html.element("main", &[("id", "main"), ("tabindex", "-1")], |html| {
                    html.leaf("h1", "", &self.title);
                    body(html);
                });
                html.element("footer", &[], |html| {
                    html.element("p", &[("id", "live"), ("role", "status"), ("aria-live", "polite")], |_| {});
                    self.end(html);
                });
            });
        });
        html.finish()
    }

    fn end(&self, html: &mut Html) {
        let (name, role) = match &self.of {
            Pages::Machine => return html.trusted_markup("<p>Everything here stays on this machine.</p>"),
            Pages::Registry => return,
            Pages::Fleet { name, role } => (name, role),
        };
        html.element("form", &[("method", "post"), ("action", "/sign-out")], |html| {
            html.void_element("input", &[("type", "hidden"), ("name", "token"), ("value", &self.token)]);
            html.text(&format!("Signed in as {name} ({role}). "));
            html.element("button", &[("type", "submit")], |html| html.text("Sign out"));
        });
    }

    fn navigation(&self, html: &mut Html) {
        let places: &[_] = match self.of {
            Pages::Machine => &Place::ALL,
            Pages::Fleet { .. } => &Place::FLEET,
            Pages::Registry => &Place::REGISTRY,
        };
        html.element("nav", &[("aria-label", "Pages")], |html| {
            html.leaf("span", "brand", "agentsh");
            html.element("ul", &[], |html| {
                for &(place, name, path) in places {
                    html.element("li", &[], |html| {
                        let to = if path.is_empty() { Href::to(&[]) } else { Href::to(&[path]) };
                        let mut attributes = vec![("href", to.as_str())];
                        if place == self.here {
                            attributes.push(("aria-current", "page"));
                        }
                        html.element("a", &attributes, |html| {
                            html.text(name);
                            if place == Place::Approvals {
                                html.element("span", &[("id", "waiting"), ("data-live", "")], |html| {
                                    if self.waiting > 0 {
                                        html.text(" ");
                                        html.leaf("span", "badge", &format!("{} waiting", self.waiting));
                                    }
                                });
                            }
                        });
                    });
                }
            });
        });
    }
}

/// A complete document that loads no other file.
pub(crate) fn standalone_document(title: &str, body: impl FnOnce(&mut Html)) -> String {
    let mut html = Html::new(true);
    html.trusted_markup("<!doctype html>\n");
    html.element("html", &[("lang", "en")], |html| {
        html.element("head", &[], |html| {
            html.trusted_markup(
                "<meta http-equiv=\"Content-Security-Policy\" \
                 content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">",
            );
            head(html, title);
            html.element("style", &[], |html| html.trusted_markup(STYLE));
        });
        html.element("body", &[], |html| {
            html.element("main", &[("id", "main")], |html| {
                html.leaf("h1", "", title);
                body(html);
            });
        });
    });
    html.finish()
}

fn head(html: &mut Html, title: &str) {
    html.trusted_markup(
        "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    );
    html.trusted_markup("<meta name=\"color-scheme\" content=\"light dark\">");
    html.leaf("title", "", &format!("{title} - agentsh"));
}

/// A short answer: what was done, or why not.
#[derive(Clone, Debug)]
pub struct Message {
    pub title: String,
    pub lines: Vec<String>,
    pub back: Option<(Href, String)>,
}

#[must_use]
pub fn message(frame: &Frame, message: &Message) -> String {
    frame.document(|html| {
        for line in &message.lines {
            html.leaf("p", "", line);
        }
        if let Some((to, text)) = &message.back {
            html.element("p", &[], |html| html.link(to, text));
        }
    })
}

/// The answer to the one-time link: a page of our own, from which the first page is requested with the cookie.
#[must_use]
pub fn opened_page() -> String {
    let mut html = Html::new(false);
    html.trusted_markup(
        "<!doctype html>\n<html lang=\"en\"><head><meta http-equiv=\"refresh\" content=\"0;url=/\">",
    );
    head(&mut html, "Opened");
    html.trusted_markup(
        "</head><body><main><h1>agentsh</h1><p><a href=\"/\">Go on to the page</a></p></main></body></html>",
    );
    html.finish()
}
