//! Flows in documents.

use std::borrow::Cow;

use serde::Serialize;

use crate::report::flow::NamedFlow;

/// A flow.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowView {
    source: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
}

impl From<NamedFlow> for FlowView {
    fn from(flow: NamedFlow) -> FlowView {
        let NamedFlow {
            source,
            destination,
            protocol,
            port,
            ports,
            family,
            via,
        } = flow;
        FlowView {
            source,
            destination,
            protocol: protocol.map(|it| it.name()),
            port,
            ports: ports.map(|ports| ports.text()).unwrap_or_default(),
            family: family.map(|family| family.to_string()),
            via,
        }
    }
}
