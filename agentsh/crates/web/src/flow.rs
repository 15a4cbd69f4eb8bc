//! Data flows, as a drawing and as a table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::escape::shorten;
use crate::{Html, Tone};

/// Maximum number of boxes of one column; further ones are combined into one.
const MAX_BOXES: usize = 16;
/// Maximum length of a name in a box, and of a line's label.
const NAME: usize = 64;
const COUNT: usize = 48;

const BOX_HEIGHT: usize = 30;
const STEP: usize = 46;
/// Left of the first column, and how wide a character is at most, in a box and at a line.
const LEFT: usize = 10;
const LETTER: usize = 8;
const SMALL_LETTER: usize = 7;
/// How far a line from server to server curves.
const CURVE_OFFSET: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Agent,
    Server(String),
    /// A host outside, with its port.
    Host(String),
}

impl End {
    fn column(&self) -> usize {
        match self {
            Self::Agent => 0,
            Self::Server(_) => 1,
            Self::Host(_) => 2,
        }
    }

    fn name<'n>(&'n self, agent: &'n str) -> Cow<'n, str> {
        match self {
            Self::Agent => shorten(agent, NAME),
            Self::Server(name) | Self::Host(name) => shorten(name, NAME),
        }
    }
}

/// The data that went from one to the other.
#[derive(Clone, Debug)]
pub struct Edge {
    pub from: End,
    pub to: End,
    /// Such as `12 calls, 3 refused`.
    pub what: String,
    pub tone: Tone,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    pub edges: Vec<Edge>,
}

/// The place of a box: its left upper corner.
type TopLeft = (usize, usize);

struct Drawing<'f> {
    /// The agent's name.
    agent: &'f str,
    /// For each column: its position, and the width of its boxes.
    columns: [(usize, usize); 3],
    width: usize,
    boxes: Vec<(&'f End, TopLeft)>,
    /// Number of boxes of each column for which there was no room.
    left_out: [usize; 3],
    height: usize,
    /// Rows that the servers take.
    servers: usize,
}

impl Flow {
    pub(crate) fn show(&self, html: &mut Html, agent: &str) {
        if self.edges.is_empty() {
            html.leaf("p", "empty", "Nothing was sent to a server or a host.");
            return;
        }
        let drawing = self.make_drawing(agent);
        let region = [
            ("class", "scroll"),
            ("role", "region"),
            ("tabindex", "0"),
            ("aria-label", "Drawing of the flows"),
        ];
        html.element("div", &region, |html| self.draw(html, &drawing));
        if drawing.left_out.iter().any(|count| *count > 0) {
            html.leaf("p", "", "The drawing does not show everything; the table does.");
        }
        html.element("details", &[], |html| {
            html.leaf("summary", "", "The same as a table");
            html.table("Data flows", &["from", "to", "what"], |rows| {
                for edge in &self.edges {
                    rows.row(|cells| {
                        cells.text(&edge.from.name(agent));
                        cells.text(&edge.to.name(agent));
                        cells.text(&edge.what);
                    });
                }
            });
        });
    }

    fn make_drawing<'f>(&'f self, agent: &'f str) -> Drawing<'f> {
        let (columns, width) = self.columns(agent);
        let (mut boxes, mut left_out, mut used) = (Vec::new(), [0; 3], [0; 3]);
        let mut edges_of: BTreeMap<&End, usize> = BTreeMap::new();
        for end in self.edges.iter().flat_map(|edge| [&edge.from, &edge.to]) {
            *edges_of.entry(end).or_default() += 1;
        }
        for column in 0..3 {
            let ends = self.ends(column);
            let (Some(used), Some(left_out), Some((x, _))) =
                (used.get_mut(column), left_out.get_mut(column), columns.get(column))
            else {
                continue;
            };
            let mut shown: Vec<usize> = (0..ends.len()).collect();
            // The boxes with the most edges, in their original order.
            let most = |at: &usize| ends.get(*at).and_then(|end| edges_of.get(*end)).copied().unwrap_or(0);
            shown.sort_by_key(|at| std::cmp::Reverse(most(at)));
            shown.truncate(MAX_BOXES);
            shown.sort_unstable();
            *left_out = ends.len() - shown.len();
            for end in shown.into_iter().filter_map(|at| ends.get(at)) {
                boxes.push((*end, (*x, 10 + *used * STEP)));
                *used += 1;
            }
        }
        let mut rows = [0; 3];
        for (rows, (used, out)) in rows.iter_mut().zip(used.iter().zip(&left_out)) {
            *rows = used + usize::from(*out > 0);
        }
        let [_, servers, _] = rows;
        let height = 20 + rows.into_iter().max().unwrap_or(1) * STEP;
        // A single agent is in the middle of its servers.
        if let Some((_, corner)) = boxes.iter_mut().find(|(end, _)| **end == End::Agent) {
            corner.1 = (height.saturating_sub(BOX_HEIGHT)) / 2;
        }
        Drawing { agent, columns, width, boxes, left_out, height, servers }
    }

    /// The position of each column, the width of its boxes, and the total width, as names and labels require.
    fn columns(&self, agent: &str) -> ([(usize, usize); 3], usize) {
        let mut columns = [(LEFT, 0); 3];
        let mut x = LEFT;
        for (number, column) in columns.iter_mut().enumerate() {
            let names = self.ends(number).into_iter().map(|end| end.name(agent).chars().count());
            let Some(longest) = names.max() else {
                column.0 = x;
                continue;
            };
            // Edges to this column, and edges between its boxes.
            let counts = |is_within: bool| {
                let edges = self.edges.iter().filter(move |edge| {
                    edge.to.column() == number && (edge.from.column() == number) == is_within
                });
                edges.map(|edge| count(edge).chars().count() * SMALL_LETTER).max()
            };
            if number > 0 {
                x += counts(false).unwrap_or(0) + 60;
            }
            *column = (x, (longest.max(12) * LETTER) + 20);
            x += column.1 + counts(true).map_or(0, |count| count + CURVE_OFFSET + 30);
        }
        (columns, x + LEFT)
    }

    /// The ends of one column, in the order of their first use: so hosts are next to the server that reached them.
    fn ends(&self, column: usize) -> Vec<&End> {
        let mut known = BTreeSet::new();
        let all = self.edges.iter().flat_map(|edge| [&edge.from, &edge.to]).chain([&End::Agent]);
        all.filter(|end| end.column() == column && known.insert(*end)).collect()
    }

    fn draw(&self, html: &mut Html, drawing: &Drawing<'_>) {
        let view = format!("0 0 {} {}", drawing.width, drawing.height + 6);
        let (width, height) = (drawing.width.to_string(), (drawing.height + 6).to_string());
        let attributes = [
            ("viewBox", view.as_str()),
            ("width", width.as_str()),
            ("height", height.as_str()),
            ("role", "img"),
            ("aria-labelledby", "flow-title"),
        ];
        html.element("svg", &attributes, |html| {
            let said = format!("Data flows: {}. The table below lists them.", self.edges.len());
            html.element("title", &[("id", "flow-title")], |html| html.text_only(&said));
            html.trusted_markup(
                "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
                 orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>",
            );
            for (number, edge) in self.edges.iter().enumerate() {
                self.line(html, drawing, edge, number);
            }
            for (end, (_, y)) in &drawing.boxes {
                drawing.draw_box(html, &end.name(drawing.agent), end.column(), *y);
            }
            for (column, count) in drawing.left_out.iter().enumerate().filter(|(_, count)| **count > 0) {
                drawing.draw_box(html, &format!("and {count} more"), column, 10 + MAX_BOXES * STEP);
            }
        });
    }

    fn line(&self, html: &mut Html, drawing: &Drawing<'_>, edge: &Edge, number: usize) {
        let corner =
            |wanted: &End| drawing.boxes.iter().find(|(end, _)| *end == wanted).map(|(_, corner)| *corner);
        let (Some((from_x, from_y)), Some((to_x, to_y))) = (corner(&edge.from), corner(&edge.to)) else {
            return;
        };
        let middle = BOX_HEIGHT / 2;
        let [_, servers, _] = drawing.columns;
        let right_of = |column: usize| drawing.columns.get(column).map_or(0, |(x, width)| x + width);
        let x1 = right_of(edge.from.column());
        let (y1, y2) = (from_y + middle, to_y + middle);
        let at = (to_x.saturating_sub(8), y2.saturating_sub(5));
        let (path, at) = if from_x == to_x {
            // From server to server: around the right side.
            let out = x1 + CURVE_OFFSET + (number % 3) * 14;
            (format!("M{x1} {y1}C{out} {y1} {out} {y2} {x1} {y2}"), (out, y1.midpoint(y2)))
        } else if edge.from == End::Agent && edge.to.column() == 2 && drawing.servers > 0 {
            // From the agent itself to a host: below the servers.
            let (left, right, lane) = (servers.0, right_of(1), 10 + drawing.servers * STEP);
            let (down, up) = (x1.midpoint(left), right.midpoint(to_x));
            (
                format!(
                    "M{x1} {y1}C{down} {y1} {down} {lane} {left} {lane}L{right} {lane}C{up} {lane} {up} {y2} {to_x} {y2}"
                ),
                at,
            )
        } else {
            let half = x1.midpoint(to_x);
            (format!("M{x1} {y1}C{half} {y1} {half} {y2} {to_x} {y2}"), at)
        };
        let class = match edge.tone {
            Tone::Good => "edge good",
            Tone::Warn => "edge warn",
            Tone::Bad => "edge bad",
            Tone::Quiet => "edge quiet",
        };
        html.element("path", &[("class", class), ("d", &path), ("marker-end", "url(#tip)")], |html| {
            let [from, to] = [&edge.from, &edge.to].map(|end| end.name(drawing.agent));
            let said = format!("{from} to {to}: {}", edge.what);
            html.leaf("title", "", &said);
        });
        let (x, y) = (at.0.to_string(), at.1.to_string());
        let anchor = if from_x == to_x { "start" } else { "end" };
        let attributes = [("class", "count"), ("x", x.as_str()), ("y", y.as_str()), ("text-anchor", anchor)];
        html.element("text", &attributes, |html| html.text_only(&count(edge)));
    }
}

/// The label of an edge.
fn count(edge: &Edge) -> Cow<'_, str> {
    shorten(&edge.what, COUNT)
}

impl Drawing<'_> {
    fn draw_box(&self, html: &mut Html, name: &str, column: usize, y: usize) {
        let class = ["node agent", "node server", "node host"].get(column).copied().unwrap_or("node");
        let (x, width) = self.columns.get(column).copied().unwrap_or_default();
        html.element("g", &[("class", class)], |html| {
            html.leaf("title", "", name);
            let (left, top) = (x.to_string(), y.to_string());
            let (width, height) = (width.to_string(), BOX_HEIGHT.to_string());
            let place = [
                ("x", left.as_str()),
                ("y", top.as_str()),
                ("width", width.as_str()),
                ("height", height.as_str()),
                ("rx", "6"),
            ];
            html.element("rect", &place, |_| {});
            let (x, y) = ((x + 10).to_string(), (y + 20).to_string());
            html.element("text", &[("x", x.as_str()), ("y", y.as_str())], |html| html.text_only(name));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: End, to: End) -> Edge {
        Edge { from, to, what: "1 call".to_owned(), tone: Tone::Good }
    }

    #[test]
    fn flow_drawing_fits_and_cuts_no_name() {
        let host = "production.cloudflare.docker.example.com:443";
        let mut long = edge(End::Agent, End::Host(host.to_owned()));
        long.what = "1234 connections, 123 refused, 12 MiB out".to_owned();
        let flow = Flow { edges: vec![edge(End::Agent, End::Server("fs".to_owned())), long] };
        let (columns, width) = flow.columns("claude");
        let [(_, agent), (server, _), (to, wide)] = columns;
        assert!(LEFT + agent < server && server < to && to + wide <= width, "{columns:?} {width}");
        let mut html = Html::new(false);
        flow.show(&mut html, "claude");
        let text = html.finish();
        assert!(text.contains(&format!(">{host}</text>")), "{text}");
        assert!(text.contains(">1234 connections, 123 refused, 12 MiB out</text>"), "{text}");
    }

    #[test]
    fn flow_drawing_is_bounded_and_its_table_is_complete() {
        let server = |number: usize| End::Server(format!("server {number:03}"));
        let mut edges: Vec<Edge> = (0..200).map(|number| edge(End::Agent, server(number))).collect();
        edges.push(edge(server(150), End::Host("<host>:443".to_owned())));
        let mut html = Html::new(false);
        Flow { edges }.show(&mut html, "claude");
        let text = html.finish();
        assert_eq!(text.matches("class=\"node server\"").count(), MAX_BOXES + 1, "{text}");
        assert!(text.contains("<title>claude</title>") && !text.contains(">agent<"), "{text}");
        // The servers with the most calls are among those drawn.
        assert!(text.contains("<title>server 150</title>") && text.contains("and 184 more"), "{text}");
        assert!(text.contains("&lt;host&gt;:443") && !text.contains("<host>"), "{text}");
        assert_eq!(text.matches("<tr ").count(), 202, "{text}");
    }
}
