//! Literal reading of JSON: null is absence (D24), a wrong type is a defect (D123), and so is an
//! unknown key (D17).

use serde_json::Value;

/// A JSON object.
pub(crate) type Map = serde_json::Map<String, Value>;

/// Something is wrong here; the caller decides what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad;

/// A reading that may find a defect.
pub(crate) type Res<T> = Result<T, Bad>;

/// A field, with null as absence (D24).
pub(crate) fn field<'a>(map: &'a Map, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|v| !v.is_null())
}

/// An object, or a wrong type.
pub(crate) fn object(v: &Value) -> Res<&Map> {
    v.as_object().ok_or(Bad)
}

/// A list, or a wrong type.
pub(crate) fn list(v: &Value) -> Res<&Vec<Value>> {
    v.as_array().ok_or(Bad)
}

/// A string, or a wrong type.
pub(crate) fn text(v: &Value) -> Res<&str> {
    v.as_str().ok_or(Bad)
}

/// An integer, or a wrong type.
pub(crate) fn integer(v: &Value) -> Res<i64> {
    v.as_i64().ok_or(Bad)
}

/// A field that is an object if it is there.
pub(crate) fn opt_object<'a>(map: &'a Map, key: &str) -> Res<Option<&'a Map>> {
    field(map, key).map(object).transpose()
}

/// A field that is a list if it is there.
pub(crate) fn opt_list<'a>(map: &'a Map, key: &str) -> Res<Option<&'a Vec<Value>>> {
    field(map, key).map(list).transpose()
}

/// A field that is a string if it is there.
pub(crate) fn opt_text<'a>(map: &'a Map, key: &str) -> Res<Option<&'a str>> {
    field(map, key).map(text).transpose()
}

/// A field that is an integer if it is there.
pub(crate) fn opt_integer(map: &Map, key: &str) -> Res<Option<i64>> {
    field(map, key).map(integer).transpose()
}

/// A field that is a boolean if it is there.
pub(crate) fn opt_bool(map: &Map, key: &str) -> Res<Option<bool>> {
    field(map, key).map(|v| v.as_bool().ok_or(Bad)).transpose()
}

/// Only these keys may be there (D17).
pub(crate) fn only(map: &Map, keys: &[&str]) -> Res<()> {
    if map.keys().all(|k| keys.contains(&k.as_str())) {
        Ok(())
    } else {
        Err(Bad)
    }
}

/// How many of these fields are set.
pub(crate) fn count(map: &Map, keys: &[&str]) -> usize {
    keys.iter().filter(|k| field(map, k).is_some()).count()
}

/// A list of strings.
pub(crate) fn texts(v: &Value) -> Res<Vec<String>> {
    list(v)?
        .iter()
        .map(|t| text(t).map(str::to_owned))
        .collect()
}

/// A map of strings; a null value is a defect (D24, D122).
pub(crate) fn string_map(v: Option<&Value>) -> Res<Vec<(String, String)>> {
    let Some(v) = v else { return Ok(Vec::new()) };
    object(v)?
        .iter()
        .map(|(k, t)| text(t).map(|t| (k.clone(), t.to_owned())))
        .collect()
}
