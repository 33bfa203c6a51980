//! Policies of other vendors, which no answer takes into account.

use palisade_api::{OtherPolicies, OtherPolicyKind};

/// Formats the counts in one line; `None`: there are no such policies.
pub(crate) fn line(found: &OtherPolicies) -> Option<String> {
    let n_policies: usize = found.values().sum();
    if n_policies == 0 {
        return None;
    }
    let kinds = found.iter().map(|(it, count)| {
        let OtherPolicyKind { group, kind } = it;
        if it.is_ambiguous() {
            format!("{count} {kind} of {group}")
        } else {
            format!("{count} {kind}")
        }
    });
    let kinds: Vec<String> = kinds.collect();
    let policies = match n_policies {
        1 => "1 policy".to_owned(),
        more => format!("{more} policies"),
    };
    Some(format!(
        "{policies} of kinds that are not judged: {}; the answer may differ where they are enforced",
        kinds.join(", ")
    ))
}
