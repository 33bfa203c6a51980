//! The objects of a live cluster, on their way to the process that builds a lab.

use std::borrow::Cow;

use palisade_api::{OtherPolicyKind, Source};
use palisade_kube::Resource;
use serde::{Deserialize, Serialize};

use crate::live::{LiveInput, Scope, UnreadKind};

/// The sources, and the unread kinds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandoverView<'a> {
    sources: Vec<SourceView<'a>>,
    missing: Vec<MissingView<'a>>,
    other_policies: Vec<OtherView<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SourceView<'a> {
    name: Cow<'a, str>,
    text: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MissingView<'a> {
    group: Cow<'a, str>,
    plural: Cow<'a, str>,
    words: Cow<'a, str>,
    read: Cow<'a, [String]>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OtherView<'a> {
    group: Cow<'a, str>,
    kind: Cow<'a, str>,
    count: usize,
}

impl<'a> HandoverView<'a> {
    pub(crate) fn new(live: &'a LiveInput) -> HandoverView<'a> {
        let sources = live.sources.iter().map(|it| SourceView {
            name: it.name().into(),
            text: it.text().into(),
        });
        let missing = live.missing.iter().map(|it| MissingView {
            group: it.resource.group.into(),
            plural: it.resource.plural.into(),
            words: it.words.as_str().into(),
            read: it.read.as_slice().into(),
        });
        let other_policies = live.other_policies.iter().map(|(it, count)| OtherView {
            group: it.group.into(),
            kind: it.kind.into(),
            count: *count,
        });
        HandoverView {
            sources: sources.collect(),
            missing: missing.collect(),
            other_policies: other_policies.collect(),
        }
    }

    /// Converts back; `None` if it names an unknown resource.
    pub(crate) fn live(self) -> Option<LiveInput> {
        let source = |it: SourceView<'_>| Source::new(it.name, it.text.into_owned().into_bytes());
        let resource = |group: &str, plural: &str| {
            let mut all = Scope::Everything
                .kinds()
                .into_iter()
                .filter_map(Resource::of);
            all.find(|it| it.group == group && it.plural == plural)
        };
        let missing = |it: MissingView<'_>| {
            Some(UnreadKind {
                resource: resource(&it.group, &it.plural)?,
                words: it.words.into_owned(),
                read: it.read.into_owned(),
            })
        };
        let other = |it: OtherView<'_>| {
            let kind = OtherPolicyKind::of(&it.group, &it.kind)?;
            Some((kind, it.count))
        };
        let other_policies = self.other_policies.into_iter().map(other);
        Some(LiveInput {
            other_policies: other_policies.collect::<Option<_>>()?,
            sources: self.sources.into_iter().map(source).collect(),
            missing: self
                .missing
                .into_iter()
                .map(missing)
                .collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_arrives() {
        let pods = Scope::Everything.kinds().into_iter().find_map(Resource::of);
        let live = LiveInput {
            sources: vec![Source::new(
                "cluster:pods",
                b"{\"kind\": \"\\u0000\"}\n".to_vec(),
            )],
            missing: vec![UnreadKind {
                resource: pods.unwrap(),
                words: "no \"right\"\n".to_owned(),
                read: vec!["a".to_owned()],
            }],
            other_policies: OtherPolicyKind::all().map(|it| (it, 7)).collect(),
        };
        let text = serde_json::to_string(&HandoverView::new(&live)).unwrap();
        let view: HandoverView<'_> = serde_json::from_str(&text).unwrap();
        let arrived = view.live().unwrap();
        assert_eq!(arrived.missing, live.missing);
        assert_eq!(arrived.other_policies, live.other_policies);
        let all = |it: &LiveInput| {
            let each = it.sources.iter();
            let each = each.map(|it| (it.name().to_owned(), it.text().to_owned()));
            each.collect::<Vec<_>>()
        };
        assert_eq!(all(&arrived), all(&live));
    }
}
