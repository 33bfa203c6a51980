//! Config maps, whose long values are block scalars.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;

pub(super) fn build(rng: &mut Rng, app: &App, serial: u64) -> Value {
    let mut settings = String::from("# settings of the service\nserver:\n");
    for index in 0..rng.between(10, 60) {
        settings.push_str(&format!("  option-{index}: {}\n", rng.hex(12)));
    }
    let upstream = format!("http://{}.{}.svc:{}", app.name, app.home.name, app.port);
    json!({
        "apiVersion": "v1",
        "data": {
            "application.yaml": settings, "log.level": "info", "retries": "3", "url": upstream,
        },
        "kind": "ConfigMap",
        "metadata": {
            "labels": {"app.kubernetes.io/name": app.name},
            "name": format!("{}-config-{serial}", app.name),
            "namespace": app.home.name,
        },
    })
}
