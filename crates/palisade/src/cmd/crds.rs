//! `palisade crds`: the CRDs of the policy APIs, for `kubectl apply -f -`.

use std::io::Write;

use serde_json::json;

use crate::Outcome;
use crate::args::crds::CrdsArgs;
use crate::view::DocumentFormat;

/// Prints the documents.
pub(crate) fn run(args: &CrdsArgs) -> anyhow::Result<Outcome> {
    let mut crds = palisade_crds::crds(args.channel.channel());
    if args.legacy {
        crds.extend(palisade_crds::legacy());
        anstream::eprintln!(
            "palisade: note: Kubernetes owns the group networking.k8s.io and does not serve the legacy kinds"
        );
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match args.output.document() {
        Some(DocumentFormat::Yaml) => {
            for crd in &crds {
                write!(out, "---\n{}", serde_saphyr::to_string(crd)?)?;
            }
        }
        Some(DocumentFormat::Json) => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
            serde_json::to_writer_pretty(&mut out, &list)?;
            writeln!(out)?;
        }
        None => return Err(args.output.unsupported()),
    }
    out.flush()?;
    Ok(Outcome::Clean)
}
