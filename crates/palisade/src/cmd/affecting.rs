//! `palisade affecting`: which policies are on a pod, and what does a policy do to the others?

mod text;

use std::io::Write;
use std::net::IpAddr;

use anyhow::bail;
use palisade_api::{Kind, Object};
use palisade_core::affect::{OverrideFinder, policies_on, subjects};
use palisade_core::compile::compile_policies;
use palisade_core::model::{BackendTarget, Cluster, PodId, PolicyId, ServiceId};
use palisade_core::name_index::NameIndex;
use palisade_core::policy::{Direction, PolicyApi};
use palisade_core::program::{Owner, Program};
use palisade_core::query::Endpoint;
use palisade_core::text::{nearest, ticked};

use crate::Outcome;
use crate::args::{AffectingArgs, AnswerOutput, Cli};
use crate::live::{Scope, UnreadKind, named};
use crate::view::affecting::{AffectingSetView, AffectingView, ViewBuilder};
use crate::view::{DocumentFormat, json, write_limited};

/// The generations, by the words that identifiers of their policies start with.
const GENERATIONS: [PolicyApi; 7] = [
    PolicyApi::Cluster,
    PolicyApi::Admin,
    PolicyApi::BaselineAdmin,
    PolicyApi::NetworkPolicy,
    PolicyApi::NetworkPolicy2016,
    PolicyApi::EarlyCluster,
    PolicyApi::Default,
];

/// Answers for a pod, a workload or a policy.
pub(crate) fn run(args: &AffectingArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let matters = named(&Endpoint::parse(&args.what).ok());
    let within = args.within.namespaces(&args.cluster.input)?;
    let scope = Scope::Everything;
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &matters, within)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let cluster = &lowered.cluster;
    let maker = ViewBuilder::new(cluster, &manifests.objects, &inputs.sources);
    let program = crate::cluster::compiled(cli, cluster);
    let wide = cli.verbose || args.output == AnswerOutput::Wide;
    match target(cluster, &program, &manifests.objects, &args.what)? {
        AffectingTarget::Pods(endpoint, pods) => {
            let answers = on_pods(&maker, cluster, &program, &endpoint, &pods);
            print_pods(args.output, &answers, wide, &inputs.missing)?;
        }
        AffectingTarget::Policy(id) => {
            let policy = cluster.policies.get(id.0 as usize);
            let Some(policy) = policy else {
                return Ok(Outcome::Unanswered);
            };
            // A policy that only says what it would do is asked what it would do.
            let program = compile_policies(cluster, &|it, other| it == id || !other.audited);
            let affect = OverrideFinder::new(cluster, &program);
            let effects = affect.effects(&subjects(cluster, policy));
            let Some(answer) = maker.policy(id, &effects) else {
                return Ok(Outcome::Unanswered);
            };
            let mut out = std::io::BufWriter::new(anstream::stdout());
            match args.output {
                AnswerOutput::Table | AnswerOutput::Wide => {
                    write!(out, "{}", text::policy(&answer, wide))?;
                }
                AnswerOutput::Json => {
                    write_limited(&mut out, DocumentFormat::Json, &answer, &inputs.missing)?;
                }
                AnswerOutput::Jsonl => {
                    json::write(&mut out, &answer)?;
                    writeln!(out)?;
                }
                AnswerOutput::Yaml => {
                    write_limited(&mut out, DocumentFormat::Yaml, &answer, &inputs.missing)?;
                }
            }
            out.flush()?;
        }
    }
    Ok(Outcome::Clean)
}

/// One answer for all pods that agree, in the order of the pods.
fn on_pods(
    maker: &ViewBuilder<'_>,
    cluster: &Cluster<'_>,
    program: &Program,
    endpoint: &str,
    pods: &[PodId],
) -> Vec<AffectingView> {
    let affect = OverrideFinder::new(cluster, program);
    let mut answers: Vec<(AffectingView, AffectingView)> = Vec::new();
    for alike in affect.pod_classes(pods) {
        let Some(first) = alike.first() else { continue };
        let effects = affect.effects(&[*first]);
        let mut known: Vec<(Vec<PolicyId>, usize)> = Vec::new();
        for pod in alike {
            // Policies without effect may still tell pods apart.
            let on_it = Direction::BOTH.map(|direction| policies_on(cluster, pod, direction));
            let on_it = on_it.concat();
            if let Some((_, at)) = known.iter().find(|(it, _)| *it == on_it) {
                if let Some((answer, _)) = answers.get_mut(*at) {
                    answer.pods.push(cluster.pod_name(pod));
                }
                continue;
            }
            let answer = maker.pod(endpoint, pod, &effects);
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
            known.push((on_it, at));
        }
    }
    let mut answers: Vec<AffectingView> = answers.into_iter().map(|(it, _)| it).collect();
    for answer in &mut answers {
        answer.pods.sort();
        // A pod that was asked for by name stands for itself.
        if answer.pods.as_slice() == [answer.endpoint.clone()] {
            answer.pods.clear();
        }
    }
    answers
}

fn print_pods(
    output: AnswerOutput,
    answers: &[AffectingView],
    wide: bool,
    missing: &[UnreadKind],
) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(anstream::stdout());
    let set = AffectingSetView::new(answers);
    match (output, answers) {
        (AnswerOutput::Table | AnswerOutput::Wide, _) => {
            for (index, answer) in answers.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                write!(out, "{}", text::pod(answer, wide))?;
            }
        }
        (AnswerOutput::Json, [answer]) => {
            write_limited(&mut out, DocumentFormat::Json, answer, missing)?
        }
        (AnswerOutput::Json, _) => write_limited(&mut out, DocumentFormat::Json, &set, missing)?,
        (AnswerOutput::Jsonl, _) => {
            for answer in answers {
                json::write(&mut out, answer)?;
                writeln!(out)?;
            }
        }
        (AnswerOutput::Yaml, [answer]) => {
            write_limited(&mut out, DocumentFormat::Yaml, answer, missing)?
        }
        (AnswerOutput::Yaml, _) => write_limited(&mut out, DocumentFormat::Yaml, &set, missing)?,
    }
    out.flush()?;
    Ok(())
}

/// What is asked about.
enum AffectingTarget {
    /// What it is called, and the pods that stand for it.
    Pods(String, Vec<PodId>),
    Policy(PolicyId),
}

/// Finds what the text names: a policy if there is such a one, else an endpoint.
fn target(
    cluster: &Cluster<'_>,
    program: &Program,
    objects: &[Object<'_>],
    text: &str,
) -> anyhow::Result<AffectingTarget> {
    // A rule's identifier names its policy as well.
    let id = text.split('#').next().unwrap_or_default();
    let ids = (0..cluster.policies.len()).filter_map(|it| u32::try_from(it).ok());
    let mut ids = ids.map(PolicyId);
    if let Some(policy) = ids.find(|it| cluster.policy_name(*it) == id) {
        return Ok(AffectingTarget::Policy(policy));
    }
    let found = pods(cluster, program, text);
    let word = id.split('/').next().unwrap_or_default();
    let is_policy = id.contains('/') && GENERATIONS.iter().any(|it| it.short() == word);
    match found {
        Ok((endpoint, pods)) => Ok(AffectingTarget::Pods(endpoint, pods)),
        Err(_) if is_policy => bail!("{}", no_policy(cluster, objects, id)),
        Err(_) if !text.contains('/') && text.parse::<IpAddr>().is_err() => {
            bail!("{}", no_slash(cluster, text))
        }
        Err(error) => Err(error),
    }
}

/// The pods that an endpoint stands for, and what it is called however it was written.
fn pods(
    cluster: &Cluster<'_>,
    program: &Program,
    text: &str,
) -> anyhow::Result<(String, Vec<PodId>)> {
    let directory = NameIndex::new(cluster);
    match Endpoint::parse(text)? {
        Endpoint::Pod(namespace, name) => {
            let pod = directory.pod(&namespace, &name)?;
            Ok((cluster.pod_name(pod), vec![pod]))
        }
        Endpoint::Workload(namespace, kind, name) => {
            let pods = directory.workload(&namespace, kind, &name)?;
            Ok((format!("{namespace}/{kind}/{name}"), pods.to_vec()))
        }
        Endpoint::Service(namespace, name) => {
            let id = directory.service(&namespace, &name)?;
            let behind = backend_pod(cluster, id).map(|pod| {
                let pod = ticked(&cluster.pod_name(pod));
                format!(", such as {pod}")
            });
            let behind = behind.unwrap_or_default();
            bail!(
                "{} is a Service, and policies select pods: ask about a pod behind it{behind}",
                ticked(text)
            );
        }
        Endpoint::Node(name) => {
            directory.node(&name)?;
            bail!("{} is a node, and policies select pods only", ticked(text));
        }
        Endpoint::Address(address) => match program.owner(address) {
            Some(Owner::Pod(pod)) => Ok((address.to_string(), vec![pod])),
            Some(Owner::Node(_)) => {
                bail!("{address} is a node's address, and policies select pods only")
            }
            None => bail!("no pod has the address {address}"),
        },
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

/// Why there is no such policy, and which one may be meant: one of the same name elsewhere, or one
/// that is spelt nearly so.
fn no_policy(cluster: &Cluster<'_>, objects: &[Object<'_>], id: &str) -> String {
    let is_silent = |object: &&Object<'_>| object.kind == Kind::NetworkPolicy2016;
    if objects.iter().filter(is_silent).any(|it| it.id() == id) {
        return format!(
            "{} says nothing, because its namespace is not isolated by its annotation",
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
        None if names.is_empty() => "; no policy is given".to_owned(),
        None => String::new(),
    };
    format!("there is no policy {}{help}", ticked(id))
}

/// A name alone is neither a pod nor a policy, but there may be one of that name.
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
