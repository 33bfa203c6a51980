//! Shrinks a difference: removes objects, and parts of objects, that it does not need.

use serde_json::Value;

use super::{Difference, both_answers};

/// The maximum number of smaller clusters to try.
const TRIES: usize = 20_000;

/// The same difference in a smaller cluster.
pub(super) fn shrink(mut difference: Difference) -> Difference {
    let mut tries = 0;
    loop {
        let before = size(&difference.objects);
        whole_objects(&mut difference, &mut tries);
        names(&mut difference);
        parts(&mut difference, &mut tries);
        if size(&difference.objects) == before || tries >= TRIES {
            return difference;
        }
    }
}

fn size(objects: &[Value]) -> usize {
    objects.iter().map(|object| object.to_string().len()).sum()
}

/// Accepts smaller objects if the answers still differ.
fn try_objects(difference: &mut Difference, objects: Vec<Value>, tries: &mut usize) -> bool {
    *tries += 1;
    if *tries > TRIES {
        return false;
    }
    let (engine, oracle) = both_answers(
        difference.budget,
        &objects,
        &difference.dns,
        &difference.query,
    );
    if engine == oracle {
        return false;
    }
    difference.objects = objects;
    difference.engine = engine;
    difference.oracle = oracle;
    true
}

fn whole_objects(difference: &mut Difference, tries: &mut usize) {
    let mut index = 0;
    while index < difference.objects.len() {
        let mut objects = difference.objects.clone();
        objects.remove(index);
        if !try_objects(difference, objects, tries) {
            index += 1;
        }
    }
}

/// Removes addresses of DNS names.
fn names(difference: &mut Difference) {
    let mut index = 0;
    while index < difference.dns.len() {
        let mut dns = difference.dns.clone();
        dns.remove(index);
        let (engine, oracle) = both_answers(
            difference.budget,
            &difference.objects,
            &dns,
            &difference.query,
        );
        if engine == oracle {
            index += 1;
        } else {
            difference.dns = dns;
            difference.engine = engine;
            difference.oracle = oracle;
        }
    }
}

/// Removes entries of lists and keys of mappings, from the outside in.
fn parts(difference: &mut Difference, tries: &mut usize) {
    for index in 0..difference.objects.len() {
        // Parts of these would be other objects.
        let kind = difference
            .objects
            .get(index)
            .and_then(|it| it["kind"].as_str());
        if matches!(kind, Some("Service" | "EndpointSlice")) {
            continue;
        }
        let mut at = 0;
        while let Some(object) = difference.objects.get(index) {
            let mut pointers = Vec::new();
            collect(object, &mut String::new(), &mut pointers);
            let Some(pointer) = pointers.get(at) else {
                break;
            };
            let mut objects = difference.objects.clone();
            if let Some(object) = objects.get_mut(index) {
                remove(object, pointer);
            }
            if !try_objects(difference, objects, tries) {
                at += 1;
            }
        }
    }
}

/// Collects the paths of removable parts; the identity of an object stays.
pub(crate) fn collect(value: &Value, path: &mut String, pointers: &mut Vec<String>) {
    let keep = [
        "/apiVersion",
        "/kind",
        "/metadata",
        "/metadata/name",
        "/metadata/namespace",
    ];
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                path.push('/');
                path.push_str(&key);
                if !keep.contains(&path.as_str()) {
                    pointers.push(path.clone());
                }
                collect(child, path, pointers);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            for (index, child) in list.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                pointers.push(path.clone());
                collect(child, path, pointers);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(crate) fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&last);
        }
        Some(Value::Array(list)) => {
            if let Ok(index) = last.parse::<usize>()
                && index < list.len()
            {
                list.remove(index);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}
