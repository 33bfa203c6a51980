//! Shrinks a cluster with wrong or missing findings.

use std::net::IpAddr;

use serde_json::Value;

use super::compare_objects;
use crate::agree::shrink::{collect, remove};

/// The maximum number of smaller clusters to try.
const TRIES: usize = 3_000;

/// A smaller cluster with wrong or missing findings.
pub(super) fn shrink(mut objects: Vec<Value>, dns: &[(String, IpAddr)]) -> Vec<Value> {
    let mut tries = 0;
    let mut is_wrong = |objects: &[Value]| {
        tries += 1;
        tries <= TRIES && !compare_objects(objects, dns).is_right()
    };
    loop {
        let before = objects.clone();
        let mut at = 0;
        while at < objects.len() {
            let mut fewer = objects.clone();
            fewer.remove(at);
            if is_wrong(&fewer) {
                objects = fewer;
            } else {
                at += 1;
            }
        }
        for at in 0..objects.len() {
            let mut part = 0;
            while let Some(object) = objects.get(at) {
                let mut pointers = Vec::new();
                collect(object, &mut String::new(), &mut pointers);
                let Some(pointer) = pointers.get(part) else {
                    break;
                };
                let mut fewer = objects.clone();
                if let Some(object) = fewer.get_mut(at) {
                    remove(object, pointer);
                }
                if is_wrong(&fewer) {
                    objects = fewer;
                } else {
                    part += 1;
                }
            }
        }
        if objects == before {
            return objects;
        }
    }
}
