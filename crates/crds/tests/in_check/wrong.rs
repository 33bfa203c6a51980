//! Values that break exactly one constraint of a schema, and the smallest values that break none.

use serde_json::{Map, Value, json};

/// A step from a schema to one inside it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Field(String),
    Item,
    Key,
}

/// The fields of an object's schema.
pub(crate) fn fields(schema: &Value) -> Map<String, Value> {
    schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default()
}

/// The smallest valid value.
pub(crate) fn minimal(schema: &Value, name: &str) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(80);
    }
    match schema["type"].as_str().unwrap_or_default() {
        "integer" => json!(match name {
            "end" | "endPort" => 90,
            "start" | "port" | "number" => 80,
            _ => 5,
        }),
        "boolean" => json!(true),
        "array" => {
            // An operator with values needs at least one, which the schema does not express.
            let least = u64::from(name == "values");
            let least = schema["minItems"].as_u64().unwrap_or(least);
            let items = (0..least).map(|index| item(schema, name, index));
            items.collect()
        }
        "string" => string(schema, name),
        _ => object(schema),
    }
}

fn string(schema: &Value, name: &str) -> Value {
    if let Some(word) = schema["enum"].get(0) {
        return if name == "operator" {
            json!("Exists")
        } else {
            word.clone()
        };
    }
    json!(match name {
        "networks" | "cidr" => "192.0.2.0/24",
        "except" => "192.0.2.0/28",
        "domainNames" => "a.example.com",
        "operator" => "Exists",
        "related" => "Self",
        "protocol" => "TCP",
        _ => "app",
    })
}

fn object(schema: &Value) -> Value {
    let fields = fields(schema);
    let mut value = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in required.iter().filter_map(Value::as_str) {
        value.insert(name.to_owned(), minimal(&fields[name], name));
    }
    let needs_one = schema["minProperties"].as_u64().unwrap_or(0) > 0 && value.is_empty();
    let is_choice = schema["oneOf"].is_array() && value.len() < 2;
    if needs_one || is_choice {
        let preferred = [
            "namespaceSelector",
            "namespaces",
            "tcp",
            "number",
            "destinationPort",
            "portNumber",
            "podSelector",
            "selector",
        ];
        // A selector may be empty; its expressions have alternatives of their own.
        let first = preferred.iter().find(|it| fields.contains_key(**it));
        if let Some(first) = first.filter(|_| !fields.contains_key("matchLabels")) {
            let first = (*first).to_owned();
            value.insert(first.clone(), minimal(&fields[&first], &first));
        }
    }
    Value::Object(value)
}

/// The nth of many different items.
pub(crate) fn item(schema: &Value, name: &str, index: u64) -> Value {
    match name {
        "networks" => json!(format!("10.{}.{}.0/24", index / 256, index % 256)),
        "domainNames" => json!(format!("a{index}.example.com")),
        _ => minimal(&schema["items"], name),
    }
}

/// The smallest object of the root's schema with a value at the end of the steps.
pub(crate) fn put(schema: &Value, steps: &[Step], leaf: &Value) -> Value {
    let Some((step, rest)) = steps.split_first() else {
        return leaf.clone();
    };
    match step {
        Step::Item => json!([put(&schema["items"], rest, leaf)]),
        Step::Key => json!({"app": put(&schema["additionalProperties"], rest, leaf)}),
        Step::Field(field) => {
            let child = put(&schema["properties"][field], rest, leaf);
            let mut base = object(schema);
            if schema["maxProperties"] == 1 || schema["minProperties"] == 1 {
                base = json!({});
            }
            match field.as_str() {
                "values" => base["operator"] = json!("In"),
                "endPort" => base["port"] = json!(80),
                "self" | "ipBlock" => base = json!({}),
                // Beside `podSelector` it is the early shape of a peer.
                "namespaces" if base.get("podSelector").is_some() => {
                    base = json!({"podSelector": {}});
                }
                _ => {}
            }
            base[field] = child;
            base
        }
    }
}

/// A constraint, and a value that breaks it.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) constraint: String,
    pub(crate) value: Value,
}

/// Every constraint of a schema itself, broken; an error for those without a broken value here.
pub(crate) fn wrongs(schema: &Value, name: &str) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    let mut add = |constraint: &str, value: Value| {
        let constraint = constraint.to_owned();
        wrongs.push(Wrong { constraint, value });
    };
    let fields = fields(schema);
    for (keyword, limit) in schema.as_object().unwrap() {
        let number = limit.as_i64().unwrap_or_default();
        let count = u64::try_from(number).unwrap_or_default();
        let long = usize::try_from(count + 1).unwrap();
        match keyword.as_str() {
            "description" | "default" | "properties" | "items" | "additionalProperties" => {}
            "x-kubernetes-map-type" | "x-kubernetes-int-or-string" | "nullable" => {}
            "x-kubernetes-preserve-unknown-fields" => {}
            "type" => add(
                "type",
                if limit == "integer" || limit == "boolean" {
                    json!("x")
                } else {
                    json!(7)
                },
            ),
            "format" if limit == "cidr" => add("format", json!("nonsense")),
            "format" => assert_eq!(limit, "int32", "{name}"),
            "minimum" => add(keyword, json!(number - 1)),
            "maximum" => add(keyword, json!(number + 1)),
            "minLength" => add(keyword, json!("")),
            "maxLength" => add(keyword, json!("a".repeat(long))),
            "pattern" => add(keyword, json!("?!")),
            "enum" => add(keyword, json!("Nonsense")),
            "minItems" => {
                let items = (0..count - 1).map(|it| item(schema, name, it));
                add(keyword, items.collect());
            }
            "maxItems" => {
                let items = (0..=count).map(|it| item(schema, name, it));
                add(keyword, items.collect());
            }
            "minProperties" => add(keyword, json!({})),
            "maxProperties" if count == 0 => add(keyword, json!({"nonsense": 1})),
            "maxProperties" => {
                let two = fields.iter().take(2);
                let two = two.map(|(name, it)| (name.clone(), minimal(it, name)));
                add(keyword, Value::Object(two.collect()));
            }
            "required" => {
                for missing in limit.as_array().unwrap().iter().filter_map(Value::as_str) {
                    // A server sets the default before it validates.
                    if fields[missing].get("default").is_none() {
                        let mut value = object(schema);
                        value.as_object_mut().unwrap().remove(missing);
                        add(&format!("required {missing}"), value);
                    }
                }
            }
            "x-kubernetes-list-type" if limit == "set" => {
                add("set", json!([item(schema, name, 0), item(schema, name, 0)]));
            }
            "x-kubernetes-list-type" => assert_eq!(limit, "atomic", "{name}"),
            "oneOf" | "anyOf" | "allOf" => {
                for value in combined(&fields, keyword, name) {
                    add(keyword, value);
                }
            }
            "x-kubernetes-validations" => {
                for rule in limit.as_array().unwrap() {
                    let rule = rule["rule"].as_str().unwrap();
                    add(&format!("rule {rule}"), broken(rule, schema));
                }
            }
            other => panic!("{name}: no value here breaks {other}"),
        }
    }
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !fields.is_empty() && !is_open {
        let mut value = object(schema);
        value["nonsense"] = json!({});
        add("unknown field", value);
    }
    wrongs
}

/// Values for the combinations of schemas, recognized by their fields.
fn combined(fields: &Map<String, Value>, keyword: &str, name: &str) -> Vec<Value> {
    let has = |field: &str| fields.contains_key(field);
    match keyword {
        "allOf" if name == "port" => vec![json!("80")],
        "allOf" => vec![json!(format!("{}/a", "a".repeat(254)))],
        "anyOf" if has("endPort") => {
            vec![
                json!({"endPort": 90}),
                json!({"port": "http", "endPort": 90}),
            ]
        }
        // A number or a text.
        "anyOf" if name == "port" => vec![json!(true)],
        "oneOf" if has("operator") => vec![
            json!({"key": "app", "operator": "In"}),
            json!({"key": "app", "operator": "Exists", "values": ["a"]}),
        ],
        "oneOf" if has("sameLabels") => vec![
            json!({"sameLabels": ["a"], "related": "Self"}),
            json!({"sameLabels": ["a"], "matchLabels": {}}),
        ],
        "oneOf" if has("self") => vec![
            json!({}),
            json!({"self": true, "selector": {}}),
            json!({"self": true, "except": [{}]}),
            json!({"except": [{}]}),
        ],
        "oneOf" if has("ipBlock") => vec![
            json!({}),
            json!({"ipBlock": {"cidr": "192.0.2.0/24"}, "podSelector": {}}),
        ],
        "oneOf" if has("podSelector") => vec![
            json!({"podSelector": {}}),
            json!({"podSelector": {}, "namespaceSelector": {}, "namespaces": {"sameLabels": ["a"]}}),
        ],
        _ => panic!("{name}: no value here breaks this {keyword}"),
    }
}

/// A value that a rule in CEL rejects.
fn broken(rule: &str, schema: &Value) -> Value {
    let named_port = |list: &str, port: &str| {
        let mut rule = object(schema);
        rule["to"] = json!([{"networks": ["192.0.2.0/24"]}]);
        rule[list] = json!([{port: "http"}]);
        rule
    };
    match rule {
        "isCIDR(self)" => json!("10.0.0.300/8"),
        "self.start < self.end" => json!({"start": 80, "end": 80}),
        "self.start <= self.end" => json!({"start": 90, "end": 80}),
        "self.metadata.name == 'default'" => {
            let mut value = object(schema);
            value["metadata"] = json!({"name": "another"});
            value
        }
        _ if rule.ends_with("has(peer.domainNames))") => {
            json!({"action": "Deny", "to": [{"domainNames": ["a.example.com"]}]})
        }
        _ if rule.contains("has(protocol.destinationNamedPort)") => {
            named_port("protocols", "destinationNamedPort")
        }
        _ if rule.contains("has(port.namedPort)") => named_port("ports", "namedPort"),
        _ if rule.contains("has(p.namespaces.sameLabels)") => {
            let mut value = object(schema);
            let peers = json!([{"namespaces": {"sameLabels": ["a"]}}, {"namespaces": {}}]);
            value["ingress"] = json!([{"action": "Deny", "from": peers}]);
            value
        }
        _ => panic!("no value here breaks {rule}"),
    }
}
