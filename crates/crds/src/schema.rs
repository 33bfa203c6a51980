//! A builder of structural schemas, with only the keywords that an API server supports.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

/// The schema of one value. Its keys come out in alphabetical order.
#[derive(Clone, Debug)]
pub(crate) struct Schema(Map<String, Value>);

impl Schema {
    fn of(kind: &str, description: &str) -> Schema {
        let mut schema = Schema(Map::new()).with("type", json!(kind));
        if !description.is_empty() {
            schema = schema.with("description", json!(description));
        }
        schema
    }

    /// A text.
    pub(crate) fn string(description: &str) -> Schema {
        Schema::of("string", description)
    }

    /// A whole number of 32 bits in a range.
    pub(crate) fn int32(description: &str, range: RangeInclusive<i32>) -> Schema {
        Schema::of("integer", description)
            .with("format", json!("int32"))
            .with("minimum", json!(range.start()))
            .with("maximum", json!(range.end()))
    }

    /// A whole number of 64 bits that is not negative.
    pub(crate) fn count(description: &str) -> Schema {
        Schema::of("integer", description)
            .with("format", json!("int64"))
            .with("minimum", json!(0))
    }

    /// True or false.
    pub(crate) fn boolean(description: &str) -> Schema {
        Schema::of("boolean", description)
    }

    /// A number or a text.
    pub(crate) fn int_or_string(description: &str) -> Schema {
        Schema(Map::new())
            .with("description", json!(description))
            .with("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
            .with("x-kubernetes-int-or-string", json!(true))
    }

    /// An object with these fields.
    pub(crate) fn object<const N: usize>(description: &str, fields: [(&str, Schema); N]) -> Schema {
        let fields = fields.into_iter();
        let fields: Map<String, Value> = fields
            .map(|(name, schema)| (name.to_owned(), schema.into_value()))
            .collect();
        let schema = Schema::of("object", description);
        if fields.is_empty() {
            return schema;
        }
        schema.with("properties", Value::Object(fields))
    }

    /// A mapping of free keys.
    pub(crate) fn map(description: &str, values: Schema) -> Schema {
        Schema::of("object", description).with("additionalProperties", values.into_value())
    }

    /// A list.
    pub(crate) fn list(description: &str, items: Schema) -> Schema {
        Schema::of("array", description).with("items", items.into_value())
    }

    /// Any other keyword.
    pub(crate) fn with(mut self, keyword: &str, value: Value) -> Schema {
        self.0.insert(keyword.to_owned(), value);
        self
    }

    /// One more field of an object.
    pub(crate) fn field(mut self, name: &str, schema: Schema) -> Schema {
        let fields = self.0.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(fields) = fields {
            fields.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// The required fields.
    pub(crate) fn required(self, names: &[&str]) -> Schema {
        self.with("required", json!(names))
    }

    /// How many entries a list has at least and at most.
    pub(crate) fn items(self, range: RangeInclusive<u32>) -> Schema {
        let schema = self.with("maxItems", json!(range.end()));
        match range.start() {
            0 => schema,
            least => schema.with("minItems", json!(least)),
        }
    }

    /// Exactly one field must be set.
    pub(crate) fn exactly_one(self) -> Schema {
        self.with("minProperties", json!(1))
            .with("maxProperties", json!(1))
    }

    /// How many characters a text has at most.
    pub(crate) fn max_length(self, most: u32) -> Schema {
        self.with("maxLength", json!(most))
    }

    /// The regular expression that a text matches.
    pub(crate) fn pattern(self, pattern: &str) -> Schema {
        self.with("pattern", json!(pattern))
    }

    /// The values that a text can have.
    pub(crate) fn values(self, words: &[&str]) -> Schema {
        self.with("enum", json!(words))
    }

    /// The default value.
    pub(crate) fn default(self, value: Value) -> Schema {
        self.with("default", value)
    }

    /// A list without repetition.
    pub(crate) fn set(self) -> Schema {
        self.with("x-kubernetes-list-type", json!("set"))
    }

    /// A list that is replaced as a whole.
    pub(crate) fn atomic_list(self) -> Schema {
        self.with("x-kubernetes-list-type", json!("atomic"))
    }

    /// An object that is replaced as a whole.
    pub(crate) fn atomic(self) -> Schema {
        self.with("x-kubernetes-map-type", json!("atomic"))
    }

    /// One more rule in CEL.
    pub(crate) fn rule(mut self, rule: &str, message: &str) -> Schema {
        let rules = self.0.entry("x-kubernetes-validations");
        if let Value::Array(rules) = rules.or_insert_with(|| json!([])) {
            rules.push(json!({"rule": rule, "message": message}));
        }
        self
    }

    /// The document.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}
