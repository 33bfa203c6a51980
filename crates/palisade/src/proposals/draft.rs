//! Plans as edits of texts: which file, which bytes, and what people paste.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use palisade_api::{Kind, Located, Locator, Object, ObjectSpec, PathStep, Source, SourceId};
use palisade_core::analysis::proposals::{PlannedPods, PlannedRule, PolicyEdit};
use palisade_core::model::{Policy, PolicyId};
use palisade_core::policy::{Direction, PolicyApi};

use super::rules::{Dialect, selector};
use crate::edit::input::EditInput;
use crate::edit::insert::{ListPlace, with_document, with_items};
use crate::edit::unified::unified;
use crate::edit::{TextEdit, edited};
use crate::manifest_text::Value;
use crate::report::proposal::{Actor, EditTarget, ProposedEdit};

/// A plan as edits of texts.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) edits: Vec<ProposedEdit>,
    /// The changed texts.
    pub(super) texts: BTreeMap<SourceId, String>,
    /// For each changed text the offsets in the original text, and the lengths of what was inserted
    /// there.
    inserted: BTreeMap<SourceId, Vec<(usize, usize)>>,
    /// The new files.
    pub(super) new_files: Vec<(PathBuf, String)>,
    pub(super) needs_administrator: bool,
}

impl Draft {
    /// Returns the role of the people who may make the change.
    pub(super) fn actor(&self) -> Actor {
        if self.needs_administrator {
            Actor::Administrator
        } else {
            Actor::Developer
        }
    }
}

/// Makes drafts of plans.
#[derive(Clone, Copy)]
pub(super) struct Drafter<'k> {
    pub(super) known: &'k EditInput<'k>,
    /// The paths that the user named. A directory among them takes new files.
    pub(super) roots: &'k [PathBuf],
}

/// A rule or its ports, on the way into the list of an object.
struct ListEdit<'e> {
    policy: PolicyId,
    /// The list: `spec.ingress`.
    path: Vec<PathStep<'static>>,
    key: &'static str,
    /// The index of the item that the new ones come before.
    before: Option<usize>,
    items: &'e [Value],
    action: String,
}

impl Drafter<'_> {
    /// Drafts a plan; `None`: an object cannot be edited.
    pub(super) fn draft(&self, plan: &[PolicyEdit<'_>]) -> Option<Draft> {
        let mut draft = Draft::default();
        let is_new = |it: &&PolicyEdit<'_>| matches!(it, PolicyEdit::NewNetworkPolicy(..));
        let new = plan.iter().filter(is_new);
        // From the last rule to the first: the indexes of the others stay. New documents come last:
        // a rule may go to the end of the same file.
        for edit in plan.iter().filter(|it| !is_new(it)).rev().chain(new) {
            match edit {
                PolicyEdit::AddPorts(place, ports) => {
                    let dialect = self.dialect(place.policy)?;
                    let items: Vec<Value> = ports.iter().map(|it| dialect.port(*it)).collect();
                    let ports = ports.iter().map(|(protocol, port)| {
                        format!("{}/{port}", protocol.name().to_ascii_lowercase())
                    });
                    let ports: Vec<String> = ports.collect();
                    let rule = self.known.cluster.rule_name(*place);
                    let mut path = rules_path(place.direction);
                    path.push(PathStep::Index(place.index as usize));
                    path.push(PathStep::Field(dialect.ports_key()));
                    let edit = ListEdit {
                        policy: place.policy,
                        path,
                        key: dialect.ports_key(),
                        before: None,
                        items: &items,
                        action: format!("add {} to {rule}", ports.join(", ")),
                    };
                    self.insert(&mut draft, edit)?;
                }
                PolicyEdit::AppendRule(id, rule) => {
                    let direction = rule.direction;
                    let name = self.known.cluster.policy_name(*id);
                    let action = format!("add this {direction} rule to {name}");
                    self.rule(&mut draft, *id, rule, None, action)?;
                }
                PolicyEdit::InsertRule(place, rule) => {
                    let name = self.known.cluster.rule_name(*place);
                    let action = format!("insert this rule before {name}");
                    let before = Some(place.index as usize);
                    self.rule(&mut draft, place.policy, rule, before, action)?;
                }
                PolicyEdit::NewNetworkPolicy(pods, rule) => {
                    self.new_policy(&mut draft, pods, rule)?;
                }
            }
        }
        Some(draft)
    }

    fn policy(&self, id: PolicyId) -> Option<(&Policy<'_>, &Object<'_>)> {
        let policy = self.known.cluster.policies.get(id.0 as usize)?;
        let object = self.known.objects.get(policy.origin.0 as usize)?;
        Some((policy, object))
    }

    fn dialect(&self, id: PolicyId) -> Option<Dialect> {
        let (policy, object) = self.policy(id)?;
        let early_shape =
            matches!(&object.spec, ObjectSpec::ClusterPolicy(spec) if spec.early_shape);
        Some(Dialect {
            api: policy.api,
            early_shape,
            namespace: policy.namespace,
        })
    }

    fn rule(
        &self,
        draft: &mut Draft,
        id: PolicyId,
        rule: &PlannedRule<'_>,
        before: Option<usize>,
        action: String,
    ) -> Option<()> {
        let items = [self.dialect(id)?.rule(self.known.cluster, rule)?];
        let edit = ListEdit {
            policy: id,
            path: rules_path(rule.direction),
            key: rule.direction.key(),
            before,
            items: &items,
            action,
        };
        self.insert(draft, edit)
    }

    fn insert(&self, draft: &mut Draft, edit: ListEdit<'_>) -> Option<()> {
        let (policy, object) = self.policy(edit.policy)?;
        let source = self.known.sources.get(object.source.0 as usize)?;
        let (_, above) = edit.path.split_last()?;
        let mut locator = Locator::new(source);
        let mut locate =
            |path: &[PathStep<'_>]| -> Option<Located> { locator.locate(object, path) };
        let item = edit.before.map(|index| {
            let mut path = edit.path.clone();
            path.push(PathStep::Index(index));
            path
        });
        let place = ListPlace {
            parent: locate(above)?,
            list: locate(&edit.path),
            before: match item {
                Some(path) => Some(locate(&path)?),
                None => None,
            },
        };
        let cut = with_items(source.text(), place, edit.key, edit.items)?;
        let patch = self.apply(draft, object.source, cut)?;
        let patch = patch.unwrap_or_else(|| json_patch(&edit, place.list.is_some()));
        draft.needs_administrator |= policy.namespace.is_none();
        draft.edits.push(ProposedEdit {
            target: self.target(object.source),
            object: self.known.cluster.policy_name(edit.policy),
            action: edit.action,
            lines: edit.items.iter().flat_map(Value::item_lines).collect(),
            patch,
        });
        Some(())
    }

    /// Applies an insertion into the original text to the text of the draft. Returns the unified
    /// diff, to be applied after those of the edits before it, if the text is of a file.
    fn apply(&self, draft: &mut Draft, id: SourceId, cut: TextEdit) -> Option<Option<String>> {
        let original = self.known.sources.get(id.0 as usize)?.text();
        let before = draft.texts.get(&id).map_or(original, String::as_str);
        let earlier = draft.inserted.entry(id).or_default();
        let shift = earlier.iter().filter(|(at, _)| *at <= cut.range.start);
        let shift: usize = shift.map(|(_, length)| length).sum();
        earlier.push((cut.range.start, cut.insert.len()));
        let cuts = [TextEdit {
            range: cut.range.start + shift..cut.range.end + shift,
            insert: cut.insert,
        }];
        let patch = match self.target(id) {
            EditTarget::File(name) => Some(unified(&name, before, &cuts)),
            EditTarget::NewFile(_) | EditTarget::Object => None,
        };
        let text = edited(before, &cuts);
        draft.texts.insert(id, text);
        Some(patch)
    }

    /// Returns where an object of a source is edited.
    fn target(&self, id: SourceId) -> EditTarget {
        let index = id.0 as usize;
        let name = self.known.sources.get(index).map_or("", Source::name);
        if index >= self.known.n_files || name == "-" || name.ends_with(".gz") {
            EditTarget::Object
        } else {
            EditTarget::File(name.to_owned())
        }
    }

    fn new_policy(
        &self,
        draft: &mut Draft,
        pods: &PlannedPods<'_>,
        rule: &PlannedRule<'_>,
    ) -> Option<()> {
        let cluster = self.known.cluster;
        let dialect = Dialect::of_network_policy(pods.namespace);
        let rule_value = dialect.rule(cluster, rule)?;
        let namespace = cluster.namespace_name(pods.namespace);
        let name = self.free_name(draft, namespace, &pods.labels, rule.direction);
        let mut spec = vec![("podSelector".into(), selector(&pods.labels))];
        if rule.direction == Direction::Egress {
            // Without it, the policy would isolate for ingress, too.
            let types = Value::List(vec![Value::text("Egress")]);
            spec.push(("policyTypes".into(), types));
        }
        let rules = Value::List(vec![rule_value]);
        spec.push((rule.direction.key().into(), rules));
        let metadata = vec![
            ("name".into(), Value::text(name.clone())),
            ("namespace".into(), Value::text(namespace)),
        ];
        let manifest = Value::Map(vec![
            ("apiVersion".into(), Value::text("networking.k8s.io/v1")),
            ("kind".into(), Value::text("NetworkPolicy")),
            ("metadata".into(), Value::Map(metadata)),
            ("spec".into(), Value::Map(spec)),
        ]);
        let (target, patch) = self.place_document(draft, pods, &name, &manifest)?;
        draft.edits.push(ProposedEdit {
            action: match &target {
                EditTarget::File(file) => format!("add this NetworkPolicy to {file}"),
                EditTarget::NewFile(_) | EditTarget::Object => "add this NetworkPolicy".to_owned(),
            },
            target,
            object: format!("{}/{namespace}/{name}", PolicyApi::NetworkPolicy.short()),
            lines: manifest.lines(),
            patch,
        });
        Some(())
    }

    /// Puts a new object beside the policies of its namespace, or else beside its pods.
    fn place_document(
        &self,
        draft: &mut Draft,
        pods: &PlannedPods<'_>,
        name: &str,
        manifest: &Value,
    ) -> Option<(EditTarget, String)> {
        let whole = || -> String { manifest.lines().into_iter().map(|it| it + "\n").collect() };
        let home = self.home(pods);
        let file = match &home {
            Some((id, file)) if !self.is_in_directory(file) && !file.ends_with(".json") => {
                let text = self.known.sources.get(id.0 as usize)?.text();
                let cut = with_document(text, manifest);
                let patch = self.apply(draft, *id, cut)?;
                return Some((EditTarget::File(file.clone()), patch?));
            }
            Some((_, file)) => Path::new(file).with_file_name(format!("{name}.yaml")),
            None => PathBuf::from(format!("{name}.yaml")),
        };
        draft.new_files.push((file.clone(), whole()));
        Some((EditTarget::NewFile(file.display().to_string()), whole()))
    }

    /// Returns a file that has policies or pods of a namespace.
    fn home(&self, pods: &PlannedPods<'_>) -> Option<(SourceId, String)> {
        let cluster = self.known.cluster;
        let policies = cluster.policies.iter();
        let policies = policies.filter(|it| it.namespace == Some(pods.namespace));
        let policies = policies.map(|it| it.origin);
        let of_pods = cluster.pods.iter();
        let of_pods = of_pods.filter(|it| it.namespace == pods.namespace);
        let origins = policies.chain(of_pods.map(|it| it.origin));
        let objects = origins.filter_map(|it| self.known.objects.get(it.0 as usize));
        let mut files = objects.filter_map(|object| match self.target(object.source) {
            EditTarget::File(file) => Some((object.source, file)),
            EditTarget::NewFile(_) | EditTarget::Object => None,
        });
        files.next()
    }

    fn is_in_directory(&self, file: &str) -> bool {
        let directories = self.roots.iter().filter(|it| it.is_dir());
        directories
            .into_iter()
            .any(|it| Path::new(file).starts_with(it))
    }

    /// Returns a name that no NetworkPolicy of the namespace has.
    fn free_name(
        &self,
        draft: &Draft,
        namespace: &str,
        labels: &[(&str, &str)],
        direction: Direction,
    ) -> String {
        let ids: BTreeSet<&str> = self
            .known
            .objects
            .iter()
            .filter(|it| it.kind == Kind::NetworkPolicy && it.namespace() == Some(namespace))
            .map(|it| &*it.metadata.name)
            .collect();
        let in_draft = |name: &str| {
            let object = format!("{}/{namespace}/{name}", PolicyApi::NetworkPolicy.short());
            draft.edits.iter().any(|it| it.object == object)
        };
        let subject = labels.first().map_or("all", |(_, value)| *value);
        let subject: String = subject
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .collect();
        let subject = subject.trim_matches('-');
        let subject = if subject.is_empty() { "pods" } else { subject };
        let base = format!("allow-{direction}-{subject}");
        let numbered = (2..).map(|number: u32| format!("{base}-{number}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let free = names.find(|name| !ids.contains(name.as_str()) && !in_draft(name));
        free.unwrap_or(base)
    }
}

fn rules_path(direction: Direction) -> Vec<PathStep<'static>> {
    vec![PathStep::Field("spec"), PathStep::Field(direction.key())]
}

/// Formats an edit as a JSON patch, for `kubectl patch --type=json`.
fn json_patch(edit: &ListEdit<'_>, has_list: bool) -> String {
    let mut path = String::new();
    for step in &edit.path {
        path.push('/');
        match step {
            PathStep::Field(field) => path += field,
            PathStep::Index(index) => path += &index.to_string(),
        }
    }
    let operation = |path: String, value: &Value| {
        Value::Map(vec![
            ("op".into(), Value::text("add")),
            ("path".into(), Value::text(path)),
            ("value".into(), value.clone()),
        ])
    };
    if !has_list {
        let list = Value::List(edit.items.to_vec());
        return Value::List(vec![operation(path, &list)]).json();
    }
    let at = edit.before.map_or("-".to_owned(), |it| it.to_string());
    let items = edit.items.iter();
    let items = items.map(|item| operation(format!("{path}/{at}"), item));
    Value::List(items.collect()).json()
}
