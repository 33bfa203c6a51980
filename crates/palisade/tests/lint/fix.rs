//! `palisade lint --fix`: files are changed where no verdict changes, and nowhere else.

use std::path::Path;

use super::{palisade, text, with_input};

/// Writes a file, fixes it, and returns its content and the messages.
fn fixed(name: &str, before: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    std::fs::write(&file, before).unwrap();
    let output = palisade(
        directory.path(),
        &["lint", "--fix", "--exit-zero", "-f", name],
    );
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    (std::fs::read_to_string(file).unwrap(), errors)
}

#[track_caller]
fn check(before: &str, after: &str) {
    let (found, errors) = fixed("a.yaml", before);
    assert_eq!(found, after, "{errors}");
}

const POLICY: &str = "\
# A comment that stays.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}   # and this one
spec:
  podSelector: {}
  ingress:
  # from the VPN
  - from:
    - ipBlock:
        cidr: \"10.20.30.40/16\" # quoted
        except: ['10.20.1.1/24']
";

#[test]
fn bits_that_do_not_count_are_written_as_they_are_read() {
    let after = POLICY
        .replace("10.20.30.40/16", "10.20.0.0/16")
        .replace("10.20.1.1/24", "10.20.1.0/24");
    check(POLICY, &after);
}

#[test]
fn everything_else_stays_byte_by_byte() {
    let odd = format!("\u{feff}{POLICY}\n\n# the end, without a newline");
    let after = odd
        .replace("10.20.30.40/16", "10.20.0.0/16")
        .replace("10.20.1.1/24", "10.20.1.0/24");
    check(&odd, &after);
    let windows = POLICY.replace('\n', "\r\n");
    let after = after_windows(&windows);
    check(&windows, &after);
}

fn after_windows(windows: &str) -> String {
    windows
        .replace("10.20.30.40/16", "10.20.0.0/16")
        .replace("10.20.1.1/24", "10.20.1.0/24")
}

#[test]
fn a_range_of_one_port_becomes_the_port() {
    let policy = |port: &str| {
        format!(
            "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {{name: ssh}}\n\
             spec:\n  priority: 25\n  subject: {{namespaces: {{}}}}\n  ingress:\n  - action: Allow\n    from:\n    \
             - namespaces: {{}}\n    ports:\n{port}"
        )
    };
    check(
        &policy("    - portRange: {protocol: TCP, start: 22, end: 22} # ssh\n"),
        &policy("    - portNumber: {protocol: TCP, port: 22} # ssh\n"),
    );
    check(
        &policy("    - portRange:\n        start: 22\n        end: 22\n        protocol: UDP\n"),
        &policy("    - portNumber:\n        port: 22\n        protocol: UDP\n"),
    );
}

#[test]
fn a_relation_gets_the_letters_of_the_api() {
    let policy = |word: &str| {
        format!(
            "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {{name: own}}\n\
             spec:\n  priority: 80\n  subject: {{namespaces: {{}}}}\n  ingress:\n  - action: Allow\n    from:\n    \
             - pods: {{namespaces: {{related: {word}}}, podSelector: {{}}}}\n"
        )
    };
    check(&policy("self"), &policy("Self"));
    check(&policy("'notself'"), &policy("'NotSelf'"));
}

#[test]
fn json_is_changed_as_well() {
    let policy = |cidr: &str| {
        format!(
            "{{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicy\", \"metadata\": {{\"name\": \"db\"}},\n  \
             \"spec\": {{\"podSelector\": {{}}, \"ingress\": [{{\"from\": [{{\"ipBlock\": {{\"cidr\": \"{cidr}\"}}}}]}}]}}}}\n"
        )
    };
    let (found, errors) = fixed("a.json", &policy("10.20.30.40/16"));
    assert_eq!(found, policy("10.20.0.0/16"), "{errors}");
}

#[test]
fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    std::fs::write(&file, POLICY).unwrap();
    let args = ["lint", "--fix", "--dry-run", "-f", "a.yaml"];
    let output = palisade(directory.path(), &args);
    let expected = "\
--- a.yaml
+++ a.yaml
@@ -8,5 +8,5 @@
   # from the VPN
   - from:
     - ipBlock:
-        cidr: \"10.20.30.40/16\" # quoted
-        except: ['10.20.1.1/24']
+        cidr: \"10.20.0.0/16\" # quoted
+        except: ['10.20.1.0/24']
";
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), POLICY);
}

#[test]
fn what_is_no_file_cannot_be_fixed() {
    let output = with_input(&["lint", "--fix", "-f", "-"], POLICY);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "palisade: --fix cannot change standard input; name files with -f FILE or -f DIR\n"
    );
    let output = palisade(Path::new("."), &["lint", "--fix"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--filename"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn suppressed_and_unselected_findings_are_not_fixed() {
    let kept = POLICY.replace(
        "metadata: {name: db, namespace: shop}",
        "metadata: {name: db, namespace: shop, annotations: {palisade.dev/lint-ignore: CIDR-HOSTBITS as the router has it}}",
    );
    check(&kept, &kept);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    std::fs::write(&file, POLICY).unwrap();
    let args = ["lint", "--fix", "--ignore", "CIDR-HOSTBITS", "-f", "a.yaml"];
    palisade(directory.path(), &args);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), POLICY);
}

#[test]
fn a_list_of_rules_that_are_ignored_is_removed() {
    let policy = |egress: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: db}}\nspec:\n  podSelector: {{}}\n  \
             policyTypes: [Ingress]\n{egress}  ingress:\n  - from:\n    - podSelector: {{}}\n"
        )
    };
    let egress = "  # to the backup\n  egress:\n  - to:\n    - podSelector: {matchLabels: {app: backup}}\n\n    # at night\n  - {}\n";
    check(&policy(egress), &policy(""));
    let json = |egress: &str| {
        format!(
            "{{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicy\", \"metadata\": {{\"name\": \"db\"}},\n \
             \"spec\": {{\"podSelector\": {{}}, {egress}\"policyTypes\": [\"Ingress\"]}}}}\n"
        )
    };
    let (found, errors) = fixed("a.json", &json("\"egress\": [{}], "));
    assert_eq!(found, json(""), "{errors}");
}

#[test]
fn strange_layout_is_left_and_reported() {
    let policy = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: &name db, labels: {app: *name}}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  egress:
  - {}
";
    let (found, errors) = fixed("a.yaml", policy);
    assert_eq!(found, policy);
    assert!(
        errors.contains("IGNORED-RULES is not fixed: the layout around it cannot be edited safely"),
        "{errors}"
    );
}

fn cluster_policy(rules: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: blue}}\nspec:\n  \
         tier: Admin\n  priority: 10\n  subject: {{namespaces: {{}}}}\n{rules}"
    )
}

#[test]
fn a_rule_that_never_decides_anything_is_removed() {
    let first = "  # no pod\n  - action: Deny\n    from:\n    - namespaces: {}\n";
    let second = "  # but green\n  - action: Accept\n    from:\n    - namespaces: {matchLabels: {tenant: green}}\n";
    let rest = "  egress: []\n";
    check(
        &cluster_policy(&format!("  ingress:\n{first}{second}{rest}")),
        &cluster_policy(&format!("  ingress:\n{first}{rest}")),
    );
    let other_way = cluster_policy(&format!("  ingress:\n{second}{first}{rest}"));
    check(&other_way, &other_way);
    check(
        &cluster_policy(
            "  ingress: [{action: Deny, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}]\n",
        ),
        &cluster_policy("  ingress: [{action: Deny, from: [{namespaces: {}}]}]\n"),
    );
}

#[test]
fn a_peer_that_can_never_match_is_removed_and_never_leaves_everyone() {
    let never = "    - podSelector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: DoesNotExist}]}\n";
    let policy = |ingress: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: db}}\nspec:\n  podSelector: {{}}\n{ingress}"
        )
    };
    let other = "    - podSelector: {matchLabels: {app: api}}\n";
    check(
        &policy(&format!("  ingress:\n  - from:\n{other}{never}")),
        &policy(&format!("  ingress:\n  - from:\n{other}")),
    );
    let second = "  - ports:\n    - port: 80\n";
    check(
        &policy(&format!("  ingress:\n  - from:\n{never}{never}{second}")),
        &policy(&format!("  ingress:\n{second}")),
    );
    check(
        &policy(&format!("  ingress:\n  - from:\n{never}")),
        &policy("  ingress: []\n"),
    );
    // Without rules it would not isolate any more.
    let egress = policy(&format!(
        "  egress:\n  - to:\n{}",
        never.replace("from", "to")
    ));
    let (found, errors) = fixed("a.yaml", &egress);
    assert_eq!(found, egress);
    assert!(
        errors.contains("NEVER-MATCHES is not fixed: its removal would change a verdict"),
        "{errors}"
    );
}
