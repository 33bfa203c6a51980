//! Answers about network policy as values, documents and texts, and the command that prints them.
//!
//! [`report`] has the answers of `explain` and `affecting` as typed values with their texts, and
//! [`view`] their JSON documents. A server or another front end uses these two. The other commands'
//! answers are private. [`main`] is the command line on top of them.
//!
//! ```
//! use palisade::report::explain::{Detail, Explainer};
//! use palisade::report::flow::NamedFlow;
//! use palisade::view::explanation::ExplanationView;
//! use palisade::view::{DocumentFormat, write_document};
//! use palisade_api::{Options, Source, lower, read};
//! use palisade_core::answer::FlowEvaluator;
//! use palisade_core::compile::compile;
//! use palisade_core::query::FlowWords;
//!
//! let manifest = b"{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}";
//! let sources = [Source::new("web.yaml", manifest.to_vec())];
//! let manifests = read(&sources, Options::default(), &|_| {});
//! let lowered = lower(&manifests.objects, Vec::new());
//! let program = compile(&lowered.cluster);
//! let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
//! let detail = Detail::everything();
//! let explainer = Explainer::new(&evaluator, &manifests.objects, &sources, detail);
//!
//! let words = FlowWords::new(&["203.0.113.7", "shop/web", "tcp/80"])?;
//! let query = words.query(None, "default")?;
//! let answer = evaluator.answer(&query)?;
//! let explanation = explainer.explanation(NamedFlow::of_query(words, &query), &answer);
//! assert!(explanation.text().contains("no policy applies to its ingress"));
//! let mut json = Vec::new();
//! let view = ExplanationView::from(explanation);
//! write_document(&mut json, DocumentFormat::Json, &view)?;
//! assert!(String::from_utf8(json)?.contains("\"verdict\": \"Allow\""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod proposals;
pub mod report;
pub mod view;

mod args;
mod cli;
mod cluster;
mod cmd;
mod connectivity;
mod diff_report;
mod draw;
mod edit;
mod findings;
mod flows;
mod git;
mod live;
mod manifest_text;
mod progress;
mod sarif;
mod signals;
mod source;

pub(crate) use self::cli::Outcome;
pub use self::cli::main;
