//! The page of `connectivity -o html` in a real browser: its own script draws it, and nothing else runs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use palisade_need::{Need, run_in_turn, tests};

fn main() -> ExitCode {
    run_in_turn(tests![
        needs [Need::BROWSER]:
        the_page_draws_what_the_table_says,
        names_of_others_are_text,
    ])
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// A page as the browser has it when its script has run, without the script and its data.
struct Shown {
    head: String,
    body: String,
}

fn drawn(manifests: &Path) -> Shown {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["connectivity", "-q", "--lenient", "-o", "html", "-f"])
        .arg(manifests)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    std::fs::write(&page, output.stdout).unwrap();
    let browser = Command::new("timeout")
        .args(["60", "chromium", "--headless", "--no-sandbox"])
        .args(["--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--disable-sync", "--dump-dom"])
        .arg(format!(
            "--user-data-dir={}",
            directory.path().join("user").display()
        ))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(browser.status.success(), "{browser:?}");
    let shown = String::from_utf8(browser.stdout).unwrap();
    let (head, body) = shown.split_once("<body>").expect("a body");
    let mut body = body.to_owned();
    while let Some((before, rest)) = body.split_once("<script") {
        let after = rest.split_once("</script>").unwrap().1;
        body = format!("{before}{after}");
    }
    Shown {
        head: head.to_owned(),
        body,
    }
}

/// Who there is, and the first line of the table: read off the example and `palisade connectivity --summary`'s definition.
fn the_page_draws_what_the_table_says() {
    let Shown { body, .. } = drawn(Path::new("examples/shop"));
    assert!(
        body.contains("<p id=\"facts\">6 pods, 30 pairs: "),
        "{body}"
    );
    // The list names everyone once, and the map draws them.
    for name in [
        "kube-system/coredns-0",
        "monitoring/prometheus-0",
        "shop/api-0",
        "shop/web-0",
        "shop/web-1",
        "shop/svc/api",
        "node/n1",
    ] {
        let button = format!("<button type=\"button\">{name}</button>");
        assert_eq!(body.matches(&button).count(), 1, "{name}: {body}");
        assert!(
            body.contains(&format!("<title>{name} (")),
            "{name} is not drawn: {body}"
        );
    }
    let edges = body.matches("<path class=\"edge ").count();
    assert!(edges >= 20, "{edges} edges");
    assert_eq!(body.matches("aria-label=\"Map\"").count(), 1);
}

/// With `--lenient` names may be anything that a manifest has; in the browser they are text, and run nothing.
fn names_of_others_are_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    let name = "a</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>";
    let objects = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: \"{name}\", namespace: \"x<b>\"}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\nstatus: {{podIPs: [{{ip: 10.0.0.1}}]}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: b, namespace: other}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\nstatus: {{podIPs: [{{ip: 10.0.0.2}}]}}\n"
    );
    std::fs::write(&file, objects).unwrap();
    let shown = drawn(&file);
    assert!(
        shown.head.contains("<title>Connectivity</title>"),
        "{}",
        shown.head
    );
    assert!(
        !shown.body.contains("<img") && !shown.body.contains("x<b>"),
        "{}",
        shown.body
    );
    // It got there, as text.
    let text =
        "x&lt;b&gt;/a&lt;/script&gt;&lt;script&gt;document.title='owned'&lt;/script&gt;&lt;img";
    assert!(shown.body.contains(text), "{}", shown.body);
}
