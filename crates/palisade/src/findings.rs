//! Findings of `lint` as sentences, each with its position in a file.

mod code;
mod messages;
mod place;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use palisade_api::{
    Kind, Located, Locator, Object, PathStep, Problem, Related, Severity, Source, SourceId, Span,
    path_text,
};
use palisade_core::analysis::affect::Decider;
use palisade_core::analysis::lint::{Finding, FindingTarget};
use palisade_core::model::Cluster;
use palisade_core::text::object_id;
use rayon::prelude::*;

pub(crate) use self::code::{IgnoreCode, LintCode};
pub(crate) use self::place::{peers_of, steps};
use crate::report::flow::NamedFlow;

/// A finding, ready to be printed.
#[derive(Clone, Debug)]
pub(crate) struct LocatedFinding {
    pub(crate) code: LintCode,
    /// The object, by its index among the objects.
    pub(crate) object: Option<usize>,
    /// The id of the object.
    pub(crate) object_id: Option<String>,
    /// The namespace of the object.
    pub(crate) namespace: Option<String>,
    /// The field.
    pub(crate) path: Option<String>,
    /// The position; `None` for a finding without an object.
    pub(crate) place: Option<(SourceId, Span)>,
    /// One sentence, lower case, no full stop.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
    /// A related place.
    pub(crate) related: Option<Related>,
    /// The rules with the finding, and the rules that cause it.
    pub(crate) rules: Vec<String>,
    /// A flow that shows it.
    pub(crate) witness: Option<NamedFlow>,
    /// Whether it holds for any pods; `None` for a problem of reading.
    pub(crate) always: Option<bool>,
    /// The finding of the engine, if it is one.
    pub(crate) finding: Option<Finding>,
}

impl LocatedFinding {
    pub(crate) fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Formats the object and the field.
    pub(crate) fn context(&self) -> Option<String> {
        match (&self.object_id, &self.path) {
            (Some(object), Some(path)) => Some(format!("{object} {path}")),
            (Some(object), None) => Some(object.clone()),
            (None, path) => path.clone(),
        }
    }
}

/// Adds sentences and positions to findings.
pub(crate) struct FindingLocator<'t> {
    cluster: &'t Cluster<'t>,
    objects: &'t [Object<'t>],
    sources: &'t [Source],
    locators: RefCell<BTreeMap<SourceId, Locator<'t>>>,
    ids: Arc<HashMap<String, usize>>,
}

/// Maps ids to the indexes of objects.
pub(crate) fn ids(objects: &[Object<'_>]) -> Arc<HashMap<String, usize>> {
    let ids = objects.par_iter().enumerate();
    Arc::new(ids.map(|(index, object)| (object.id(), index)).collect())
}

impl<'t> FindingLocator<'t> {
    pub(crate) fn new(
        cluster: &'t Cluster<'t>,
        objects: &'t [Object<'t>],
        sources: &'t [Source],
        ids: Arc<HashMap<String, usize>>,
    ) -> FindingLocator<'t> {
        FindingLocator {
            cluster,
            objects,
            sources,
            locators: RefCell::default(),
            ids,
        }
    }

    /// Locates a finding of the engine.
    pub(crate) fn finding(&self, finding: &Finding) -> LocatedFinding {
        let index = self.object_of(finding.at);
        let object = index.and_then(|index| self.objects.get(index));
        let steps = object
            .map(|object| steps(object, finding.at))
            .unwrap_or_default();
        let place = object.map(|object| self.place(object, &steps));
        let (message, help) = messages::sentence(self.cluster, finding);
        LocatedFinding {
            code: LintCode::Engine(finding.code),
            object: index,
            object_id: Some(match object {
                Some(object) => object.id(),
                None => messages::name(self.cluster, finding.at),
            }),
            namespace: object.and_then(|it| it.namespace().map(str::to_owned)),
            path: path_text(&steps),
            place,
            message,
            help: Some(help),
            related: self.related(finding),
            rules: self.rules(finding),
            witness: finding
                .witness
                .as_ref()
                .map(|it| NamedFlow::of_witness(self.cluster, it)),
            always: Some(finding.always),
            finding: Some(finding.clone()),
        }
    }

    /// Converts a problem of reading.
    pub(crate) fn problem(&self, problem: &Problem) -> LocatedFinding {
        let object = problem.object.as_ref();
        let object = object.and_then(|id| self.ids.get(id)).copied();
        let namespace = object.and_then(|it| self.objects.get(it)?.namespace());
        LocatedFinding {
            code: LintCode::Reading(problem.code),
            object,
            object_id: problem.object.clone(),
            namespace: namespace.map(str::to_owned),
            path: problem.path.clone(),
            place: Some((problem.source, problem.span)),
            message: problem.message.clone(),
            help: problem.help.clone(),
            related: problem.related.clone(),
            rules: Vec::new(),
            witness: None,
            always: None,
            finding: None,
        }
    }

    /// Locates a field of an object, with its key.
    pub(crate) fn locate(&self, object: &Object<'_>, path: &[PathStep<'_>]) -> Option<Located> {
        let source = self.sources.get(object.source.0 as usize)?;
        let mut locators = self.locators.borrow_mut();
        let locator = locators
            .entry(object.source)
            .or_insert_with(|| Locator::new(source));
        locator.locate(object, path)
    }

    /// Returns the position of a field, or of the nearest field around it.
    fn place(&self, object: &Object<'_>, path: &[PathStep<'_>]) -> (SourceId, Span) {
        let mut path = path;
        while let Some((_, before)) = path.split_last() {
            if let Some(located) = self.locate(object, path) {
                return (object.source, located.value);
            }
            path = before;
        }
        (object.source, object.metadata.name_span)
    }

    /// Returns the object of a finding.
    fn object_of(&self, at: FindingTarget) -> Option<usize> {
        match at {
            FindingTarget::Policy(id) | FindingTarget::Subject(id) => self.policy_object(id.0),
            FindingTarget::Rule(place)
            | FindingTarget::Peer(place, _)
            | FindingTarget::Port(place, _) => self.policy_object(place.policy.0),
            FindingTarget::Pod(id) => {
                let pod = self.cluster.pods.get(id.0 as usize)?;
                Some(pod.origin.0 as usize)
            }
            FindingTarget::Namespace(id) => {
                let name = self.cluster.namespace_name(id);
                let id = object_id(Kind::Namespace.short(), "", name);
                self.ids.get(&id).copied()
            }
            FindingTarget::Service(id) => {
                let service = self.cluster.services.get(id.0 as usize)?;
                let namespace = self.cluster.namespace_name(service.namespace);
                let id = object_id(Kind::Service.short(), namespace, service.name);
                self.ids.get(&id).copied()
            }
        }
    }

    fn policy_object(&self, id: u32) -> Option<usize> {
        let policy = self.cluster.policies.get(id as usize)?;
        Some(policy.origin.0 as usize)
    }

    /// Returns the first of the rules that cause a finding.
    fn related(&self, finding: &Finding) -> Option<Related> {
        let rule = finding.by.iter().find_map(|part| part.rule())?;
        let object = self.objects.get(self.policy_object(rule.policy.0)?)?;
        let span = object.rule_span(rule.direction, rule.index as usize)?;
        Some(Related {
            source: object.source,
            span,
            label: "because of this rule",
        })
    }

    /// Returns the rule of a finding, then the rules that cause it.
    fn rules(&self, finding: &Finding) -> Vec<String> {
        let own = match finding.at {
            FindingTarget::Rule(place)
            | FindingTarget::Peer(place, _)
            | FindingTarget::Port(place, _) => Some(place),
            FindingTarget::Policy(_)
            | FindingTarget::Subject(_)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => None,
        };
        let by = finding.by.iter().filter_map(|part: &Decider| part.rule());
        let mut rules: Vec<String> = Vec::new();
        for place in own.into_iter().chain(by) {
            let rule = self.cluster.rule_name(place);
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules
    }
}
