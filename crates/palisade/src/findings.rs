//! Findings of `lint` in words, each at its place in a file.

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
use palisade_core::affect::Decider;
use palisade_core::lint::{Finding, FindingTarget};
use palisade_core::model::Cluster;
use palisade_core::program::RulePlace;
use rayon::prelude::*;

pub(crate) use self::code::{IgnoreCode, LintCode};
pub(crate) use self::place::{peers_of, steps};
use crate::view::affecting::WitnessView;

/// A finding, ready to be printed.
#[derive(Clone, Debug)]
pub(crate) struct LocatedFinding {
    pub(crate) code: LintCode,
    /// The object that it is about, by its place among the objects.
    pub(crate) object: Option<usize>,
    /// What the object is called.
    pub(crate) object_id: Option<String>,
    /// The namespace that the object lives in.
    pub(crate) namespace: Option<String>,
    /// The field.
    pub(crate) path: Option<String>,
    /// Where it stands; a thing without an object stands nowhere.
    pub(crate) place: Option<(SourceId, Span)>,
    /// One sentence, lower case, no full stop.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
    /// Another place to look at.
    pub(crate) related: Option<Related>,
    /// The rules that are meant, and those that make it so.
    pub(crate) rules: Vec<String>,
    /// A flow that shows it.
    pub(crate) witness: Option<WitnessView>,
    /// Whether it is so whatever pods there are; nothing is said of what was found in reading.
    pub(crate) always: Option<bool>,
    /// What the engine found, if it did.
    pub(crate) finding: Option<Finding>,
}

impl LocatedFinding {
    pub(crate) fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The object and the field, in words.
    pub(crate) fn context(&self) -> Option<String> {
        match (&self.object_id, &self.path) {
            (Some(object), Some(path)) => Some(format!("{object} {path}")),
            (Some(object), None) => Some(object.clone()),
            (None, path) => path.clone(),
        }
    }
}

/// Tells findings about some objects.
pub(crate) struct FindingLocator<'t> {
    cluster: &'t Cluster<'t>,
    objects: &'t [Object<'t>],
    sources: &'t [Source],
    locators: RefCell<BTreeMap<SourceId, Locator<'t>>>,
    ids: Arc<HashMap<String, usize>>,
}

/// The objects by what they are called.
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

    /// A finding of the engine.
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
                .map(|it| WitnessView::new(self.cluster, it)),
            always: Some(finding.always),
            finding: Some(finding.clone()),
        }
    }

    /// What was remarkable when objects were read.
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

    /// Where a field of an object stands, with its key.
    pub(crate) fn locate(&self, object: &Object<'_>, path: &[PathStep<'_>]) -> Option<Located> {
        let source = self.sources.get(object.source.0 as usize)?;
        let mut locators = self.locators.borrow_mut();
        let locator = locators
            .entry(object.source)
            .or_insert_with(|| Locator::new(source));
        locator.locate(object, path)
    }

    /// The place of a field, or of what is nearest around it.
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

    /// The object that a finding is about.
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
                let id = format!("{}/{name}", Kind::Namespace.short());
                self.ids.get(&id).copied()
            }
            FindingTarget::Service(id) => {
                let service = self.cluster.services.get(id.0 as usize)?;
                let namespace = self.cluster.namespace_name(service.namespace);
                let id = format!("{}/{namespace}/{}", Kind::Service.short(), service.name);
                self.ids.get(&id).copied()
            }
        }
    }

    fn policy_object(&self, id: u32) -> Option<usize> {
        let policy = self.cluster.policies.get(id as usize)?;
        Some(policy.origin.0 as usize)
    }

    /// The first of the rules that make it so.
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

    /// The rule that is meant, then those that make it so.
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
            let rule = rule_id(self.cluster, place);
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules
    }
}

/// The identifier of a rule.
pub(crate) fn rule_id(cluster: &Cluster<'_>, place: RulePlace) -> String {
    let policy = cluster.policy_name(place.policy);
    format!("{policy}#{}[{}]", place.direction.key(), place.index)
}
