//! Searches long arguments on another thread, with a copy of the memory.
//!
//! What comes in while it runs was not there when the arguments were sent, so nothing is missed. What goes to the same
//! server in the meantime may be another piece of the same text: then the search is made once more where everything is known.

use std::any::Any;

use agentsh_base::json::Json;
use agentsh_dlp::flow::labels::Sink;
use agentsh_dlp::flow::{Flow, Judged, Labels};
use agentsh_dlp::taint::Leaves;
use agentsh_dlp::threads::side_by_side;
use agentsh_dlp::{Forbidden, Views, forbidden};
use agentsh_guard::content::marker_rewrites;
use agentsh_guard::{PrecomputeJob, Rewrite, Subject, SubjectKind};

use super::settings::Destinations;
use super::{Content, OF_PROTOCOL, apply_rewrites, names_places, since_1970};

/// The findings, and the state for which they are valid.
pub(super) struct PrecomputedSearch {
    pub labels: Labels,
    /// How many messages to the server had been judged before.
    pub calls: u64,
    /// None: what is remembered was not searched.
    pub flow: Option<(Judged, Flow)>,
    pub place: Option<Forbidden>,
}

struct Search {
    labels: Labels,
    calls: u64,
    flow: Option<Flow>,
    destinations: Option<Destinations>,
    views: Views,
}

impl Content {
    pub(super) fn search_ahead(&mut self, subject: &Subject<'_>) -> Option<Box<dyn PrecomputeJob>> {
        let (carried, may_name) = sent_value(&subject.matter)?;
        // Otherwise it is done here, once more for the text around each marker.
        if !marker_rewrites(carried, |text| self.flow.without_markers(text)).is_empty() {
            return None;
        }
        self.catch_up_now();
        let server = subject.server;
        let labels = self.labels(server);
        let flow = self.flow.copy_for(server, labels, carried.length());
        let destinations = self.settings.destinations.clone().filter(|_| may_name);
        (flow.is_some() || destinations.is_some()).then(|| {
            let calls = self.judged.get(server).copied().unwrap_or_default();
            Box::new(Search { labels, calls, flow, destinations, views: self.views })
                as Box<dyn PrecomputeJob>
        })
    }
}

impl PrecomputeJob for Search {
    fn search(self: Box<Self>, subject: &Subject<'_>, rewrites: &mut Vec<Rewrite>) -> Box<dyn Any + Send> {
        let Self { labels, calls, flow: mut copy, destinations, views } = *self;
        let tool = subject.matter.name();
        let carried = sent_value(&subject.matter).map_or(&Json::Null, |(carried, _)| carried);
        let carried = apply_rewrites(carried, rewrites);
        let call = Leaves::of_call(tool, &carried);
        let list = destinations.filter(|_| names_places(tool, &carried));
        let (judged, place) = side_by_side(
            call.length(),
            || copy.as_mut().map(|flow| flow.judge(subject.server, labels, &call, since_1970(), &views)),
            || forbidden(&call, &list.as_ref()?.allowed, labels.sink == Sink::Local, &views.limits),
        );
        Box::new(PrecomputedSearch { labels, calls, flow: judged.zip(copy), place })
    }
}

/// The value that is sent, and whether a place that it names is a destination.
fn sent_value<'a>(matter: &SubjectKind<'a>) -> Option<(&'a Json<'a>, bool)> {
    match *matter {
        SubjectKind::Call { arguments, .. } => Some((arguments?, true)),
        SubjectKind::Request { method, params } => Some((params?, !OF_PROTOCOL.contains(&method))),
        SubjectKind::Around { rest, .. } => Some((rest, false)),
        SubjectKind::Answer { result, .. } => Some((result, false)),
        _ => None,
    }
}
