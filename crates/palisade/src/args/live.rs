//! The options for the live cluster, with the names that `kubectl` uses.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use palisade_core::model::Cluster;
use palisade_core::query::DEFAULT_NAMESPACE;
use palisade_core::text::{nearest, ticked};
use palisade_kube::Access;

use super::InputArgs;

/// Which cluster to read, and as which user.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Live cluster")]
pub(crate) struct LiveArgs {
    /// Lay the objects of -f over the live cluster: an object of the same kind, namespace and name
    /// replaces that of the cluster, others are added
    #[arg(long, requires = "filename")]
    pub(crate) with_cluster: bool,

    /// The kubeconfig file
    #[arg(
        long,
        value_name = "FILE",
        help = "The kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the cluster that the command runs in]"
    )]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The cluster of the kubeconfig, if not the context's
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// The user of the kubeconfig, if not the context's
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Act as this user, or service account as system:serviceaccount:NS:NAME
    #[arg(long = "as", value_name = "USER")]
    pub(crate) act_as: Option<String>,

    /// Act as a member of this group; repeatable
    #[arg(long = "as-group", value_name = "GROUP", requires = "act_as")]
    pub(crate) act_as_group: Vec<String>,

    /// How long the server may take to answer a request, as 30s, 1m or seconds; 0: no limit
    #[arg(
        long,
        value_name = "TIME",
        value_parser = duration,
        help = "How long the server may take to answer a request, as 30s, 1m or seconds; 0: no limit [default: 60s]"
    )]
    pub(crate) request_timeout: Option<Duration>,
}

impl LiveArgs {
    /// Returns how to reach the API server.
    pub(crate) fn access(&self) -> Access {
        Access {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            act_as: self.act_as.clone(),
            act_as_groups: self.act_as_group.clone(),
            timeout: self.request_timeout,
        }
    }

    /// Returns the first option that is set and applies only to the live cluster.
    pub(crate) fn typed(&self) -> Option<&'static str> {
        let typed = [
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--context", self.context.is_some()),
            ("--cluster", self.cluster.is_some()),
            ("--user", self.user.is_some()),
            ("--as", self.act_as.is_some()),
            ("--as-group", !self.act_as_group.is_empty()),
            ("--request-timeout", self.request_timeout.is_some()),
        ];
        let mut typed = typed.into_iter().filter(|(_, is_typed)| *is_typed);
        typed.next().map(|(name, _)| name)
    }
}

/// The namespace of endpoints that are written without one.
#[derive(Args, Debug, Default)]
pub(crate) struct NamespaceArgs {
    /// The namespace of endpoints without one [default: that of the kubeconfig's context, or
    /// `default` for files]. If the cluster refuses to list all namespaces, this one is read;
    /// repeatable
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Vec<String>,
}

impl NamespaceArgs {
    /// Returns the namespace of endpoints that are written without one.
    pub(crate) fn default(&self, input: &InputArgs) -> anyhow::Result<String> {
        match self.namespace.first() {
            Some(namespace) => Ok(namespace.clone()),
            None if input.is_live() => crate::live::namespace(&input.live.access()),
            None => Ok(DEFAULT_NAMESPACE.to_owned()),
        }
    }

    /// Fails if a namespace is not in the cluster: a typo would name endpoints that do not exist.
    pub(crate) fn check(&self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        require_namespaces(cluster, &self.namespace)
    }
}

/// Fails if a namespace is not in the cluster.
pub(crate) fn require_namespaces(
    cluster: &Cluster<'_>,
    namespaces: &[String],
) -> anyhow::Result<()> {
    let names: Vec<&str> = cluster.namespaces.iter().map(|it| it.name).collect();
    for name in namespaces {
        if !names.contains(&&**name) {
            bail!("{}", no_namespace(&names, name));
        }
    }
    Ok(())
}

/// Returns the error for a namespace that is not among `names`.
pub(crate) fn no_namespace(names: &[&str], name: &str) -> String {
    let help = match nearest(name, names) {
        Some(near) => format!("; did you mean {}?", ticked(near)),
        None if names.is_empty() => "; the input has no namespace".to_owned(),
        None => String::new(),
    };
    format!("namespace {} not found{help}", ticked(name))
}

/// The units of a duration, longest names first: `m` is a prefix of `ms`.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses a duration as `kubectl` does: seconds, or numbers with units as `1m30s`. Zero is no
/// limit.
fn duration(text: &str) -> Result<Duration, String> {
    let usage = || "write seconds, or a time as `30s`, `1m` or `1m30s`".to_owned();
    let seconds = match text.parse::<u32>() {
        Ok(seconds) => f64::from(seconds),
        Err(_) => in_units(text).ok_or_else(usage)?,
    };
    if seconds <= 0.0 {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| usage())
}

/// Adds up numbers with units, in seconds; `None` for other text.
fn in_units(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at_checked(end)?;
        let number: f64 = number.parse().ok()?;
        let (after, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((after.strip_prefix(name)?, unit)))?;
        seconds += number * unit;
        rest = after;
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::duration;

    #[test]
    fn durations_are_read_as_kubectl_reads_them() {
        for (text, milliseconds) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("1m", 60_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("1h", 3_600_000),
        ] {
            let expected = Ok(Duration::from_millis(milliseconds));
            assert_eq!(duration(text), expected, "{text}");
        }
        for text in ["0", "0s"] {
            assert_eq!(duration(text), Ok(Duration::MAX), "{text}");
        }
        for text in [
            "", "soon", "-1", "-1s", "1", "1 s", "s", "1x", "1s2", "1..2s",
        ] {
            let is_plain = text == "1";
            assert_eq!(duration(text).is_ok(), is_plain, "{text}");
        }
    }
}
