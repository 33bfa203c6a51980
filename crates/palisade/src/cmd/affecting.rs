//! `palisade affecting`: which policies select a pod, and which policies does a policy override?

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;

use anyhow::bail;
use palisade_api::{Kind, Object};
use palisade_core::analysis::affect::{OverrideFinder, policies_on, subjects};
use palisade_core::compile::compile_policies;
use palisade_core::model::{BackendTarget, Cluster, NamespaceId, PodId, PolicyId, ServiceId};
use palisade_core::name_index::NameIndex;
use palisade_core::policy::{Direction, PolicyApi};
use palisade_core::program::{Owner, Program};
use palisade_core::query::Endpoint;
use palisade_core::text::{nearest, ticked};

use crate::Outcome;
use crate::args::format::OutputFormat;
use crate::args::{AffectingArgs, Cli};
use crate::cluster::{print_unread, reported_other_policies};
use crate::live::{Scope, named};
use crate::report::affecting::{AffectingBuilder, PodReport, PolicyReport};
use crate::report::unread::UnreadObject;
use crate::view::affecting::{AffectedByView, AffectingSetView, AffectingView};
use crate::view::{AnswerLimits, json, write_limited};

/// Runs the command for a pod, a workload or a policy.
pub(crate) fn run(args: &AffectingArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let namespace = args.within.default(&args.cluster.input)?;
    let relevant = named(&Endpoint::parse_in(&args.what, &namespace).ok());
    let namespaces = &args.within.namespace;
    let scope = Scope::Everything;
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &relevant, namespaces)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let cluster = &lowered.cluster;
    args.within.check(cluster)?;
    let other_policies = reported_other_policies(cli, &inputs, &manifests);
    let builder = AffectingBuilder::new(cluster, &manifests.objects, &inputs.sources);
    let program = crate::cluster::compiled(cli, cluster);
    let wide = cli.verbose || args.output == OutputFormat::Wide;
    match target(
        cluster,
        &program,
        &manifests.objects,
        (&args.what, &namespace),
    )? {
        AffectingTarget::Pods(endpoint, pods) => {
            let answers = on_pods(&builder, cluster, &program, &endpoint, &pods);
            let unread = crate::cluster::unread(&inputs, &manifests);
            let unread = on_their_namespaces(unread, cluster, &pods);
            let limits = AnswerLimits {
                missing: &inputs.missing,
                unread: &unread,
                other_policies: &other_policies,
            };
            print_pods(args.output, &answers, wide, limits)?;
        }
        AffectingTarget::Policy(id) => {
            let policy = cluster.policies.get(id.0 as usize);
            let Some(policy) = policy else {
                return Ok(Outcome::Unanswered);
            };
            // An audited policy is evaluated as if it were enforced; other audited policies stay
            // without effect.
            let program = compile_policies(cluster, &|it, other| it == id || !other.audited);
            let finder = OverrideFinder::new(cluster, &program);
            let effects = finder.effects(&subjects(cluster, policy));
            let Some(answer) = builder.policy(id, &effects) else {
                return Ok(Outcome::Unanswered);
            };
            let unread = crate::cluster::unread(&inputs, &manifests);
            let limits = AnswerLimits {
                missing: &inputs.missing,
                unread: &unread,
                other_policies: &other_policies,
            };
            print_policy(args.output, &answer, wide, limits)?;
        }
    }
    Ok(Outcome::Clean)
}

/// Returns one answer for all pods that agree, in the order of the pods.
fn on_pods(
    builder: &AffectingBuilder<'_>,
    cluster: &Cluster<'_>,
    program: &Program,
    endpoint: &str,
    pods: &[PodId],
) -> Vec<PodReport> {
    let finder = OverrideFinder::new(cluster, program);
    let mut answers: Vec<(PodReport, PodReport)> = Vec::new();
    for class in finder.pod_classes(pods) {
        let Some(first) = class.first() else { continue };
        let effects = finder.effects(&[*first]);
        let mut by_policies: Vec<(Vec<PolicyId>, usize)> = Vec::new();
        for pod in class {
            // Pods of one class may have different policies: those that have no effect on flows.
            let policies = Direction::BOTH.map(|direction| policies_on(cluster, pod, direction));
            let policies = policies.concat();
            if let Some((_, at)) = by_policies.iter().find(|(it, _)| *it == policies) {
                if let Some((answer, _)) = answers.get_mut(*at) {
                    answer.pods.push(cluster.pod_name(pod));
                }
                continue;
            }
            let answer = builder.pod(endpoint, pod, &effects);
            let shape = answer.without_witnesses();
            let at = match answers.iter().position(|(_, it)| *it == shape) {
                Some(at) => {
                    if let Some((same, _)) = answers.get_mut(at) {
                        same.pods.extend(answer.pods);
                    }
                    at
                }
                None => {
                    answers.push((answer, shape));
                    answers.len() - 1
                }
            };
            by_policies.push((policies, at));
        }
    }
    let mut answers: Vec<PodReport> = answers.into_iter().map(|(it, _)| it).collect();
    for answer in &mut answers {
        answer.pods.sort();
        // For a pod that the query names directly, the list would repeat the endpoint.
        if answer.pods.as_slice() == [answer.endpoint.clone()] {
            answer.pods.clear();
        }
    }
    answers
}

/// Keeps the unreadable policies that could select one of the pods.
fn on_their_namespaces(
    unread: Vec<UnreadObject>,
    cluster: &Cluster<'_>,
    pods: &[PodId],
) -> Vec<UnreadObject> {
    let pods = pods.iter().filter_map(|id| cluster.pods.get(id.0 as usize));
    let pods = pods.filter(|pod| pod.is_selectable());
    let namespaces: BTreeSet<NamespaceId> = pods.map(|pod| pod.namespace).collect();
    let could_select = |it: &UnreadObject| {
        let mut names = namespaces.iter().map(|id| cluster.namespace_name(*id));
        names.any(|name| {
            Direction::BOTH
                .iter()
                .any(|direction| it.unread.could_select(*direction, name))
        })
    };
    unread.into_iter().filter(could_select).collect()
}

fn print_policy(
    output: OutputFormat,
    answer: &PolicyReport,
    wide: bool,
    limits: AnswerLimits<'_>,
) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(anstream::stdout());
    if output.is_text() {
        write!(out, "{}", answer.text(wide))?;
    } else if let Some(form) = output.document() {
        write_limited(&mut out, form, &AffectedByView::new(answer), limits)?;
    } else {
        json::write(&mut out, &AffectedByView::new(answer))?;
        writeln!(out)?;
    }
    print_unread(&mut out, output, limits.unread)?;
    out.flush()?;
    Ok(())
}

fn print_pods(
    output: OutputFormat,
    answers: &[PodReport],
    wide: bool,
    limits: AnswerLimits<'_>,
) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(anstream::stdout());
    match (output.document(), answers) {
        (Some(form), [answer]) => {
            write_limited(&mut out, form, &AffectingView::new(answer), limits)?;
        }
        (Some(form), _) => {
            let set = AffectingSetView::new(answers);
            write_limited(&mut out, form, &set, limits)?;
        }
        (None, _) if output.is_text() => {
            for (index, answer) in answers.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                write!(out, "{}", answer.text(wide))?;
            }
        }
        (None, _) => {
            for answer in answers {
                json::write(&mut out, &AffectingView::new(answer))?;
                writeln!(out)?;
            }
        }
    }
    print_unread(&mut out, output, limits.unread)?;
    out.flush()?;
    Ok(())
}

/// The target of a query.
enum AffectingTarget {
    /// The name of an endpoint, and its pods.
    Pods(String, Vec<PodId>),
    Policy(PolicyId),
}

/// Finds the target of a text: the policy with that id, otherwise an endpoint.
fn target(
    cluster: &Cluster<'_>,
    program: &Program,
    objects: &[Object<'_>],
    (text, namespace): (&str, &str),
) -> anyhow::Result<AffectingTarget> {
    // The id of a rule also names its policy.
    let id = text.split('#').next().unwrap_or_default();
    let id = &policy_id(id, namespace);
    let ids = (0..cluster.policies.len()).filter_map(|it| u32::try_from(it).ok());
    let mut ids = ids.map(PolicyId);
    if let Some(policy) = ids.find(|it| cluster.policy_name(*it) == *id) {
        return Ok(AffectingTarget::Policy(policy));
    }
    let found = pods(cluster, program, (text, namespace));
    let word = id.split('/').next().unwrap_or_default();
    let is_policy = id.contains('/') && PolicyApi::ALL.iter().any(|it| it.short() == word);
    match found {
        Ok((endpoint, pods)) => Ok(AffectingTarget::Pods(endpoint, pods)),
        Err(_) if is_policy => bail!("{}", no_policy(cluster, objects, id)),
        Err(_) if !text.contains('/') && text.parse::<IpAddr>().is_err() => {
            bail!("{}", no_slash(cluster, text))
        }
        Err(error) => Err(error),
    }
}

/// Returns a policy id with the short name of its kind, and with the namespace if that is missing.
fn policy_id(text: &str, namespace: &str) -> String {
    let parts: Vec<&str> = text.split('/').collect();
    let (Some(word), Some(name)) = (parts.first(), parts.last()) else {
        return text.to_owned();
    };
    // `kubectl` also takes the longer words.
    let is = |text: &str| text.eq_ignore_ascii_case(word);
    let mut apis = PolicyApi::ALL.into_iter();
    let api = apis.find(|it| *word == it.short() || is(it.kind()) || is(it.plural()));
    let short = match api {
        Some(api) => api.short(),
        None => word,
    };
    match parts.as_slice() {
        [_, namespace, _] => format!("{short}/{namespace}/{name}"),
        [_, _] if api.is_some_and(PolicyApi::is_namespaced) => {
            format!("{short}/{namespace}/{name}")
        }
        [_, _] => format!("{short}/{name}"),
        _ => text.to_owned(),
    }
}

/// Returns the canonical name of an endpoint, and its pods.
fn pods(
    cluster: &Cluster<'_>,
    program: &Program,
    (text, namespace): (&str, &str),
) -> anyhow::Result<(String, Vec<PodId>)> {
    let index = NameIndex::new(cluster);
    match Endpoint::parse_in(text, namespace)? {
        Endpoint::Pod(namespace, name) => {
            let pod = index.pod(&namespace, &name)?;
            Ok((cluster.pod_name(pod), vec![pod]))
        }
        Endpoint::Workload(namespace, kind, name) => {
            let pods = index.workload(&namespace, kind, &name)?;
            Ok((format!("{namespace}/{kind}/{name}"), pods.to_vec()))
        }
        Endpoint::Service(namespace, name) => {
            let id = index.service(&namespace, &name)?;
            let example = backend_pod(cluster, id).map(|pod| {
                let pod = ticked(&cluster.pod_name(pod));
                format!(", such as {pod}")
            });
            let example = example.unwrap_or_default();
            bail!(
                "{} is a Service, and policies select pods; name one of its backends{example}",
                ticked(text)
            );
        }
        Endpoint::Node(name) => {
            index.node(&name)?;
            bail!("{} is a node, and policies select pods only", ticked(text));
        }
        Endpoint::Address(address) => match program.owner(address) {
            Some(Owner::Pod(pod)) => Ok((address.to_string(), vec![pod])),
            Some(Owner::Node(_)) => {
                bail!("{address} is a node's address, and policies select pods only")
            }
            None => bail!("no pod has the address {address}"),
        },
        Endpoint::Block(block) => {
            bail!("{block} is a block of addresses; name a pod, or the address of a pod")
        }
    }
}

fn backend_pod(cluster: &Cluster<'_>, service: ServiceId) -> Option<PodId> {
    let service = cluster.services.get(service.0 as usize)?;
    let mut backends = service.ports.iter().flat_map(|port| &port.backends);
    let is_selectable = |pod: &PodId| {
        let pod = cluster.pods.get(pod.0 as usize);
        pod.is_some_and(|pod| pod.is_selectable())
    };
    backends.find_map(|backend| match backend.target {
        BackendTarget::Pod(pod) => Some(pod).filter(is_selectable),
        BackendTarget::Address(_) => None,
    })
}

fn policy_names(cluster: &Cluster<'_>) -> Vec<String> {
    let ids = (0..cluster.policies.len()).filter_map(|it| u32::try_from(it).ok());
    let names = ids.map(|id| cluster.policy_name(PolicyId(id)));
    names.collect()
}

/// Explains that a policy does not exist, and proposes one: with the same name elsewhere, or with a
/// similar id.
fn no_policy(cluster: &Cluster<'_>, objects: &[Object<'_>], id: &str) -> String {
    let has_no_effect = |object: &&Object<'_>| object.kind == Kind::NetworkPolicy2016;
    if objects.iter().filter(has_no_effect).any(|it| it.id() == id) {
        return format!(
            "{} has no effect; its namespace has no annotation that isolates it",
            ticked(id)
        );
    }
    let names = policy_names(cluster);
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    let same_name = names.iter().find(|it| last(it) == last(id));
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let near = same_name.map(String::as_str).or(nearest(id, &borrowed));
    let help = match near {
        Some(near) => format!("; did you mean {}?", ticked(near)),
        None if names.is_empty() => "; the input has no policy".to_owned(),
        None => String::new(),
    };
    format!("policy {} not found{help}", ticked(id))
}

/// Explains that a name alone is ambiguous, and proposes a pod or policy of that name.
fn no_slash(cluster: &Cluster<'_>, text: &str) -> String {
    let pods = (0..cluster.pods.len()).filter_map(|it| u32::try_from(it).ok());
    let pods = pods.map(|id| cluster.pod_name(PodId(id)));
    let mut names = policy_names(cluster).into_iter().chain(pods);
    let help = match names.find(|it| it.rsplit('/').next() == Some(text)) {
        Some(name) => format!("; did you mean {}?", ticked(&name)),
        None => String::new(),
    };
    format!(
        "{} is neither a pod nor a policy; write `NS/POD`, `NS/KIND/NAME`, or a policy as \
         `netpol/NS/NAME` or `cnp/NAME`{help}",
        ticked(text)
    )
}
